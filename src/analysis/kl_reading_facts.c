#include "analysis/kl_reading_private.h"

#include <math.h>
#include <string.h>

/* Adjacent logprobs of one text differ by whole units (mean k3 0.45 was seen for a shift by one), so noise that is on
 * top leaves moved scores nearer than a hundredth of that. */
static const double SHIFT_GAIN = 100, SHIFT_LEAST = 1e-3;
enum { SHIFT_TOKENS = 8, SHIFT_TIMES = 10 };
static const double LOUD = 100, LOUD_LEAST = 1e-9;
/* Behind the position at least half of the tokens are beyond stray: then this many clean ones before it are no chance.
 */
enum { POSITION_CLEAN = 2, POSITION_CLEAN_IN_ALL = 8 };
static const double POSITION_LASTS = 0.5;

bool kl_reading_dirty(const struct kl_path *path)
{
    return path->grade != KL_GRADE_NOT_MEASURED && !kl_grade_clean(path->grade);
}

static bool is_kept(const struct kl_request *request)
{
    return request->dropped == NULL && request->count > 0;
}

/* ---- scores moved by one token ---- */

static void add_shift(struct kl_shift *shift, const struct kl_request *request)
{
    for (size_t i = 1; i < request->count; i++) {
        size_t p = shift->by < 0 ? i : i - 1, neighbour = shift->by < 0 ? i - 1 : i;
        double decoded = request->b[p], here = request->a[p], there = request->a[neighbour];
        shift->tokens++;
        bool equal = kl_class_of(here, decoded) != KL_CLASS_BEYOND,
             moved = kl_class_of(there, decoded) != KL_CLASS_BEYOND;
        shift->equal += equal;
        shift->moved += moved;
        shift->only_equal += equal && !moved;
        shift->only_moved += moved && !equal;
        shift->mean += kl_k3(here, decoded);
        shift->moved_mean += kl_k3(there, decoded);
    }
}

static bool is_shifted(const struct kl_path *path, int by, struct kl_shift *ret_shift)
{
    struct kl_shift shift = {.by = by};
    for (size_t i = 0; i < path->request_count; i++)
        if (is_kept(&path->requests[i]))
            add_shift(&shift, &path->requests[i]);
    if (shift.tokens < SHIFT_TOKENS)
        return false;
    shift.mean /= (double)shift.tokens;
    shift.moved_mean /= (double)shift.tokens;
    bool all = shift.moved == shift.tokens && shift.equal < shift.tokens;
    bool nearly = shift.mean > SHIFT_LEAST && shift.moved_mean * SHIFT_GAIN < shift.mean;
    /* Another fault spoils the rest: what it has left alone fits only when moved. */
    bool where_clean = shift.only_moved >= SHIFT_TOKENS && shift.only_moved > SHIFT_TIMES * shift.only_equal;
    if (!all && !nearly && !where_clean)
        return false;
    *ret_shift = shift;
    return true;
}

/* restore compares scores with scores: both are shifted there. */
static void look_for_shift(struct kl_facts *facts)
{
    for (int id = 0; id < KL_PATHS && !facts->shifted; id++) {
        if (id == KL_PATH_RESTORE || !kl_reading_dirty(&facts->paths[id]))
            continue;
        facts->shifted =
            is_shifted(&facts->paths[id], -1, &facts->shift) || is_shifted(&facts->paths[id], +1, &facts->shift);
        facts->shift_path = (enum kl_path_id)id;
    }
}

/* ---- where the dirt begins ---- */

/* The position at which a request turns dirty after at least POSITION_CLEAN clean tokens; SIZE_MAX: it does not. */
static size_t late_onset(const struct kl_path *path, size_t i)
{
    size_t onset = path->numbers[i].first_beyond;
    bool late = onset != SIZE_MAX && onset >= path->requests[i].first + POSITION_CLEAN;
    return late ? onset : SIZE_MAX;
}

/* Share of the tokens from where a request turns dirty that are beyond stray. */
static double share_behind(const struct kl_path *path)
{
    size_t tokens = 0, different = 0;
    for (size_t i = 0; i < path->request_count; i++) {
        const struct kl_request *request = &path->requests[i];
        size_t onset = path->numbers[i].first_beyond;
        if (!is_kept(request) || onset == SIZE_MAX)
            continue;
        for (size_t t = onset - request->first; t < request->count; t++, tokens++)
            different += kl_class_of(request->a[t], request->b[t]) == KL_CLASS_BEYOND;
    }
    return tokens > 0 ? (double)different / (double)tokens : 0;
}

/* The first token of a request comes from its prefill, so one that is longer than the position is dirty from its second
 * token on. */
static bool begins_at(const struct kl_path *path, size_t i, size_t position)
{
    size_t first = path->requests[i].first, onset = path->numbers[i].first_beyond;
    return onset == position || (first + 1 > position && onset == first + 1);
}

static void look_at_positions(struct kl_facts *facts, const struct kl_path *path)
{
    size_t position = SIZE_MAX, length = SIZE_MAX;
    facts->same_lengths = facts->one_position = true;
    facts->position_requests = facts->position_clean_tokens = facts->long_requests = facts->short_requests = 0;
    facts->late_clean = false;
    for (size_t i = 0; i < path->request_count; i++)
        if (is_kept(&path->requests[i]) && late_onset(path, i) < position)
            position = late_onset(path, i);
    for (size_t i = 0; i < path->request_count; i++) {
        const struct kl_request *request = &path->requests[i];
        if (!is_kept(request))
            continue;
        if (path->numbers[i].beyond == 0) {
            bool is_short = request->first + request->count <= position;
            facts->short_requests += is_short;
            facts->late_clean = facts->late_clean || !is_short;
            continue;
        }
        facts->same_lengths = facts->same_lengths && (length == SIZE_MAX || length == request->first);
        length = request->first;
        facts->one_position = facts->one_position && position != SIZE_MAX && begins_at(path, i, position);
        if (late_onset(path, i) == position && position != SIZE_MAX) {
            facts->position_requests++;
            facts->position_clean_tokens += position - request->first;
        } else {
            facts->long_requests++;
        }
    }
    facts->position = position;
    facts->one_position = facts->one_position && facts->position_clean_tokens >= POSITION_CLEAN_IN_ALL &&
                          share_behind(path) >= POSITION_LASTS;
}

static void look_at_probe(struct kl_facts *facts, enum kl_path_id id)
{
    const struct kl_path *path = &facts->paths[id];
    double sum = 0;
    facts->probe = id;
    facts->from_index_1 = true;
    for (size_t i = 0; i < path->request_count; i++) {
        if (!is_kept(&path->requests[i]))
            continue;
        facts->from_index_1 = facts->from_index_1 && path->numbers[i].first_beyond != path->requests[i].first;
        sum += path->numbers[i].mean * (double)path->requests[i].count;
    }
    facts->dominance = sum > 0 ? path->max / sum : 0;
    look_at_positions(facts, path);
}

/* ---- whether a batch matters ---- */

static bool same_bits(const struct kl_request *one, const struct kl_request *other)
{
    return is_kept(other) && one->first == other->first && one->count == other->count &&
           memcmp(one->ids, other->ids, one->count * sizeof one->ids[0]) == 0 &&
           memcmp(one->a, other->a, one->count * sizeof one->a[0]) == 0 &&
           memcmp(one->b, other->b, one->count * sizeof one->b[0]) == 0;
}

/* Whether a batch can have shown what else is in a pass: it has several requests, and its prefill more rows than the
 * shortest score of a single one. Else numbers of rows on the same side of a limit would give the same bits. */
static bool batch_tells(const struct kl_path *match)
{
    size_t rows = 0, score = SIZE_MAX, requests = 0;
    for (size_t i = 0; i < match->request_count; i++) {
        const struct kl_request *request = &match->requests[i];
        if (!is_kept(request))
            continue;
        requests++;
        rows += request->first;
        score = request->first + request->count < score ? request->first + request->count : score;
    }
    return requests > 1 && rows >= score;
}

/* A request id is of one path: the same prompt is known by its tokens. */
static bool is_same_alone(const struct kl_path *match, const struct kl_path *alone)
{
    bool same = match->kept == alone->kept && batch_tells(match);
    for (size_t i = 0; same && i < match->request_count; i++) {
        bool found = !is_kept(&match->requests[i]);
        for (size_t j = 0; !found && j < alone->request_count; j++)
            found = same_bits(&match->requests[i], &alone->requests[j]);
        same = found;
    }
    return same;
}

/* ---- all of it ---- */

static bool is_loud(const struct kl_path paths[KL_PATHS])
{
    const struct kl_path *restore = &paths[KL_PATH_RESTORE], *match = &paths[KL_PATH_MATCH];
    if (match->grade == KL_GRADE_NOT_MEASURED)
        match = &paths[KL_PATH_MATCH_ALONE];
    return kl_reading_dirty(restore) && restore->mean >= LOUD_LEAST && restore->mean > LOUD * match->mean;
}

void kl_reading_facts(const struct kl_path paths[KL_PATHS], const struct kl_server *server, struct kl_facts *ret_facts)
{
    struct kl_facts facts = {.paths = paths, .server = server, .probe = KL_PATHS};
    for (int id = 0; id < KL_PATHS; id++)
        facts.measured = facts.measured || paths[id].grade != KL_GRADE_NOT_MEASURED;
    facts.prefix_dirty =
        kl_reading_dirty(&paths[KL_PATH_PREFILL_CACHE_HIT]) || kl_reading_dirty(&paths[KL_PATH_RESTORE]);
    facts.faint = true;
    for (int id = 0; id < KL_PATHS; id++)
        facts.faint = facts.faint && paths[id].grade != KL_GRADE_NONZERO;
    facts.loud_restore = is_loud(paths);
    facts.same_alone = !server->one_at_a_time && is_same_alone(&paths[KL_PATH_MATCH], &paths[KL_PATH_MATCH_ALONE]);
    look_for_shift(&facts);
    /* Noise that shows with one request at a time hides a position that is clear in a batch. */
    if (kl_reading_dirty(&paths[KL_PATH_MATCH]))
        look_at_probe(&facts, KL_PATH_MATCH);
    if (kl_reading_dirty(&paths[KL_PATH_MATCH_ALONE]) && (facts.probe == KL_PATHS || facts.one_position))
        look_at_probe(&facts, KL_PATH_MATCH_ALONE);
    /* Its lengths lie past those of match; what a dirty decode leaves in the cache would hide a position of its own. */
    if (facts.probe == KL_PATHS && !facts.prefix_dirty && kl_reading_dirty(&paths[KL_PATH_DECODE_CACHE_HIT]))
        look_at_probe(&facts, KL_PATH_DECODE_CACHE_HIT);
    *ret_facts = facts;
}
