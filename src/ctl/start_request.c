#include "ctl/start_request.h"
#include "base/buffer.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/client.h"
#include "json/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRAME_ROOM = 256 /* of the request around its parameters */, NAME_MAX_BYTES = 60, NAMES_MAX = 8, LARGEST = 3 };

static const char other_way[] = "or use 'kldumpctl run', which needs no kldumpd";

/* Of "NAME=VALUE", safe to show. */
static const char *name_of(const char *variable, char text[NAME_MAX_BYTES])
{
    return text_clean(variable, strcspn(variable, "="), text, NAME_MAX_BYTES);
}

static enum error_code refuse_variables(const struct buffer *names, size_t count, const char *first, struct error *err)
{
    return error_set(err, ERROR_BAD_VALUE,
                     "the environment variable%s %s %s not UTF-8, and kldumpd takes nothing else; set %s anew or leave "
                     "%s out (env -u %s kldumpctl start ...), %s",
                     count > 1 ? "s" : "", names->data, count > 1 ? "are" : "is", count > 1 ? "them" : "it",
                     count > 1 ? "them" : "it", first, other_way);
}

static enum error_code check_environment(struct error *err)
{
    char name[NAME_MAX_BYTES], first[NAME_MAX_BYTES] = "";
    size_t count = 0;
    struct buffer names;
    buffer_init(&names);
    for (char **e = environ; *e != NULL; e++) {
        if (text_is_utf8(*e, strlen(*e)))
            continue;
        if (count == 0)
            name_of(*e, first);
        if (count < NAMES_MAX)
            buffer_format(&names, "%s%s", count > 0 ? ", " : "", name_of(*e, name));
        else if (count == NAMES_MAX)
            buffer_text(&names, ", ...");
        count++;
    }
    enum error_code code = count > 0 ? refuse_variables(&names, count, first, err) : ERROR_NONE;
    buffer_fini(&names);
    return code;
}

static enum error_code check_text(const char *what, const char *text, struct error *err)
{
    char clean[200];
    if (text_is_utf8(text, strlen(text)))
        return ERROR_NONE;
    return error_set(err, ERROR_BAD_VALUE, "%s '%s' is not UTF-8, and kldumpd takes nothing else; rename it, %s", what,
                     text_clean(text, strlen(text), clean, sizeof clean), other_way);
}

/* ---- the size ---- */

/* The largest ones, in order; returns how many. */
static size_t find_largest(const char *largest[LARGEST])
{
    size_t count = 0;
    for (char **e = environ; *e != NULL; e++) {
        size_t at = count;
        while (at > 0 && strlen(largest[at - 1]) < strlen(*e))
            at--;
        if (at == LARGEST)
            continue;
        count = count < LARGEST ? count + 1 : LARGEST;
        memmove(&largest[at + 1], &largest[at], (count - 1 - at) * sizeof largest[0]);
        largest[at] = *e;
    }
    return count;
}

static enum error_code refuse_size(int argc, char **argv, size_t bytes, struct error *err)
{
    const char *largest[LARGEST];
    char size[SIZE_TEXT], limit[SIZE_TEXT], name[NAME_MAX_BYTES] = "NAME";
    size_t command_bytes = 0, count = find_largest(largest);
    struct buffer parts;
    for (int i = 0; i < argc; i++)
        command_bytes += strlen(argv[i]) + 1;
    buffer_init(&parts);
    buffer_format(&parts, "the command %s", size_text(command_bytes, size));
    for (size_t i = 0; i < count; i++)
        buffer_format(&parts, ", %s %s", name_of(largest[i], name), size_text(strlen(largest[i]), size));
    if (count > 0)
        name_of(largest[0], name);
    error_set(err, ERROR_BAD_VALUE,
              "command and environment come to %s, and kldumpd takes %s; largest: %s; leave out what CMD does not need "
              "(env -u %s kldumpctl start ...), %s",
              size_text(bytes, size), size_text(CLIENT_FRAME_MAX, limit), parts.data, name, other_way);
    buffer_fini(&parts);
    return err->code;
}

static enum error_code check_size(int argc, char **argv, const struct json *parameters, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    json_print(parameters, &text);
    enum error_code code = ERROR_NONE;
    if (text.length > CLIENT_FRAME_MAX - FRAME_ROOM)
        code = refuse_size(argc, argv, text.length, err);
    explicit_bzero(text.data, text.length); /* keys of the environment */
    buffer_fini(&text);
    return code;
}

/* ---- all of it ---- */

static struct json *make(int argc, char **argv, const char *directory)
{
    struct json *parameters = json_object();
    struct json *arguments = json_set_array(parameters, "arguments");
    for (int i = 0; i < argc; i++)
        json_append_string(arguments, argv[i]);
    struct json *environment = json_set_array(parameters, "environment");
    for (char **e = environ; *e != NULL; e++)
        json_append_string(environment, *e);
    json_set_string(parameters, "directory", directory);
    mode_t mask = umask(077);
    umask(mask);
    json_set_u64(parameters, "umask", mask);
    return parameters;
}

enum error_code start_request_make(int argc, char **argv, struct json **ret_parameters, struct error *err)
{
    struct error own = ERROR_INIT;
    err = err != NULL ? err : &own;
    char *directory = getcwd(NULL, 0);
    if (directory == NULL)
        return error_set_errno(err, ERROR_SYSTEM, errno, "the working folder cannot be told");
    enum error_code code = check_environment(err);
    if (code == ERROR_NONE)
        code = check_text("the working folder", directory, err);
    for (int i = 0; i < argc && code == ERROR_NONE; i++)
        code = check_text("the argument", argv[i], err);
    if (code == ERROR_NONE) {
        struct json *parameters = make(argc, argv, directory);
        code = check_size(argc, argv, parameters, err);
        if (code == ERROR_NONE)
            *ret_parameters = parameters;
        else
            json_free(parameters);
    }
    free(directory);
    return code;
}
