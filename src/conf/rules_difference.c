#include "base/buffer.h"
#include "conf/rules_table.h"

#include <inttypes.h>
#include <string.h>

/* In the largest unit that tells it exactly, as it would be written in the file. */
static void add_size(struct buffer *out, const struct size *size)
{
    static const char units[] = "BKMGT";
    uint64_t value = size->value;
    size_t unit = 0;
    if (size->percent && value % 1000 != 0) {
        buffer_format(out, "%" PRIu64 ".%03" PRIu64 "%%", value / 1000, value % 1000);
    } else if (size->percent) {
        buffer_format(out, "%" PRIu64 "%%", value / 1000);
    } else {
        for (; value > 0 && value % 1024 == 0 && units[unit + 1] != '\0'; unit++)
            value /= 1024;
        buffer_format(out, "%" PRIu64 "%c", value, units[unit]);
    }
}

static void add_value(struct buffer *out, enum rules_id id, const void *field)
{
    const struct list *words = field;
    const struct size *size = field;
    uint64_t number = 0;
    size_t before = out->length;
    switch (rules_table[id].type) {
    case RULES_TYPE_NAMES:
    case RULES_TYPE_PATHS:
        for (size_t i = 0; i < words->count; i++)
            buffer_format(out, "%s%s", i > 0 ? " " : "", words->items[i]);
        break;
    case RULES_TYPE_COUNT:
        buffer_format(out, "%" PRIu64, *(const uint64_t *)field);
        break;
    case RULES_TYPE_SIZE:
        number = *(const uint64_t *)field;
        if (number > 0)
            add_size(out, &(struct size){.value = number});
        break;
    case RULES_TYPE_SIZE_OR_PERCENT:
        if (size->value > 0)
            add_size(out, size);
        break;
    }
    if (out->length == before)
        buffer_text(out, "none");
}

static void compare(enum rules_id id, const void *before, const void *after, const char *path, struct list *lines)
{
    const struct rules_row *row = &rules_table[id];
    struct buffer old, new;
    buffer_init(&old);
    buffer_init(&new);
    add_value(&old, id, before);
    add_value(&new, id, after);
    if (strcmp(old.data, new.data) != 0)
        list_add_format(lines, "%s.%s%s%s: %s -> %s", row->section, row->key, path != NULL ? " of " : "",
                        path != NULL ? path : "", old.data, new.data);
    buffer_fini(&old);
    buffer_fini(&new);
}

static const struct rules_filesystem *find(const struct rules *rules, const char *path)
{
    static const struct rules_filesystem none;
    for (size_t i = 0; i < rules->filesystem_count; i++)
        if (strcmp(rules->filesystem[i].path, path) == 0)
            return &rules->filesystem[i];
    return &none;
}

static void compare_filesystems(const struct rules_filesystem *before, const struct rules_filesystem *after,
                                const char *path, struct list *lines)
{
    for (int id = 0; id < RULES_COUNT; id++)
        if (strcmp(rules_table[id].section, "filesystem") == 0)
            compare((enum rules_id)id, rules_field(NULL, (struct rules_filesystem *)before, (enum rules_id)id),
                    rules_field(NULL, (struct rules_filesystem *)after, (enum rules_id)id), path, lines);
}

void rules_difference(const struct rules *before, const struct rules *after, struct list *ret_lines)
{
    for (int id = 0; id < RULES_COUNT; id++)
        if (strcmp(rules_table[id].section, "filesystem") != 0)
            compare((enum rules_id)id, rules_field((struct rules *)before, NULL, (enum rules_id)id),
                    rules_field((struct rules *)after, NULL, (enum rules_id)id), NULL, ret_lines);
    for (size_t i = 0; i < before->filesystem_count; i++)
        compare_filesystems(&before->filesystem[i], find(after, before->filesystem[i].path), before->filesystem[i].path,
                            ret_lines);
    for (size_t i = 0; i < after->filesystem_count; i++)
        if (find(before, after->filesystem[i].path)->path == NULL)
            compare_filesystems(find(before, ""), &after->filesystem[i], after->filesystem[i].path, ret_lines);
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        const char *old = before->defaults.text[id], *new = after->defaults.text[id];
        if (old != new && (old == NULL || new == NULL || strcmp(old, new) != 0))
            list_add_format(ret_lines, "defaults.%s: %s -> %s", settings_key((enum settings_id)id),
                            old != NULL ? old : "none", new != NULL ? new : "none");
    }
}
