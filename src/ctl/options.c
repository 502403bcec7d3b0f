#include "ctl/options.h"

#include "sys/file.h"

#include <errno.h>
#include <sys/random.h>

enum error_code options_read(int argc, char *const *argv, const struct settings_texts *defaults,
                             struct settings *ret_settings, int *ret_rest, struct error *err)
{
    struct settings_texts arguments = {0}, file = {0};
    struct buffer bytes;
    int rest = 0;
    uint64_t randomness = 0;
    enum error_code code = ERROR_NONE;
    if (getrandom(&randomness, sizeof randomness, 0) < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "random numbers");
    settings_parse_arguments(argc, argv, &arguments, &rest);
    const char *path = settings_config_path(&arguments);
    if (path != NULL) {
        buffer_init(&bytes);
        code = file_read(path, SETTINGS_FILE_MAX, &bytes, err);
        if (code == ERROR_NONE)
            settings_parse_file(path, bytes.data, bytes.length, &file);
        else
            error_prefix(err, "--config");
        buffer_fini(&bytes);
    }
    if (defaults != NULL)
        settings_add_defaults(&file, defaults);
    if (code == ERROR_NONE)
        code = settings_resolve(&arguments, &file, randomness, ret_settings, err);
    if (code == ERROR_NONE)
        *ret_rest = rest;
    settings_texts_fini(&arguments);
    settings_texts_fini(&file);
    return code;
}

size_t options_rows(const char *texts[SETTINGS_COUNT], struct command_option rows[SETTINGS_COUNT])
{
    size_t count = 0;
    for (int id = 0; id < SETTINGS_COUNT; id++)
        if (settings_flag((enum settings_id)id)[0] != '\0')
            rows[count++] = (struct command_option){.name = settings_flag((enum settings_id)id), .value = &texts[id]};
    return count;
}

void options_words(const char *const texts[SETTINGS_COUNT], struct list *ret_words)
{
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        if (texts[id] == NULL)
            continue;
        list_add_format(ret_words, "--%s", settings_flag((enum settings_id)id));
        list_add(ret_words, texts[id]);
    }
}
