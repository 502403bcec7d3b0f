#include "analysis/ab.h"

#include "analysis/kl.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two NaNs stand for one and the same null. */
static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static double distance(double a, double b)
{
    return isnan(a) || isnan(b) ? INFINITY : fabs(a - b);
}

/* Whether some series has another value at k; what differs goes into the change. */
static bool compare_values(const struct ab_request *a, const struct ab_request *b, size_t k, struct ab_change *change)
{
    bool differs = false;
    for (size_t s = 0; s < AB_SERIES; s++) {
        const double *of_a = a->values[s], *of_b = b->values[s];
        if (of_a == NULL || of_b == NULL || same_bits(of_a[k], of_b[k]))
            continue;
        double d = distance(of_a[k], of_b[k]);
        differs = true;
        if (d > change->largest)
            change->largest = d;
    }
    return differs;
}

static bool both_series(const struct ab_request *request)
{
    return request->values[0] != NULL && request->values[1] != NULL;
}

static enum kl_class class_at(const struct ab_request *request, size_t k)
{
    return kl_class_of(request->values[0][k], request->values[1][k]);
}

void ab_compare(const struct ab_request *a, const struct ab_request *b, struct ab_change *ret_change)
{
    struct ab_change change = {
        .position = UINT64_MAX, .cached = a->cached != b->cached, .dropped = a->dropped != b->dropped};
    size_t shorter = a->count < b->count ? a->count : b->count, longer = a->count + b->count - shorter;
    bool classes = both_series(a) && both_series(b);
    while (change.compared < shorter && a->first == b->first && a->ids[change.compared] == b->ids[change.compared]) {
        size_t k = change.compared++;
        if (classes && class_at(a, k) != class_at(b, k))
            change.classes++;
        if (!compare_values(a, b, k, &change))
            continue;
        change.values++;
        if (change.position == UINT64_MAX)
            change.position = a->first + k;
    }
    change.behind = longer - change.compared;
    if (change.behind > 0 && change.position == UINT64_MAX)
        change.position = a->first + change.compared;
    *ret_change = change;
}

bool ab_changed(const struct ab_change *change)
{
    return change->values > 0 || change->behind > 0 || change->cached || change->dropped;
}

void ab_compare_path(const struct ab_path *a, const struct ab_path *b, struct ab_path_change *ret_change)
{
    struct ab_path_change all = {.requests = memory_new((a->count + 1) * sizeof all.requests[0]),
                                 .count = a->count,
                                 .first = SIZE_MAX,
                                 .sum.position = UINT64_MAX};
    for (size_t i = 0; i < a->count; i++) {
        struct ab_change *one = &all.requests[i];
        ab_compare(&a->requests[i], &b->requests[i], one);
        all.sum.compared += one->compared;
        all.sum.behind += one->behind;
        all.sum.values += one->values;
        all.sum.classes += one->classes;
        all.sum.largest = fmax(all.sum.largest, one->largest);
        all.sum.cached = all.sum.cached || one->cached;
        all.sum.dropped = all.sum.dropped || one->dropped;
        if (!ab_changed(one))
            continue;
        if (all.changed++ == 0) {
            all.first = i;
            all.sum.position = one->position;
        }
    }
    *ret_change = all;
}

void ab_path_change_fini(struct ab_path_change *change)
{
    free(change->requests);
    *change = (struct ab_path_change){0};
}
