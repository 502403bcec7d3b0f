#include "analysis/report.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const labels[REPORT_LINE_COUNT] = {"verdict", "where", "evidence", "class", "next"};

const char *report_line_label(enum report_line line)
{
    return labels[line];
}

bool report_has_verdict(const struct diff *diff)
{
    enum status status = diff_status(diff);
    return status == STATUS_DONE || status == STATUS_NO;
}

const char *report_headline(const struct diff *diff)
{
    switch ((int)diff_status(diff)) {
    case STATUS_DONE:
        return "EQUAL";
    case STATUS_NO:
        return "DIFFERENT";
    case STATUS_UNPROVEN:
        return "NOT PROVEN";
    case STATUS_REFUSED_FILE:
        return "REFUSED";
    default:
        return "UNUSABLE";
    }
}

const char *report_summary(const struct diff *diff)
{
    switch ((int)diff_status(diff)) {
    case STATUS_UNPROVEN:
        return "the rows of both sides are not proven to belong together, so no operator is named";
    case STATUS_INCOMPLETE:
        return diff->proven ? "what could be compared is equal, but files are missing or cannot be read"
                            : "a side is no usable dump, so no operator is named";
    case STATUS_REFUSED_FILE:
        return "a file on the needed path was refused, so no operator is named";
    default:
        return NULL;
    }
}

bool report_wants_recipe(const struct diff *diff)
{
    bool wants = false;
    for (size_t i = 0; i < diff->message_count; i++) {
        enum diff_message_id id = diff->messages[i].id;
        wants = wants || id == DIFF_MESSAGE_M3 || id == DIFF_MESSAGE_M4 || id == DIFF_MESSAGE_M11;
    }
    return wants;
}

bool report_is_culprit(const struct diff_call *call)
{
    return call->leaf && call->tested > 0 && call->unequal > 0;
}

bool report_is_blind(const struct diff_observation *observation)
{
    return observation->presence != DIFF_PRESENCE_BOTH || observation->rows == DIFF_ROWS_NONE ||
           observation->rows == DIFF_ROWS_UNCLEAR;
}

const char *report_blind_word(const struct diff_observation *observation)
{
    static const char *const words[] = {"", "only in DEC", "only in PRE", "unreadable", "other shape or type"};
    if (observation->presence != DIFF_PRESENCE_BOTH)
        return words[observation->presence];
    if (observation->rows == DIFF_ROWS_NONE)
        return "rows are not tokens";
    return observation->rows == DIFF_ROWS_UNCLEAR ? "rows unclear" : "";
}

void report_count(const struct diff *diff, struct report_coverage *ret_coverage)
{
    struct report_coverage c = {0};
    for (size_t i = 0; i < diff->call_count; i++) {
        const struct diff_call *call = &diff->calls[i];
        if (!call->leaf)
            continue;
        if (call->tested == 0) {
            c.untested++;
        } else if (call->unequal > 0) {
            c.culprits++;
        } else {
            c.exonerated++;
            if (c.least_tested == 0 || call->tested < c.least_tested)
                c.least_tested = call->tested;
        }
    }
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        c.one_sided += o->presence == DIFF_PRESENCE_A_ONLY || o->presence == DIFF_PRESENCE_B_ONLY;
        c.unreadable += o->presence == DIFF_PRESENCE_UNREADABLE;
        c.other_shape += o->presence == DIFF_PRESENCE_SHAPE;
        c.no_rows += o->presence == DIFF_PRESENCE_BOTH && report_is_blind(o);
        c.compared += !report_is_blind(o) && o->tested + o->control_tested > 0;
    }
    *ret_coverage = c;
}

char report_mark_character(uint8_t mark)
{
    if (mark == DIFF_MARK_NONE)
        return ' ';
    if (mark == DIFF_MARK_EQUAL)
        return '.';
    if (mark == DIFF_MARK_NAN)
        return '!';
    if (mark == DIFF_MARK_OTHER)
        return '#';
    int power = mark - DIFF_MARK_ULP;
    return power >= 8 ? '9' : (char)('1' + power);
}

const char *report_short(const char *text, char *buffer)
{
    size_t length = strlen(text), head = REPORT_SHORT / 3, tail = REPORT_SHORT - head - sizeof "...";
    if (length < REPORT_SHORT)
        return text;
    snprintf(buffer, REPORT_SHORT, "%.*s...%s", (int)head, text, text + length - tail);
    return buffer;
}

const char *report_ulp_text(uint64_t ulp, char *buffer)
{
    if (ulp >= UINT64_C(1) << 62)
        snprintf(buffer, REPORT_ULP_TEXT, "> 2^62");
    else if (ulp >= UINT64_C(1) << 20)
        snprintf(buffer, REPORT_ULP_TEXT, "2^%.1f", log2((double)ulp));
    else
        snprintf(buffer, REPORT_ULP_TEXT, "%" PRIu64, ulp);
    return buffer;
}

double report_relative_rms(const struct numbers *numbers)
{
    if (numbers->sum_squares_difference <= 0)
        return 0;
    return numbers->sum_squares_b > 0 ? sqrt(numbers->sum_squares_difference / numbers->sum_squares_b) : INFINITY;
}

char *report_place_text(const struct diff *diff, size_t pair)
{
    if (pair >= diff->pair_count)
        return memory_copy("");
    const struct diff_pair *p = &diff->pairs[pair];
    const struct diff_request *request = p->request < diff->request_count ? &diff->requests[p->request] : NULL;
    struct buffer text;
    buffer_init(&text);
    buffer_format(&text, "position %" PRId64, p->position);
    if (request != NULL && request->a_rid != NULL)
        buffer_format(&text, " of request %.80s", request->a_rid);
    else if (diff->request_count > 1)
        buffer_format(&text, " of request number %" PRIu32, p->request);
    if (request != NULL && p->target && p->position >= (int64_t)request->prompt_length)
        buffer_format(&text, " (decode pass %" PRId64 ")", p->position - (int64_t)request->prompt_length);
    if (diff->ranks > 1)
        buffer_format(&text, ", rank %" PRIu32, p->rank);
    char *made = buffer_steal(&text);
    buffer_fini(&text);
    return made;
}

char *report_proof_text(const struct diff *diff, enum diff_proof_id id)
{
    switch (diff->proofs[id].state) {
    case DIFF_PROOF_HOLDS:
        return memory_copy(diff_proof_claim(id));
    case DIFF_PROOF_UNKNOWN:
        return memory_format("whether %s", diff_proof_claim(id));
    case DIFF_PROOF_WEAK:
        return memory_format("not sure: %s", diff_proof_claim(id));
    default:
        return memory_copy(diff_proof_contrary(id));
    }
}

/* ---- the five lines ---- */

static const struct diff_observation *observation_at(const struct diff *diff, uint32_t index)
{
    return index < diff->observation_count ? &diff->observations[index] : NULL;
}

static const struct diff_call *call_at(const struct diff *diff, uint32_t index)
{
    return index < diff->call_count ? &diff->calls[index] : NULL;
}

/* What the verdict is about: of a GAP the input that differs, else the module. */
static const char *subject(const struct diff *diff)
{
    const struct diff_verdict *v = &diff->verdict;
    const struct diff_observation *first = observation_at(diff, v->first_unequal);
    const struct diff_call *call = call_at(diff, v->call);
    if (call == NULL || v->kind == DIFF_KIND_GAP)
        return first != NULL ? first->name : "";
    return call->name;
}

static void add_what(const struct diff *diff, struct buffer *text)
{
    const struct diff_verdict *v = &diff->verdict;
    char name[REPORT_SHORT];
    if (v->kind == DIFF_KIND_NONE)
        buffer_format(text, "EQUAL (%s): %s", diff_confidence_word(v->confidence), diff_kind_sentence(v->kind));
    else
        buffer_format(text, "%s (%s, %s) - %s", report_short(subject(diff), name), diff_kind_word(v->kind),
                      diff_confidence_word(v->confidence), diff_kind_sentence(v->kind));
}

/* What the positions of several requests, and several ranks, have in common. */
static void add_pattern(const struct diff *diff, struct buffer *text)
{
    const struct diff_verdict *v = &diff->verdict;
    if (v->one_request)
        buffer_format(text, "; in this one of %zu requests only", diff->request_count);
    if (v->one_position)
        buffer_text(text, "; all requests begin to differ at this position: an absolute boundary");
    if (v->ranks_agree)
        buffer_format(text, "; all %" PRIu32 " ranks have the same wrong bits", diff->ranks);
}

/* Rows that decode, of the requests that were compared, without a row that has the same tokens before it. */
static void add_left_out(const struct diff *diff, struct buffer *text)
{
    size_t decoded = 0, compared = 0;
    for (size_t i = 0; i < diff->request_count && diff->pairing == DIFF_PAIRING_PHASES; i++) {
        const struct diff_request *request = &diff->requests[i];
        int64_t last = -1; /* several ranks have the same position */
        decoded += request->a_length > request->prompt_length ? request->a_length - request->prompt_length : 0;
        for (size_t k = 0; k < request->pair_count; k++) {
            const struct diff_pair *pair = &diff->pairs[request->first_pair + k];
            compared += pair->target && pair->position >= (int64_t)request->prompt_length && pair->position != last;
            last = pair->target ? pair->position : last;
        }
    }
    if (compared < decoded)
        buffer_format(text, "; %zu of %zu decoded tokens are in no scoring pass: not compared", decoded - compared,
                      decoded);
}

static void add_where(const struct diff *diff, struct buffer *text)
{
    const struct diff_verdict *v = &diff->verdict;
    const struct diff_observation *first = observation_at(diff, v->first_unequal);
    const struct diff_observation *last = observation_at(diff, v->last_equal);
    const struct diff_call *after = call_at(diff, v->after);
    char name[REPORT_SHORT], other[REPORT_SHORT];
    if (v->kind == DIFF_KIND_NONE) {
        buffer_format(text, "%zu row%s of %zu request%s, %zu tensors each", diff->target_count,
                      diff->target_count == 1 ? "" : "s", diff->request_count, diff->request_count == 1 ? "" : "s",
                      diff->observation_count);
        add_left_out(diff, text);
        return;
    }
    if (first != NULL && first->has_layer)
        buffer_format(text, "layer %" PRIu32 ", ", first->layer);
    char *place = report_place_text(diff, v->first_pair);
    buffer_text(text, place[0] != '\0' ? "first at " : "");
    buffer_text(text, place);
    add_pattern(diff, text);
    if (after != NULL)
        buffer_format(text, "; behind %s", report_short(after->name, name));
    if (last != NULL && first != NULL)
        buffer_format(text, "; last equal tensor %s, first unequal %s", report_short(last->name, name),
                      report_short(first->name, other));
    free(place);
}

static void add_control(const struct diff *diff, struct buffer *text)
{
    if (diff->control_elements > 0)
        buffer_format(text, "; control: %" PRIu64 " of %" PRIu64 " elements of prompt rows differ",
                      diff->control_unequal, diff->control_elements);
}

static void add_evidence(const struct diff *diff, struct buffer *text)
{
    const struct diff_verdict *v = &diff->verdict;
    const struct diff_observation *first = observation_at(diff, v->first_unequal);
    char ulp[REPORT_ULP_TEXT];
    if (v->kind == DIFF_KIND_NONE) {
        struct report_coverage c;
        report_count(diff, &c);
        buffer_format(text, "%zu of %zu tensors compared, none unequal", c.compared, diff->observation_count);
        add_control(diff, text);
        return;
    }
    buffer_format(text, "%zu of %zu row%s %s", v->unequal, v->tested, v->tested == 1 ? "" : "s",
                  v->unequal == 1 && v->tested == 1 ? "differs" : "differ");
    if (first != NULL && first->numbers.unequal > 0) {
        const struct numbers *n = &first->numbers;
        buffer_format(text, "; in them %" PRIu64 " of %" PRIu64 " elements, by up to %s ULP", n->unequal, n->elements,
                      report_ulp_text(n->max_ulp, ulp));
        if (n->max_abs > 0)
            buffer_format(text, " (%.3g)", n->max_abs);
        if (n->nan_against_number + n->infinite_against_finite > 0)
            buffer_format(text, "; %" PRIu64 " NaN or infinite on one side",
                          n->nan_against_number + n->infinite_against_finite);
    }
    add_control(diff, text);
    if (v->reading != NULL && v->reading[0] != '\0')
        buffer_format(text, "; looks like: %s", v->reading);
}

static void add_class(const struct diff *diff, struct buffer *text)
{
    const struct diff_call *call = call_at(diff, diff->verdict.call);
    if (diff->verdict.kind == DIFF_KIND_NONE || call == NULL || call->class == NULL)
        return;
    buffer_format(text, "%s (%s). To be batch-invariant: %s", module_class_name(call->class->class), call->class->kind,
                  call->class->needs);
}

char *report_line_text(const struct diff *diff, enum report_line line)
{
    static void (*const adders[])(const struct diff *, struct buffer *) = {add_what, add_where, add_evidence,
                                                                           add_class};
    if (!report_has_verdict(diff))
        return NULL;
    struct buffer text;
    buffer_init(&text);
    if (line == REPORT_NEXT)
        buffer_text(&text, diff->verdict.what != NULL ? diff->verdict.what : "");
    else
        adders[line](diff, &text);
    char *made = text.length > 0 ? buffer_steal(&text) : NULL;
    buffer_fini(&text);
    return made;
}
