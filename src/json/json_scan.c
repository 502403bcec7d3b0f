#include "json/json_scan.h"

#include "base/text.h"

#include <stdbool.h>
#include <string.h>

enum { NUMBER_MAX = 63 }; /* cJSON 1.7.15 silently ends a number there */

struct cursor {
    const char *text;
    size_t length, at;
    size_t max_depth, max_values, values;
    struct error *err;
};

static enum error_code wrong(const struct cursor *c, const char *what)
{
    return error_set(c->err, ERROR_FORMAT, "JSON at byte %zu: %s", c->at, what);
}

/* The byte under the cursor; -1 at the end. */
static int peek(const struct cursor *c)
{
    return c->at < c->length ? (unsigned char)c->text[c->at] : -1;
}

static bool eat(struct cursor *c, char wanted)
{
    if (peek(c) != (unsigned char)wanted)
        return false;
    c->at++;
    return true;
}

static void skip_blanks(struct cursor *c)
{
    while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\n' || peek(c) == '\r')
        c->at++;
}

static bool is_digit(int byte)
{
    return byte >= '0' && byte <= '9';
}

static bool eat_digits(struct cursor *c)
{
    size_t from = c->at;
    while (is_digit(peek(c)))
        c->at++;
    return c->at > from;
}

static enum error_code scan_number(struct cursor *c)
{
    size_t from = c->at;
    (void)eat(c, '-');
    if (eat(c, '0')) {
        if (is_digit(peek(c)))
            return wrong(c, "a number may not begin with 0");
    } else if (!eat_digits(c)) {
        return wrong(c, "a digit is expected");
    }
    if (eat(c, '.') && !eat_digits(c))
        return wrong(c, "a digit is expected after the point");
    if (eat(c, 'e') || eat(c, 'E')) {
        (void)(eat(c, '+') || eat(c, '-'));
        if (!eat_digits(c))
            return wrong(c, "a digit is expected in the exponent");
    }
    if (c->at - from > NUMBER_MAX)
        return wrong(c, "the number has more than 63 characters");
    return ERROR_NONE;
}

/* Four hexadecimal digits, as a number; -1 when they are not. */
static int eat_hex(struct cursor *c)
{
    int value = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int byte = peek(c);
        if (is_digit(byte))
            value = value * 16 + (byte - '0');
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            value = value * 16 + ((byte | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* What follows a backslash. */
static enum error_code scan_escape(struct cursor *c)
{
    int byte = peek(c);
    if (byte < 0 || strchr("\"\\/bfnrtu", byte) == NULL || byte == 0)
        return wrong(c, "unknown escape in a string");
    c->at++;
    if (byte != 'u')
        return ERROR_NONE;
    int value = eat_hex(c);
    if (value < 0)
        return wrong(c, "four hexadecimal digits are expected after \\u");
    if (value == 0)
        return wrong(c, "\\u0000 is not allowed in a string");
    if (value >= 0xdc00 && value <= 0xdfff)
        return wrong(c, "lone surrogate in a string");
    if (value >= 0xd800 && value <= 0xdbff) {
        int low = eat(c, '\\') && eat(c, 'u') ? eat_hex(c) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return wrong(c, "lone surrogate in a string");
    }
    return ERROR_NONE;
}

static enum error_code scan_string(struct cursor *c)
{
    if (!eat(c, '"'))
        return wrong(c, "a string is expected");
    for (;;) {
        int byte = peek(c);
        if (byte < 0)
            return wrong(c, "the string does not end");
        if (byte < 0x20)
            return wrong(c, "control character in a string");
        c->at++;
        if (byte == '"')
            return ERROR_NONE;
        if (byte == '\\' && scan_escape(c) != ERROR_NONE)
            return ERROR_FORMAT;
    }
}

static enum error_code scan_word(struct cursor *c, const char *word)
{
    size_t length = strlen(word);
    if (c->length - c->at < length || memcmp(c->text + c->at, word, length) != 0)
        return wrong(c, "a value is expected");
    c->at += length;
    return ERROR_NONE;
}

static enum error_code scan_value(struct cursor *c, size_t depth);

/* An object or an array; `depth` counts it. */
static enum error_code scan_container(struct cursor *c, size_t depth)
{
    bool object = peek(c) == '{';
    char end = object ? '}' : ']';
    if (depth > c->max_depth)
        return error_set(c->err, ERROR_FORMAT, "JSON at byte %zu: nested deeper than %zu levels", c->at, c->max_depth);
    c->at++;
    skip_blanks(c);
    if (eat(c, end))
        return ERROR_NONE;
    for (;;) {
        if (object) {
            if (scan_string(c) != ERROR_NONE)
                return ERROR_FORMAT;
            skip_blanks(c);
            if (!eat(c, ':'))
                return wrong(c, "':' is expected");
            skip_blanks(c);
        }
        enum error_code code = scan_value(c, depth);
        if (code != ERROR_NONE)
            return code;
        skip_blanks(c);
        if (eat(c, end))
            return ERROR_NONE;
        if (!eat(c, ','))
            return wrong(c, object ? "',' or '}' is expected" : "',' or ']' is expected");
        skip_blanks(c);
    }
}

static enum error_code scan_value(struct cursor *c, size_t depth)
{
    if (c->values++ >= c->max_values)
        return error_set(c->err, ERROR_TOO_LARGE,
                         "JSON at byte %zu: more than %zu values (objects, arrays, texts, numbers)", c->at,
                         c->max_values);
    switch (peek(c)) {
    case '{':
    case '[':
        return scan_container(c, depth + 1);
    case '"':
        return scan_string(c);
    case 't':
        return scan_word(c, "true");
    case 'f':
        return scan_word(c, "false");
    case 'n':
        return scan_word(c, "null");
    default:
        if (peek(c) == '-' || is_digit(peek(c)))
            return scan_number(c);
        return wrong(c, c->at == c->length ? "it ends where a value is expected" : "a value is expected");
    }
}

enum error_code json_scan(const char *text, size_t length, size_t max_depth, size_t max_values, struct error *err)
{
    struct cursor c = {
        .text = text, .length = length, .at = 0, .max_depth = max_depth, .max_values = max_values, .err = err};
    if (!text_is_utf8(text, length))
        return error_set(err, ERROR_FORMAT, "JSON of %zu bytes: not valid UTF-8", length);
    skip_blanks(&c);
    enum error_code code = scan_value(&c, 0);
    if (code != ERROR_NONE)
        return code;
    skip_blanks(&c);
    if (c.at != length)
        return wrong(&c, "text after the value");
    return ERROR_NONE;
}
