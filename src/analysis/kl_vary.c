#include "analysis/kl_vary.h"

#include "base/buffer.h"
#include "base/list.h"

#include <inttypes.h>
#include <stdlib.h>

/* What a variant turned out to be. */
enum kind {
    ABSENT,
    BLIND /* what is dirty as given was not measured here */,
    IDENTICAL,
    MOVED,
    RESTORED,
    TURNED_CLEAN,
    TURNED_DIRTY,
    KINDS
};

struct facts {
    const struct kl_vary *vary;
    bool repeats, measured;
    size_t counts[KINDS];
};

static enum kind kind_of(const struct kl_vary *vary, const struct kl_vary_variant *variant)
{
    if (variant->state != KL_VARY_MEASURED)
        return ABSENT;
    if (!vary->clean && variant->given_clean && variant->clean)
        return BLIND;
    if (variant->clean != variant->given_clean)
        return variant->clean ? TURNED_CLEAN : TURNED_DIRTY;
    if (variant->differs.path != NULL)
        return MOVED;
    return variant->restored.path != NULL ? RESTORED : IDENTICAL;
}

static bool shifted(const struct facts *facts)
{
    return facts->vary->shifted;
}

static bool races(const struct facts *facts)
{
    return !facts->repeats;
}

static bool nothing(const struct facts *facts)
{
    return !facts->measured;
}

static bool turned_dirty(const struct facts *facts)
{
    return facts->counts[TURNED_DIRTY] > 0;
}

static bool clean(const struct facts *facts)
{
    return facts->vary->clean;
}

static bool turned_clean(const struct facts *facts)
{
    return facts->counts[TURNED_CLEAN] > 0;
}

static bool moved(const struct facts *facts)
{
    return facts->counts[MOVED] > 0;
}

static bool restored(const struct facts *facts)
{
    return facts->counts[RESTORED] > 0;
}

static bool always(const struct facts *facts)
{
    (void)facts;
    return true;
}

#define DIFF "kldumpctl capture, then kldumpctl diff: the operator and the position at which decode and prefill part"

/* `named`: the variants of this kind follow the text, ABSENT: none. */
static const struct row {
    const char *name;
    bool (*fits)(const struct facts *facts);
    enum kind named;
    const char *text;
    const char *next[2];
} rows[] = {
    {"shifted-logprobs",
     shifted,
     ABSENT,
     "The logprobs of the prompt belong to the token beside, as given: they are shifted by one. Numbers made of them "
     "say "
     "nothing about the model, whether they move or not, and are not read.",
     {"look at where the server cuts and pads the logprobs of a prompt; then vary again"}},
    {"not-repeatable",
     races,
     TURNED_CLEAN,
     "Not repeatable, so a race: the same command on a fresh server, asked the same in the same order, gave other "
     "numbers. That a variant has other ones says nothing then.",
     {"vary what runs side by side (disable-overlap-schedule=on, disable-custom-all-reduce=on, "
      "disable-cuda-graph=on): the one that makes it repeat is where to look",
      "CUDA_LAUNCH_BLOCKING=1 in front of CMD"}},
    {"nothing-arrived",
     nothing,
     ABSENT,
     "No variant tells anything: none has another setting than as given and was measured where that is dirty.",
     {"give values that the server resolves to something else; see the settings in kldumpctl kl --json"}},
    {"turns-dirty",
     turned_dirty,
     TURNED_DIRTY,
     "The server is clean as given, and dirty with a setting that should not matter: that is where to look.",
     {DIFF, "kldumpctl kl under the dirty setting: which of the two conditions is broken"}},
    {"clean", clean, MOVED, "Clean as given and under every variant that was measured: nothing to explain.", {0}},
    {"turns-clean",
     turned_clean,
     TURNED_CLEAN,
     "The server is dirty as given, and clean with another setting that should not matter: that is where to look.",
     {"kldumpctl ab of both results: what moved first, and which settings the server resolved otherwise", DIFF}},
    {"moved",
     moved,
     MOVED,
     "Race or shape dependence: the numbers are wrong under every variant, and others under some. As the same command "
     "repeats bit for bit, the setting has moved them, and not chance alone.",
     {"kldumpctl invariance: which operator depends on the number of rows, and from which size on", DIFF}},
    {"restored-otherwise",
     restored,
     RESTORED,
     "Deterministic, no race: the same wrong numbers, bit for bit, wherever as many tokens were restored from the "
     "cache, and others only where the setting restored another number. Either a logic fault that reaches what is "
     "restored, or operators that depend on how many rows are left to compute.",
     {"kldumpctl invariance: whether an operator depends on the number of rows",
      "the same with prompts that restore alike: lengths of one more than a multiple of the largest page"}},
    {"deterministic",
     always,
     ABSENT,
     "Deterministic logic fault: the same wrong numbers, bit for bit, whatever these settings are. Neither a race nor "
     "a shape that they change is behind them.",
     {DIFF}},
};

static void add_place(const struct kl_vary_place *place, struct buffer *text)
{
    buffer_format(text, "first in %s, request %zu at position %" PRIu64, place->path, place->request, place->position);
}

/* " Clean with a=1 and a=2." */
static void add_named(const struct facts *facts, enum kind kind, struct buffer *text)
{
    static const char *const words[KINDS] = {[BLIND] = "The dirty paths could not be measured with",
                                             [MOVED] = "Other numbers with",
                                             [RESTORED] = "Other numbers with",
                                             [TURNED_CLEAN] = "Clean with",
                                             [TURNED_DIRTY] = "Dirty with"};
    size_t named = 0;
    for (size_t i = 0; i < facts->vary->count && kind != ABSENT; i++) {
        const struct kl_vary_variant *variant = &facts->vary->variants[i];
        if (kind_of(facts->vary, variant) != kind)
            continue;
        buffer_format(text, "%s%s%s", named == 0 ? " " : "; ", named == 0 ? words[kind] : "", named == 0 ? " " : "");
        buffer_text(text, variant->label);
        if (kind == MOVED || kind == RESTORED) {
            buffer_text(text, ", ");
            add_place(kind == MOVED ? &variant->differs : &variant->restored, text);
        }
        named++;
    }
    buffer_text(text, named > 0 ? "." : "");
}

/* The same text for those of which nothing is known. */
static void add_state(const struct facts *facts, enum kl_vary_state state, const char *words, struct buffer *text)
{
    size_t named = 0;
    for (size_t i = 0; i < facts->vary->count; i++)
        if (facts->vary->variants[i].state == state)
            buffer_format(text, "%s%s", named++ == 0 ? words : ", ", facts->vary->variants[i].label);
    buffer_text(text, named > 0 ? "." : "");
}

void kl_vary_read(const struct kl_vary *vary, struct kl_vary_reading *ret_reading)
{
    struct facts facts = {.vary = vary, .repeats = vary->again.path == NULL};
    struct buffer text;
    struct list next = {0};
    const struct row *row = rows;
    for (size_t i = 0; i < vary->count; i++) {
        facts.counts[kind_of(vary, &vary->variants[i])]++;
    }
    facts.measured = facts.counts[ABSENT] + facts.counts[BLIND] < vary->count;
    while (!row->fits(&facts)) /* the last row fits always */
        row++;
    buffer_init(&text);
    buffer_text(&text, row->text);
    if (!facts.repeats) {
        buffer_text(&text, " It differs from itself ");
        add_place(&vary->again, &text);
        buffer_text(&text, ".");
    }
    add_named(&facts, row->named, &text);
    add_named(&facts, BLIND, &text);
    add_state(&facts, KL_VARY_NO_EFFECT, " No effect, as the server resolved nothing else: ", &text);
    add_state(&facts, KL_VARY_NOT_MEASURED, " Not measured: ", &text);
    for (size_t i = 0; i < sizeof row->next / sizeof row->next[0] && row->next[i] != NULL; i++)
        list_add(&next, row->next[i]);
    *ret_reading = (struct kl_vary_reading){
        .name = row->name,
        .fine = facts.repeats && vary->clean && facts.counts[TURNED_DIRTY] == 0,
        .text = buffer_steal(&text),
        .next = list_vector(&next),
    };
    buffer_fini(&text);
}

void kl_vary_reading_fini(struct kl_vary_reading *reading)
{
    free(reading->text);
    list_vector_free(reading->next);
    *reading = (struct kl_vary_reading){0};
}

const char *kl_vary_state_word(enum kl_vary_state state)
{
    static const char *const words[] = {
        [KL_VARY_NOT_MEASURED] = "not measured", [KL_VARY_NO_EFFECT] = "no effect", [KL_VARY_MEASURED] = "measured"};
    return words[state];
}
