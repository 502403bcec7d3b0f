/* Two results of the same requests, side by side: what differs in tokens, logprobs and their classes. Plain data in,
 * plain data out; bits, no tolerance. Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AB_SERIES = 2 };

/* One request of one path. A series holds a logprob for each id, NaN where there is none. */
struct ab_request {
    const char *rid;
    uint64_t cached; /* tokens found in the prefix cache */
    uint64_t first;  /* absolute position of ids[0] */
    size_t count;
    int64_t *ids;              /* [count] */
    double *values[AB_SERIES]; /* [count]; NULL: the result has no such series */
    bool dropped;              /* it does not count in its result */
};

struct ab_path {
    const char *name, *grade; /* grade NULL: the result has none */
    struct ab_request *requests;
    size_t count;
};

/* Logprobs are compared up to the first id that differs: behind it the context is another. */
struct ab_change {
    size_t compared;      /* ids of both that are equal and have equal ones before them */
    size_t behind;        /* the first other id and all behind it */
    size_t values;        /* of `compared`, those with another logprob in some series */
    size_t classes;       /* of `compared`, those of another class: of the two series against each other */
    double largest;       /* of the differences of logprobs; infinite for NaN against a number */
    uint64_t position;    /* the first that differs; UINT64_MAX: none */
    bool cached, dropped; /* differ */
};
void ab_compare(const struct ab_request *a, const struct ab_request *b, struct ab_change *ret_change);
bool ab_changed(const struct ab_change *change);

struct ab_path_change {
    struct ab_change *requests; /* [count] */
    size_t count, changed;
    struct ab_change sum; /* position: of the request `first` */
    size_t first;         /* the first request that changed; SIZE_MAX: none */
};
/* Both have as many requests. */
void ab_compare_path(const struct ab_path *a, const struct ab_path *b, struct ab_path_change *ret_change);
void ab_path_change_fini(struct ab_path_change *change); /* also of a zeroed one */
