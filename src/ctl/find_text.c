/* Events and server output of a run: asked for where it lives, read from its folder where it does not. */
#include "base/memory.h"
#include "base/text.h"
#include "ctl/find.h"
#include "sys/file.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 64 * 1024 * 1024, END_PATIENCE_MS = 15000 };

static struct json *events_after(const struct json *events, uint64_t after)
{
    struct json *chosen = json_array();
    for (const struct json *e = json_first(events); e != NULL; e = json_next(e)) {
        uint64_t number = 0;
        if (json_get_u64(e, "n", &number, NULL) == ERROR_NONE && number > after)
            json_append(chosen, json_copy(e));
    }
    return chosen;
}

/* The state of a run that has ended is final; a guard that does not say so is asked. */
static bool says_ended(const struct json *result)
{
    bool ended = false;
    return json_optional_bool(result, "ended", false, &ended, NULL) == ERROR_NONE && ended;
}

enum error_code find_events(struct find *find, uint64_t after, uint64_t wait_ms, struct json **ret_events,
                            uint64_t *ret_next, bool *ret_ended, struct error *err)
{
    struct json *result = NULL;
    const struct json *events = NULL;
    if (find->client == NULL) {
        enum error_code code = json_get_array(find->record, "events", &events, err);
        if (code != ERROR_NONE)
            return error_prefix(err, "record of run %s", find->name);
        *ret_events = events_after(events, after);
        *ret_next = UINT64_MAX;
        *ret_ended = true;
        return ERROR_NONE;
    }
    struct json *parameters = json_object();
    json_set_u64(parameters, "after", after);
    json_set_u64(parameters, "wait_ms", wait_ms);
    enum error_code code = find_call(find, "events", parameters, CLIENT_PATIENCE_MS + (int64_t)wait_ms, &result, err);
    uint64_t next = after;
    if (code == ERROR_NONE)
        code = json_get_array(result, "events", &events, err);
    if (code == ERROR_NONE)
        code = json_get_u64(result, "next", &next, err);
    if (code == ERROR_NONE) {
        *ret_events = json_copy(events);
        *ret_next = next;
        *ret_ended = says_ended(result);
    }
    json_free(result);
    return code;
}

/* The older half of the output lies in server.log.1; `offset` counts from the first byte that is kept. */
static enum error_code logs_of_dead(const struct find *find, uint64_t offset, struct buffer *text, uint64_t *ret_next,
                                    struct error *err)
{
    static const char *const names[] = {"server.log.1", "server.log"};
    struct buffer all;
    buffer_init(&all);
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < 2 && code == ERROR_NONE; i++) {
        char *path = memory_format("%s/%s", find->folder, names[i]);
        code = file_read(path, LOG_MAX, &all, err);
        code = code == ERROR_NOT_FOUND ? ERROR_NONE : code;
        free(path);
    }
    if (code == ERROR_NONE) {
        if (offset < all.length)
            buffer_append(text, all.data + offset, all.length - offset);
        *ret_next = all.length;
    }
    buffer_fini(&all);
    return code;
}

enum error_code find_logs(struct find *find, uint64_t offset, uint64_t wait_ms, struct buffer *text, uint64_t *ret_next,
                          bool *ret_ended, struct error *err)
{
    struct json *result = NULL;
    const char *part = NULL;
    if (find->client == NULL) {
        *ret_ended = true;
        return logs_of_dead(find, offset, text, ret_next, err);
    }
    struct json *parameters = json_object();
    json_set_u64(parameters, "offset", offset);
    json_set_u64(parameters, "wait_ms", wait_ms);
    enum error_code code = find_call(find, "logs", parameters, CLIENT_PATIENCE_MS + (int64_t)wait_ms, &result, err);
    uint64_t next = offset;
    if (code == ERROR_NONE)
        code = json_get_string(result, "text", &part, err);
    if (code == ERROR_NONE)
        code = json_get_u64(result, "next_offset", &next, err);
    if (code == ERROR_NONE) {
        buffer_text(text, part);
        *ret_next = next;
        *ret_ended = says_ended(result);
    }
    json_free(result);
    return code;
}

/* All of the output, appended to *all, of which `keep` bytes at the end stay. */
static enum error_code read_all(struct find *find, size_t keep, struct buffer *all, struct error *err)
{
    uint64_t offset = 0, next = 0;
    bool ended = false;
    for (;;) {
        enum error_code code = find_logs(find, offset, 0, all, &next, &ended, err);
        if (code == ERROR_UNREACHABLE && !find->relayed && find_again(find, END_PATIENCE_MS, NULL) == ERROR_NONE) {
            /* the guard has ended in this moment: what it kept lies in the folder */
            buffer_clear(all);
            offset = next = 0;
            continue;
        }
        if (code != ERROR_NONE || next <= offset)
            return code;
        offset = next;
        if (all->length > keep)
            buffer_consume(all, all->length - keep);
        if (find->client == NULL)
            return ERROR_NONE;
    }
}

enum error_code find_whole_log(struct find *find, struct buffer *text, struct error *err)
{
    struct buffer all;
    buffer_init(&all);
    enum error_code code = read_all(find, SIZE_MAX, &all, err);
    if (code == ERROR_NONE)
        buffer_append(text, all.data, all.length);
    buffer_fini(&all);
    return code;
}

void find_last_lines(struct find *find, size_t lines, struct buffer *text)
{
    struct buffer all;
    buffer_init(&all);
    read_all(find, LOG_MAX / 64, &all, NULL);
    while (all.length > 0 && all.data[all.length - 1] == '\n')
        all.data[--all.length] = '\0';
    size_t at = all.length;
    for (size_t found = 0; at > 0; at--)
        if (all.data[at - 1] == '\n' && ++found == lines)
            break;
    if (all.length > at) {
        buffer_append(text, all.data + at, all.length - at);
        buffer_text(text, "\n");
    }
    buffer_fini(&all);
}
