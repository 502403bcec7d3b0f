#include "analysis/kl.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double kl_thresholds[KL_THRESHOLDS] = {1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1};

/* One ULP of float32 at a logprob of 8 is 9.5e-7: the fixed limit alone has no room there. */
static const double STRAY_LIMIT = 1e-6;
enum { STRAY_ULPS = 4 };
static const double NOISE_LIMIT = 1e-9;   /* of a path's mean k3 */
static const double SERIES_LIMIT = 0.125; /* |d| below which exp(d) - 1 - d is summed as a series */
enum { SERIES_TERMS = 14 };

/* ---- one token ---- */

static double ulp_of_single(double value)
{
    float single = (float)fabs(value);
    return (double)nextafterf(single, INFINITY) - (double)single;
}

enum kl_class kl_class_of(double a, double b)
{
    if (memcmp(&a, &b, sizeof a) == 0)
        return KL_CLASS_EQUAL;
    double ulps = STRAY_ULPS * ulp_of_single(fmax(fabs(a), fabs(b)));
    return fabs(a - b) <= fmax(STRAY_LIMIT, ulps) ? KL_CLASS_STRAY : KL_CLASS_BEYOND;
}

/* d^2/2! + d^3/3! + ...: taking 1 and d from exp(d) would leave nothing of a small d but rounding. */
double kl_k3(double a, double b)
{
    if (memcmp(&a, &b, sizeof a) == 0)
        return 0;
    double d = a - b;
    if (!(fabs(d) < SERIES_LIMIT))
        return expm1(d) - d;
    double sum = 0;
    for (int n = SERIES_TERMS; n >= 3; n--)
        sum = (sum + 1) * d / n;
    return (sum + 1) * d * d / 2;
}

/* ---- grades ---- */

const char *kl_grade_word(enum kl_grade grade)
{
    static const char *const words[] = {"not measured", "bit-equal", "stray", "noise", "nonzero"};
    return words[grade];
}

bool kl_grade_clean(enum kl_grade grade)
{
    return grade == KL_GRADE_BIT_EQUAL || grade == KL_GRADE_STRAY;
}

static enum kl_grade grade_of(const struct kl_path *path)
{
    if (path->tokens == 0)
        return KL_GRADE_NOT_MEASURED;
    if (path->beyond == 0)
        return path->stray == 0 ? KL_GRADE_BIT_EQUAL : KL_GRADE_STRAY;
    return path->mean < NOISE_LIMIT ? KL_GRADE_NOISE : KL_GRADE_NONZERO;
}

/* ---- a path ---- */

static void count_token(struct kl_request_numbers *numbers, const struct kl_request *request, size_t i)
{
    double a = request->a[i], b = request->b[i], k3 = kl_k3(a, b);
    enum kl_class class = kl_class_of(a, b);
    numbers->bit_equal += class == KL_CLASS_EQUAL;
    numbers->stray += class == KL_CLASS_STRAY;
    numbers->beyond += class == KL_CLASS_BEYOND;
    if (class == KL_CLASS_BEYOND && numbers->first_beyond == SIZE_MAX)
        numbers->first_beyond = request->first + i;
    numbers->mean += k3;
    /* !(x <= max): a NaN stays the largest. */
    if (!isnan(numbers->max) && !(k3 <= numbers->max))
        numbers->max = k3;
    double d = class == KL_CLASS_EQUAL ? 0 : fabs(a - b);
    if (!isnan(numbers->max_abs) && !(d <= numbers->max_abs))
        numbers->max_abs = d;
}

static struct kl_request_numbers numbers_of(const struct kl_request *request)
{
    struct kl_request_numbers numbers = {.first_beyond = SIZE_MAX};
    for (size_t i = 0; i < request->count; i++)
        count_token(&numbers, request, i);
    if (request->count > 0)
        numbers.mean /= (double)request->count;
    return numbers;
}

static void add_request(struct kl_path *path, const struct kl_request *request,
                        const struct kl_request_numbers *numbers)
{
    path->kept++;
    path->tokens += request->count;
    path->mean += numbers->mean;
    if (!isnan(path->max) && !(numbers->max <= path->max))
        path->max = numbers->max;
    path->bit_equal += numbers->bit_equal;
    path->stray += numbers->stray;
    path->beyond += numbers->beyond;
    for (size_t i = 0; i < request->count; i++) {
        double k3 = kl_k3(request->a[i], request->b[i]);
        for (size_t t = 0; t < KL_THRESHOLDS; t++)
            path->share_above[t] += !(k3 <= kl_thresholds[t]);
    }
}

void kl_measure(struct kl_path *path)
{
    free(path->numbers);
    path->numbers = memory_new((path->request_count + 1) * sizeof path->numbers[0]);
    path->kept = path->tokens = path->bit_equal = path->stray = path->beyond = 0;
    path->mean = path->max = 0;
    memset(path->share_above, 0, sizeof path->share_above);
    for (size_t i = 0; i < path->request_count; i++) {
        const struct kl_request *request = &path->requests[i];
        path->numbers[i] = numbers_of(request);
        if (path->measured && request->dropped == NULL && request->count > 0)
            add_request(path, request, &path->numbers[i]);
    }
    if (path->kept > 0)
        path->mean /= (double)path->kept;
    for (size_t t = 0; t < KL_THRESHOLDS && path->tokens > 0; t++)
        path->share_above[t] /= (double)path->tokens;
    path->grade = grade_of(path);
}

void kl_path_fini(struct kl_path *path)
{
    for (size_t i = 0; i < path->request_count; i++) {
        struct kl_request *request = &path->requests[i];
        free(request->rid);
        free(request->context);
        free(request->ids);
        free(request->a);
        free(request->b);
        free(request->dropped);
    }
    free(path->requests);
    free(path->numbers);
    free(path->why_not);
    *path = (struct kl_path){0};
}

/* ---- words ---- */

static const struct {
    const char *member, *word, *how;
} kl_path_table[KL_PATHS] = {
#define X(constant, member, word, how) {member, word, how},
#include "analysis/kl_paths.def"
#undef X
};

const char *kl_path_member(enum kl_path_id id)
{
    return kl_path_table[id].member;
}

const char *kl_path_word(enum kl_path_id id)
{
    return kl_path_table[id].word;
}

const char *kl_path_how(enum kl_path_id id)
{
    return kl_path_table[id].how;
}

const char *kl_condition_word(enum kl_condition condition)
{
    static const char *const words[] = {"none", "1", "2", "refused"};
    return words[condition];
}

const char *kl_where_word(enum kl_where where)
{
    static const char *const words[] = {"none", "operator", "restore", "decode"};
    return words[where];
}
