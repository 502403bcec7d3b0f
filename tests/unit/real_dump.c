#include "real_dump.h"

#include "base/memory.h"
#include "dump_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *real_dump_unpack(const char *name)
{
    const char *source = getenv("srcdir");
    char *folder = dump_files_folder();
    char *command =
        memory_format("tar -xzf '%s/tests/data/real/%s.tar.gz' -C '%s'", source != NULL ? source : ".", name, folder);
    assert_int_equal(system(command), 0);
    free(command);
    return folder;
}

struct json *real_dump_truth(const char *folder, const char *name)
{
    char *path = memory_format("%s/%s/truth.json", folder, name), *text = memory_new(1 << 20);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, 1 << 20, file);
    fclose(file);
    struct json *truth;
    struct error err = ERROR_INIT;
    if (json_parse(text, length, (struct json_limits){1 << 20, JSON_DEPTH, JSON_ANY_VALUES}, &truth, &err) !=
        ERROR_NONE)
        fail_msg("%s: %s", path, err.message);
    free(text);
    free(path);
    return truth;
}

int64_t real_dump_number(const struct json *object, const char *key)
{
    int64_t value;
    assert_int_equal(json_get_i64(object, key, &value, NULL), ERROR_NONE);
    return value;
}
