#include "loop/guard_log.h"
#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"

#include <stdlib.h>

enum error_code guard_log_start(struct guard *guard, struct error *err)
{
    return sink_add_log(guard->sink, guard->plan.log_path, SINK_LOG_BYTES, &guard->log_target, err);
}

void guard_log_append(struct guard *guard, const char *data, size_t length)
{
    sink_append(guard->sink, guard->log_target, data, length);
}

uint64_t guard_log_end(const struct guard *guard)
{
    struct sink_log log;
    sink_get_log(guard->sink, guard->log_target, &log);
    return log.end;
}

void guard_log_read(struct guard *guard, uint64_t *offset, size_t most, struct buffer *text)
{
    struct sink_log log;
    sink_get_log(guard->sink, guard->log_target, &log);
    if (*offset < log.first)
        *offset = log.first;
    if (*offset >= log.end)
        return;
    size_t wanted = log.end - *offset < most ? (size_t)(log.end - *offset) : most;
    if (*offset < log.current) { /* in the older half */
        char *older = memory_format("%s.1", guard->plan.log_path);
        size_t there = log.current - *offset < wanted ? (size_t)(log.current - *offset) : wanted;
        file_read_part(older, (off_t)(*offset - log.first), there, text, NULL);
        free(older);
    } else {
        file_read_part(guard->plan.log_path, (off_t)(*offset - log.current), wanted, text, NULL);
    }
    if (*offset + text->length < log.end || guard->run.state != RUN_ENDED) {
        text->length -= text_unfinished(text->data, text->length);
        text->data[text->length] = '\0';
    }
}
