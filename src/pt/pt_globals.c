#include "pt/pt_globals.h"
#include "pt/pt_dtype.h"

#include <string.h>

struct row {
    uint8_t meaning, detail, module_length, name_length;
    const char *module, *name;
};

static const struct row rows[] = {
#define X(meaning, detail, module, name) \
    {PT_PICKLE_MEANS_##meaning, detail, sizeof(module) - 1, sizeof(name) - 1, module, name},
#include "pt/pt_globals.def"
#undef X
#define X(constant, name, bytes, kind, descr) \
    {PT_PICKLE_MEANS_DTYPE, PT_DTYPE_##constant, sizeof("torch") - 1, sizeof(name) - 1, "torch", name},
#include "pt/pt_dtype.def"
#undef X
};

static bool is_below(const struct row *row, const char *module, size_t length)
{
    return row->name[0] == '*' && length > row->module_length && module[row->module_length] == '.' &&
           memcmp(module, row->module, row->module_length) == 0;
}

static bool fits(const struct row *row, const char *module, size_t module_length, const char *name, size_t name_length)
{
    if (row->module_length != module_length)
        return is_below(row, module, module_length);
    if (row->name[0] != '*' && (row->name_length != name_length || memcmp(row->name, name, name_length) != 0))
        return false;
    return memcmp(row->module, module, module_length) == 0;
}

enum pt_pickle_meaning pt_globals_find(const char *module, size_t module_length, const char *name, size_t name_length,
                                       uint8_t *ret_detail)
{
    static const char python2[] = "__builtin__", python3[] = "builtins";
    if (module_length == sizeof python2 - 1 && memcmp(module, python2, module_length) == 0) {
        module = python3;
        module_length = sizeof python3 - 1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (fits(&rows[i], module, module_length, name, name_length)) {
            *ret_detail = rows[i].detail;
            return rows[i].meaning;
        }
    return PT_PICKLE_MEANS_NOTHING;
}
