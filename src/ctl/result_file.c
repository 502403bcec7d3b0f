#include "ctl/result_file.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RESULT_MAX = 1024 * 1024 * 1024 };

bool result_file_is(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

enum error_code result_file_read(const char *path, const char *schema, struct json **ret_json, struct error *err)
{
    static const struct json_limits limits = {RESULT_MAX, JSON_DEPTH, JSON_ANY_VALUES};
    struct buffer text;
    struct json *json = NULL;
    const char *found = "";
    buffer_init(&text);
    enum error_code code = file_read(path, RESULT_MAX, &text, err);
    if (code == ERROR_NONE) {
        code = json_parse(text.data, text.length, limits, &json, err);
        if (code != ERROR_NONE)
            error_prefix(err, "'%s' is no result of kldump", path);
    }
    buffer_fini(&text);
    if (code == ERROR_NONE && json_type(json) == JSON_OBJECT)
        json_optional_string(json, "schema", "", &found, NULL);
    if (code == ERROR_NONE && !text_starts(found, schema))
        code = error_set(err, ERROR_USAGE, "'%s' has the schema '%.60s'; expected one that begins with '%s'", path,
                         found, schema);
    if (code == ERROR_FORMAT) {
        code = ERROR_USAGE;
        if (err != NULL)
            err->code = code;
    }
    if (code == ERROR_NONE)
        *ret_json = json;
    else
        json_free(json);
    return code;
}

enum error_code result_file_foresee(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? memory_copy(".") : memory_format("%.*s/", (int)(slash - path), path);
    struct stat status;
    int problem = 0;
    if (path[0] == '\0')
        problem = ENOENT;
    else if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        problem = EISDIR;
    else if (access(folder, W_OK | X_OK) != 0)
        problem = errno;
    free(folder);
    return problem == 0 ? ERROR_NONE
                        : error_set(err, ERROR_BAD_VALUE, "'%s' cannot be written: %s", path, strerror(problem));
}

enum error_code result_file_write(const char *path, const struct json *json, mode_t mode, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    json_print(json, &text);
    buffer_text(&text, "\n");
    enum error_code code = file_replace(path, text.data, text.length, mode, FILE_NO_SYNC, err);
    buffer_fini(&text);
    return code;
}
