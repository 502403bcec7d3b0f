#include "analysis/kl_reading_private.h"

#include "base/buffer.h"

#include <inttypes.h>

enum { REQUESTS_SHOWN = 6, MODULI = 16, SEPARATED_LEAST = 3 };

static bool is_kept(const struct kl_request *request)
{
    return request->dropped == NULL && request->count > 0;
}

static size_t count_dirty(const struct kl_path *path)
{
    size_t count = 0;
    for (size_t i = 0; i < path->request_count; i++)
        count += is_kept(&path->requests[i]) && path->numbers[i].beyond > 0;
    return count;
}

static void add_paths(const struct kl_facts *facts, struct list *list)
{
    struct buffer dirty, clean;
    buffer_init(&dirty);
    buffer_init(&clean);
    for (int id = 0; id < KL_PATHS; id++) {
        const struct kl_path *path = &facts->paths[id];
        const char *word = kl_path_word((enum kl_path_id)id), *grade = kl_grade_word(path->grade);
        if (kl_reading_dirty(path))
            buffer_format(&dirty, "%s%s (%s, %zu of %zu tokens beyond stray in %zu of %zu requests)",
                          dirty.length > 0 ? "; " : "dirty: ", word, grade, path->beyond, path->tokens,
                          count_dirty(path), path->kept);
        else if (path->grade != KL_GRADE_NOT_MEASURED)
            buffer_format(&clean, "%s%s (%s)", clean.length > 0 ? "; " : "clean: ", word, grade);
    }
    if (dirty.length > 0)
        list_add(list, dirty.data);
    if (clean.length > 0)
        list_add(list, clean.data);
    buffer_fini(&dirty);
    buffer_fini(&clean);
}

static void add_shift(const struct kl_facts *facts, struct list *list)
{
    const struct kl_shift *shift = &facts->shift;
    list_add_format(list,
                    "%s: the score of position p%+d equals the logprob decoded at p in %zu of %zu tokens; that of "
                    "position p itself in %zu",
                    kl_path_word(facts->shift_path), shift->by, shift->moved, shift->tokens, shift->equal);
    list_add_format(list, "mean k3 %.2g as they are, %.2g moved by one token", shift->mean, shift->moved_mean);
}

static void add_position(const struct kl_facts *facts, struct list *list)
{
    list_add_format(
        list,
        "%s: dirt begins at position %zu in %zu requests, after %zu clean tokens in all; no token before it is "
        "dirty",
        kl_path_word(facts->probe), facts->position, facts->position_requests, facts->position_clean_tokens);
    if (facts->short_requests > 0)
        list_add_format(list, "clean requests that end before it: %zu", facts->short_requests);
    if (facts->long_requests > 0)
        list_add_format(list, "requests whose prompt reaches it, dirty from their second token on: %zu",
                        facts->long_requests);
    uint64_t window = facts->server->sliding_window, page = facts->server->page_size;
    if (window > 0)
        list_add_format(list, "the sliding window is %" PRIu64 ": position %zu is %s it", window, facts->position,
                        facts->position < window ? "within" : "at or past");
    if (page > 1)
        list_add_format(list, "position %zu %% page size %" PRIu64 " = %zu", facts->position, page,
                        facts->position % (size_t)page);
}

static void add_index(const struct kl_facts *facts, struct list *list)
{
    if (facts->probe == KL_PATHS)
        return;
    const struct kl_path *path = &facts->paths[facts->probe];
    size_t at_first = 0;
    for (size_t i = 0; i < path->request_count; i++)
        at_first += is_kept(&path->requests[i]) && path->numbers[i].first_beyond == path->requests[i].first;
    if (at_first == 0)
        list_add_format(list, "%s: no request is dirty at its first token, which comes from a prefill",
                        kl_path_word(facts->probe));
    else
        list_add_format(list, "%s: %zu requests are dirty at their first token, which comes from a prefill",
                        kl_path_word(facts->probe), at_first);
    if (at_first > 0 && facts->probe != KL_PATH_DECODE_CACHE_HIT && kl_grade_clean(facts->paths[KL_PATH_RESTORE].grade))
        list_add(list,
                 "restore holds prefills of one length against each other, and they agree: a first token that differs "
                 "points at an operator that depends on the length of a prefill, or at how its logprob is taken "
                 "(head and log-softmax, which no dump shows)");
    if (facts->server->mixture_of_experts || facts->dominance > 0.5)
        list_add_format(list, "%s: the largest token is %.2g of the sum of k3", kl_path_word(facts->probe),
                        facts->dominance);
}

static void add_alone(const struct kl_facts *facts, struct list *list)
{
    const struct kl_path *match = &facts->paths[KL_PATH_MATCH], *alone = &facts->paths[KL_PATH_MATCH_ALONE];
    if (facts->same_alone)
        list_add_format(list, "in a batch and one request at a time all %zu tokens of match have the same bits",
                        match->tokens);
    else
        list_add_format(list, "in a batch %zu of %zu tokens are beyond stray, one request at a time %zu of %zu",
                        match->beyond, match->tokens, alone->beyond, alone->tokens);
}

static void add_restore(const struct kl_facts *facts, struct list *list)
{
    const struct kl_path *restore = &facts->paths[KL_PATH_RESTORE];
    if (restore->grade == KL_GRADE_NOT_MEASURED)
        list_add(list, "restore was not measured: whether prefill agrees with prefill is not known");
    else if (!kl_reading_dirty(restore))
        list_add_format(list, "restore is %s: prefill on a cached prefix agrees with prefill in %zu tokens",
                        kl_grade_word(restore->grade), restore->tokens);
    else if (facts->probe == KL_PATHS || facts->one_position) /* whose dirt is no noise */
        list_add(list, "restore is dirty: prefill on a cached prefix differs from prefill, without any decode");
    else
        list_add_format(list, "restore is dirty, mean k3 %.2g beside %.2g of %s: %s", restore->mean,
                        facts->paths[facts->probe].mean, kl_path_word(facts->probe),
                        facts->loud_restore ? "far beyond its noise" : "no more than noise may give");
}

/* ---- few requests: what they have in common ---- */

static void add_lengths(const struct kl_path *path, bool dirty, const struct kl_server *server, struct buffer *text)
{
    size_t shown = 0;
    for (size_t i = 0; i < path->request_count; i++) {
        const struct kl_request *request = &path->requests[i];
        if (!is_kept(request) || (path->numbers[i].beyond > 0) != dirty)
            continue;
        if (shown++ >= REQUESTS_SHOWN)
            continue;
        buffer_format(text, "%s%zu/%zu", shown > 1 ? ", " : "", request->prompt_length, request->cached_tokens);
        if (server->page_size > 1)
            buffer_format(text, " (page %zu)", request->cached_tokens % (size_t)server->page_size);
        if (server->state_checkpoint_interval > 1)
            buffer_format(text, " (checkpoint %zu)",
                          request->cached_tokens % (size_t)server->state_checkpoint_interval);
    }
    if (shown > REQUESTS_SHOWN)
        buffer_format(text, " and %zu more", shown - REQUESTS_SHOWN);
}

static size_t value_of(const struct kl_request *request, bool cached)
{
    return cached ? request->cached_tokens : request->prompt_length;
}

/* Whether all dirty requests have one remainder that no clean one has. */
static bool remainder_separates(const struct kl_path *path, bool cached, size_t modulus, size_t *ret_remainder)
{
    size_t remainder = SIZE_MAX;
    for (size_t i = 0; i < path->request_count; i++) {
        if (!is_kept(&path->requests[i]) || path->numbers[i].beyond == 0)
            continue;
        size_t own = value_of(&path->requests[i], cached) % modulus;
        if (remainder != SIZE_MAX && own != remainder)
            return false;
        remainder = own;
    }
    for (size_t i = 0; i < path->request_count; i++)
        if (is_kept(&path->requests[i]) && path->numbers[i].beyond == 0 &&
            value_of(&path->requests[i], cached) % modulus == remainder)
            return false;
    *ret_remainder = remainder;
    return remainder != SIZE_MAX;
}

/* Whether every dirty request is longer than every clean one. */
static bool length_separates(const struct kl_path *path, bool cached, size_t *ret_shortest, size_t *ret_longest)
{
    size_t shortest = SIZE_MAX, longest = 0;
    for (size_t i = 0; i < path->request_count; i++) {
        size_t value = value_of(&path->requests[i], cached);
        if (!is_kept(&path->requests[i]))
            continue;
        if (path->numbers[i].beyond > 0)
            shortest = value < shortest ? value : shortest;
        else
            longest = value > longest ? value : longest;
    }
    *ret_shortest = shortest;
    *ret_longest = longest;
    return shortest > longest;
}

/* Whether one length, or its remainder, tells dirty requests from clean ones; says so. */
static bool add_separation(const struct kl_facts *facts, const struct kl_path *path, const char *word, bool cached,
                           struct list *list)
{
    const struct kl_server *server = facts->server;
    size_t moduli[MODULI] = {(size_t)server->page_size, (size_t)server->state_checkpoint_interval,
                             (size_t)server->sliding_window};
    size_t shortest, longest, remainder;
    const char *what = cached ? "cached tokens" : "prompt length";
    for (size_t i = 3; i < MODULI; i++)
        moduli[i] = (size_t)1 << (i - 2);
    if (length_separates(path, cached, &shortest, &longest)) {
        list_add_format(list, "%s: %s of dirty requests at least %zu, of clean ones at most %zu", word, what, shortest,
                        longest);
        return true;
    }
    for (size_t i = 0; i < MODULI && count_dirty(path) >= SEPARATED_LEAST; i++) {
        if (moduli[i] < 2 || !remainder_separates(path, cached, moduli[i], &remainder))
            continue;
        list_add_format(list, "%s: in every dirty request %s %% %zu = %zu, in no clean one", word, what, moduli[i],
                        remainder);
        return true;
    }
    return false;
}

static bool has_few(const struct kl_path *path)
{
    return kl_reading_dirty(path) && count_dirty(path) < path->kept;
}

static void add_few(const struct kl_facts *facts, struct list *list)
{
    for (int id = 0; id < KL_PATHS; id++) {
        const struct kl_path *path = &facts->paths[id];
        const char *word = kl_path_word((enum kl_path_id)id);
        struct buffer dirty, clean;
        if (!has_few(path) || (facts->one_position && !facts->late_clean))
            continue;
        buffer_init(&dirty);
        buffer_init(&clean);
        add_lengths(path, true, facts->server, &dirty);
        add_lengths(path, false, facts->server, &clean);
        list_add_format(
            list, "%s: %zu of %zu requests are dirty; prompt length / cached tokens of these: %s; of clean ones: %s",
            word, count_dirty(path), path->kept, dirty.data, clean.data);
        buffer_fini(&dirty);
        buffer_fini(&clean);
        if (!add_separation(facts, path, word, true, list))
            add_separation(facts, path, word, false, list);
    }
}

bool kl_reading_few(const struct kl_facts *facts, enum kl_where where)
{
    static const enum kl_path_id of_the_cache[] = {KL_PATH_PREFILL_CACHE_HIT, KL_PATH_DECODE_CACHE_HIT,
                                                   KL_PATH_RESTORE};
    if (where == KL_WHERE_DECODE)
        return facts->late_clean;
    for (size_t i = 0; i < sizeof of_the_cache / sizeof of_the_cache[0]; i++) {
        const struct kl_path *path = &facts->paths[of_the_cache[i]];
        if (kl_reading_dirty(path) && !has_few(path))
            return false;
    }
    return true;
}

/* The longest sequence of a path, and all of its tokens together. */
static void reach_of(const struct kl_path *path, size_t *ret_longest, size_t *ret_rows)
{
    *ret_longest = *ret_rows = 0;
    for (size_t i = 0; i < path->request_count; i++) {
        const struct kl_request *request = &path->requests[i];
        size_t length = is_kept(request) ? request->first + request->count : 0;
        *ret_longest = length > *ret_longest ? length : *ret_longest;
        *ret_rows += length;
    }
}

static void add_reach(const struct kl_facts *facts, struct list *list)
{
    static const enum kl_path_id sides[] = {KL_PATH_MATCH, KL_PATH_DECODE_CACHE_HIT};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
        size_t longest, rows;
        reach_of(&facts->paths[sides[i]], &longest, &rows);
        if (rows > 0)
            list_add_format(list, "%s: the longest sequence has %zu tokens, all that are scored together %zu",
                            kl_path_word(sides[i]), longest, rows);
    }
}

static void add_foreign(const struct kl_facts *facts, struct list *list)
{
    list_add(list, facts->server->foreign);
}

void kl_reading_evidence(const struct kl_facts *facts, unsigned which, struct list *list)
{
    static const struct {
        unsigned bit;
        void (*add)(const struct kl_facts *facts, struct list *list);
    } parts[] = {
        {KL_EVIDENCE_FOREIGN, add_foreign}, {KL_EVIDENCE_SHIFT, add_shift},   {KL_EVIDENCE_POSITION, add_position},
        {KL_EVIDENCE_ALONE, add_alone},     {KL_EVIDENCE_LENGTHS, add_reach}, {KL_EVIDENCE_INDEX, add_index},
        {KL_EVIDENCE_RESTORE, add_restore}, {KL_EVIDENCE_FEW, add_few},       {KL_EVIDENCE_PATHS, add_paths}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (which & parts[i].bit)
            parts[i].add(facts, list);
}
