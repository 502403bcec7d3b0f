#include "analysis/audit_reasons.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { EXAMPLES_KEPT = 3 };

static const struct {
    const char *what, *remedy;
} texts[] = {
#define X(kind, what, remedy) [AUDIT_REASON_##kind] = {what, remedy},
#include "analysis/audit_reasons.def"
#undef X
};

void audit_reasons_init(struct audit_reasons *reasons)
{
    *reasons = (struct audit_reasons){0};
}

void audit_reasons_fini(struct audit_reasons *reasons)
{
    for (size_t i = 0; i < AUDIT_REASON_COUNT; i++)
        buffer_fini(&reasons->kinds[i].text);
}

bool audit_reasons_wants(const struct audit_reasons *reasons, enum audit_reason kind)
{
    return reasons->kinds[kind].examples < EXAMPLES_KEPT;
}

void audit_reasons_add(struct audit_reasons *reasons, enum audit_reason kind, uint64_t count, const char *format, ...)
{
    reasons->kinds[kind].count += count;
    if (!audit_reasons_wants(reasons, kind)) {
        reasons->kinds[kind].more = true;
        return;
    }
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (text[0] == '\0')
        return;
    struct buffer *buffer = &reasons->kinds[kind].text;
    if (buffer->data == NULL)
        buffer_init(buffer);
    if (reasons->kinds[kind].examples++ > 0)
        buffer_text(buffer, ", ");
    buffer_text(buffer, text);
}

void audit_reasons_write(const struct audit_reasons *reasons, struct list *ret_list)
{
    for (size_t i = 0; i < AUDIT_REASON_COUNT; i++) {
        uint64_t count = reasons->kinds[i].count;
        if (count == 0)
            continue;
        struct buffer line;
        buffer_init(&line);
        buffer_text(&line, texts[i].what);
        if (count > 1)
            buffer_format(&line, " (%" PRIu64 ")", count);
        if (reasons->kinds[i].examples > 0)
            buffer_format(&line, ": %s%s", reasons->kinds[i].text.data, reasons->kinds[i].more ? ", ..." : "");
        buffer_format(&line, "; %s", texts[i].remedy);
        list_add(ret_list, line.data);
        buffer_fini(&line);
    }
}
