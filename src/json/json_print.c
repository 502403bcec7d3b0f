#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_string(const char *text, struct buffer *out)
{
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char letter[] = "\"\\bfnrt";
    buffer_text(out, "\"");
    for (const char *p = text; *p != '\0';) {
        size_t run = 0;
        while ((unsigned char)p[run] >= 0x20 && p[run] != '"' && p[run] != '\\')
            run++;
        buffer_append(out, p, run);
        p += run;
        if (*p == '\0')
            break;
        const char *found = strchr(plain, *p);
        if (found != NULL)
            buffer_format(out, "\\%c", letter[found - plain]);
        else
            buffer_format(out, "\\u%04x", (unsigned int)(unsigned char)*p);
        p++;
    }
    buffer_text(out, "\"");
}

static void print_number(double value, struct buffer *out)
{
    char text[40];
    if (!isfinite(value)) {
        buffer_text(out, "null");
        return;
    }
    if (fabs(value) <= (double)JSON_INTEGER_MAX && value == (double)(int64_t)value && !(value == 0 && signbit(value))) {
        buffer_format(out, "%lld", (long long)value);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    for (char *p = text; *p != '\0'; p++)
        if (*p == ',') /* the decimal point of some locales */
            *p = '.';
    buffer_text(out, text);
}

static void new_line(struct buffer *out, size_t level, bool pretty)
{
    if (!pretty)
        return;
    buffer_text(out, "\n");
    for (size_t i = 0; i < level; i++)
        buffer_text(out, "  ");
}

static void print_value(const struct json *json, struct buffer *out, size_t level, bool pretty);

static void print_container(const struct json *json, struct buffer *out, size_t level, bool pretty)
{
    bool object = json_type(json) == JSON_OBJECT;
    buffer_text(out, object ? "{" : "[");
    for (const struct json *member = json_first(json); member != NULL; member = json_next(member)) {
        new_line(out, level + 1, pretty);
        if (object) {
            print_string(json_key(member), out);
            buffer_text(out, pretty ? ": " : ":");
        }
        print_value(member, out, level + 1, pretty);
        if (json_next(member) != NULL)
            buffer_text(out, ",");
    }
    if (json_first(json) != NULL)
        new_line(out, level, pretty);
    buffer_text(out, object ? "}" : "]");
}

static void print_value(const struct json *json, struct buffer *out, size_t level, bool pretty)
{
    const char *text = NULL;
    double number = 0;
    bool yes = false;
    switch (json_type(json)) {
    case JSON_NULL:
        text = json_printed(json);
        buffer_text(out, text != NULL ? text : "null");
        break;
    case JSON_BOOL:
        (void)json_get_bool(json, "", &yes, NULL);
        buffer_text(out, yes ? "true" : "false");
        break;
    case JSON_NUMBER:
        (void)json_get_double(json, "", &number, NULL);
        print_number(number, out);
        break;
    case JSON_STRING:
        (void)json_get_string(json, "", &text, NULL);
        print_string(text, out);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        print_container(json, out, level, pretty);
        break;
    }
}

void json_print(const struct json *json, struct buffer *out)
{
    print_value(json, out, 0, false);
}

void json_print_pretty(const struct json *json, struct buffer *out)
{
    print_value(json, out, 0, true);
}

char *json_print_new(const struct json *json)
{
    struct buffer text;
    buffer_init(&text);
    json_print(json, &text);
    char *line = buffer_steal(&text);
    buffer_fini(&text); /* it begins anew */
    return line;
}
