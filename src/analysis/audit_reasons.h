/* Collects what is wrong with a dump: one sentence a kind, with a count, the first examples and the remedy. */
#pragma once

#include "base/buffer.h"
#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

enum audit_reason {
#define X(kind, what, remedy) AUDIT_REASON_##kind,
#include "analysis/audit_reasons.def"
#undef X
    AUDIT_REASON_COUNT
};

struct audit_reasons {
    struct {
        uint64_t count;
        unsigned examples;
        bool more;          /* there were more of them than are kept */
        struct buffer text; /* of the examples */
    } kinds[AUDIT_REASON_COUNT];
};

void audit_reasons_init(struct audit_reasons *reasons);
void audit_reasons_fini(struct audit_reasons *reasons);

/* Counts `count` cases; the text is kept while it is among the first few. An empty text is counted only. */
void audit_reasons_add(struct audit_reasons *reasons, enum audit_reason kind, uint64_t count, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* True while another text of this kind would be kept: the caller may then find out more. */
bool audit_reasons_wants(const struct audit_reasons *reasons, enum audit_reason kind);

/* Appends the sentences, in the order of the table. */
void audit_reasons_write(const struct audit_reasons *reasons, struct list *ret_list);
