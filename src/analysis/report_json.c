#include "analysis/report_json.h"

#include "analysis/report.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void set_index(struct json *object, const char *key, bool known, int64_t value)
{
    if (known)
        json_set_i64(object, key, value);
    else
        json_set_null(object, key);
}

static void set_position(struct json *object, const struct diff *diff, const char *key, size_t pair)
{
    bool known = pair < diff->pair_count;
    set_index(object, key, known, known ? diff->pairs[pair].position : 0);
}

static void set_alignment(struct json *root, const struct diff *diff)
{
    struct json *alignment = json_set_object(root, "alignment");
    json_set_bool(alignment, "proven", diff->proven);
    json_set_bool(alignment, "usable", diff->usable);
    struct json *failed = json_set_array(alignment, "failed");
    struct json *certificate = json_set_array(alignment, "certificate");
    for (int i = 0; i < DIFF_PROOF_COUNT; i++) {
        enum diff_proof_id id = (enum diff_proof_id)i;
        struct json *proof = json_append_object(certificate);
        json_set_string(proof, "id", diff_proof_name(id));
        json_set_string(proof, "claim", diff_proof_claim(id));
        json_set_string(proof, "state", diff_proof_state_word(diff->proofs[i].state));
        json_set_bool(proof, "fatal", diff_proof_fatal(id));
        json_set_string(proof, "evidence", diff->proofs[i].evidence);
        if (diff->proofs[i].state == DIFF_PROOF_FAILS)
            json_append_string(failed, diff_proof_name(id));
    }
    struct json *messages = json_set_array(alignment, "messages");
    for (size_t i = 0; i < diff->message_count; i++) {
        enum diff_message_id id = diff->messages[i].id;
        struct json *message = json_append_object(messages);
        json_set_string(message, "id", diff_message_name(id));
        json_set_bool(message, "fatal", diff_message_fatal(id));
        json_set_string(message, "cause", diff_message_cause(id));
        json_set_string(message, "evidence", diff->messages[i].evidence);
        json_set_string(message, "remedy", diff_message_remedy(id));
    }
}

/* ---- the verdict ---- */

static void set_place(struct json *verdict, const struct diff *diff)
{
    const struct diff_verdict *v = &diff->verdict;
    const struct diff_call *call = v->call < diff->call_count ? &diff->calls[v->call] : NULL;
    const struct diff_observation *first =
        v->first_unequal < diff->observation_count ? &diff->observations[v->first_unequal] : NULL;
    const struct diff_pair *pair = v->first_pair < diff->pair_count ? &diff->pairs[v->first_pair] : NULL;
    bool found = v->kind != DIFF_KIND_NONE, layered = found && first != NULL && first->has_layer;
    json_set_string(verdict, "module", found && call != NULL ? call->name : NULL);
    set_index(verdict, "layer", layered, layered ? first->layer : 0);
    set_index(verdict, "position", found && pair != NULL, pair != NULL ? pair->position : 0);
    const struct module_class_fact *fact = found && call != NULL ? call->class : NULL;
    json_set_string(verdict, "class", fact != NULL ? module_class_name(fact->class) : NULL);
    json_set_string(verdict, "confidence", diff_confidence_word(v->confidence));
    set_index(verdict, "request", found && pair != NULL, pair != NULL ? pair->request : 0);
    set_index(verdict, "rank", found && pair != NULL, pair != NULL ? pair->rank : 0);
    json_set_string(verdict, "class_kind", fact != NULL ? fact->kind : NULL);
    json_set_string(verdict, "needs", fact != NULL ? fact->needs : NULL);
}

static void set_verdict(struct json *root, const struct diff *diff)
{
    const struct diff_verdict *v = &diff->verdict;
    if (!report_has_verdict(diff)) {
        json_set_null(root, "verdict");
        return;
    }
    struct json *verdict = json_set_object(root, "verdict");
    json_set_string(verdict, "kind", diff_kind_word(v->kind));
    set_place(verdict, diff);
    json_set_string(verdict, "last_equal",
                    v->last_equal < diff->observation_count ? diff->observations[v->last_equal].name : NULL);
    json_set_string(verdict, "first_unequal",
                    v->first_unequal < diff->observation_count ? diff->observations[v->first_unequal].name : NULL);
    json_set_string(verdict, "after", v->after < diff->call_count ? diff->calls[v->after].name : NULL);
    json_set_u64(verdict, "dec_rows", v->a_rows);
    json_set_u64(verdict, "pre_rows", v->b_rows);
    json_set_u64(verdict, "tested", v->tested);
    json_set_u64(verdict, "unequal", v->unequal);
    json_set_bool(verdict, "one_request", v->one_request);
    json_set_bool(verdict, "one_position", v->one_position);
    json_set_bool(verdict, "ranks_agree", v->ranks_agree);
    json_set_string(verdict, "reading", v->reading);
    json_set_string(verdict, "what", v->what);
    json_set_texts(verdict, "blind", v->blind);
    struct json *lines = json_set_object(verdict, "lines");
    for (int i = 0; i < REPORT_LINE_COUNT; i++) {
        char *text = report_line_text(diff, (enum report_line)i);
        json_set_string(lines, report_line_label((enum report_line)i), text);
        free(text);
    }
}

/* ---- calls and observations ---- */

/* Printed at once and kept as text: a tree of a large diff would be many times as long. */
static void append_and_free(struct json *array, struct json *element)
{
    struct buffer text;
    buffer_init(&text);
    json_print(element, &text);
    json_append_printed(array, &text);
    buffer_fini(&text);
    json_free(element);
}

static void set_evidence(struct json *root, const struct diff *diff)
{
    struct json *array = json_set_array(root, "evidence");
    for (size_t i = 0; report_has_verdict(diff) && i < diff->call_count; i++) {
        const struct diff_call *call = &diff->calls[i];
        if (!call->leaf)
            continue;
        struct json *row = json_object();
        json_set_string(row, "module", call->name);
        set_index(row, "layer", call->has_layer, call->layer);
        json_set_string(row, "class", call->class != NULL ? module_class_name(call->class->class) : NULL);
        json_set_string(row, "kind", call->class != NULL ? call->class->kind : NULL);
        json_set_u64(row, "tested", call->tested);
        json_set_u64(row, "unequal", call->unequal);
        set_position(row, diff, "first_position", call->first_pair);
        json_set_u64(row, "max_ulp", call->max_ulp);
        json_set_u64(row, "history_equal", call->history_equal);
        append_and_free(array, row);
    }
}

static void set_numbers(struct json *object, const struct numbers *n)
{
    struct json *numbers = json_set_object(object, "numbers");
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"elements", n->elements},
        {"unequal", n->unequal},
        {"signed_zeros", n->signed_zeros},
        {"nan_payloads", n->nan_payloads},
        {"nan_against_number", n->nan_against_number},
        {"infinite_against_finite", n->infinite_against_finite},
        {"first_unequal", n->first_unequal},
        {"max_ulp", n->max_ulp},
        {"ulp_sum_up", n->ulp_sum_up},
        {"ulp_sum_down", n->ulp_sum_down},
        {"max_abs_index", n->max_abs_index},
        {"sign_flips", n->sign_flips},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        json_set_u64(numbers, counts[i].key, counts[i].value);
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"first_dec", n->first_a},
        {"first_pre", n->first_b},
        {"max_abs", n->max_abs},
        {"max_relative", n->max_relative},
        {"relative_rms", report_relative_rms(n)},
        {"relative_difference", numbers_relative_difference(n)},
        {"cosine", numbers_cosine(n)},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        json_set_double(numbers, values[i].key, values[i].value);
    char bits[24];
    snprintf(bits, sizeof bits, "0x%" PRIx64, n->first_bits_a);
    json_set_string(numbers, "first_bits_dec", bits);
    snprintf(bits, sizeof bits, "0x%" PRIx64, n->first_bits_b);
    json_set_string(numbers, "first_bits_pre", bits);
    struct json *histogram = json_set_array(numbers, "histogram");
    for (unsigned i = 0; i < NUMBERS_BUCKETS; i++) {
        if (n->histogram[i] == 0)
            continue;
        struct json *bucket = json_array();
        json_append_string(bucket, numbers_bucket_name(i));
        json_append_u64(bucket, n->histogram[i]);
        json_append(histogram, bucket);
    }
}

static void set_marks(struct json *object, const struct diff *diff, const uint8_t *marks)
{
    struct json *array = json_set_array(object, "marks");
    size_t runs = 0;
    for (size_t i = 0, end; i < diff->pair_count; i = end) {
        for (end = i + 1; end < diff->pair_count && marks[end] == marks[i]; end++)
            ;
        if (marks[i] == DIFF_MARK_NONE)
            continue;
        if (runs++ == REPORT_JSON_RUNS) {
            json_set_bool(object, "marks_cut", true);
            return;
        }
        struct json *run = json_array();
        json_append_u64(run, i);
        json_append_u64(run, end - i);
        json_append_u64(run, marks[i]);
        json_append(array, run);
    }
}

static void set_observations(struct json *root, const struct diff *diff)
{
    static const char *const presences[] = {"both", "dec", "pre", "unreadable", "shape"};
    static const char *const rows[] = {"token", "request", "shared", "none", "unclear"};
    struct json *array = json_set_array(root, "observations");
    for (size_t i = 0; report_has_verdict(diff) && i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        struct json *object = json_object();
        json_set_string(object, "name", o->name);
        set_index(object, "call", o->call != UINT32_MAX, o->call);
        json_set_bool(object, "input", o->input);
        set_index(object, "layer", o->has_layer, o->layer);
        json_set_string(object, "presence", presences[o->presence]);
        json_set_string(object, "rows", rows[o->rows]);
        json_set_u64(object, "factor", o->factor);
        json_set_string(object, "note", o->note);
        json_set_string(object, "dtype", pt_dtype_name(o->dtype));
        json_set_u64(object, "row_elements", o->row_elements);
        json_set_u64(object, "tested", o->tested);
        json_set_u64(object, "unequal", o->unequal);
        json_set_u64(object, "control_tested", o->control_tested);
        json_set_u64(object, "control_unequal", o->control_unequal);
        set_position(object, diff, "first_position", o->first_unequal_pair);
        if (o->growth > 0)
            json_set_double(object, "growth", o->growth);
        else
            json_set_null(object, "growth");
        if (o->unequal > 0)
            set_numbers(object, &o->numbers);
        if (o->unequal + o->control_unequal > 0 && o->marks != NULL)
            set_marks(object, diff, o->marks);
        append_and_free(array, object);
    }
}

/* ---- requests and pairs ---- */

static void set_requests(struct json *root, const struct diff *diff)
{
    struct json *array = json_set_array(root, "requests");
    for (size_t i = 0; i < diff->request_count; i++) {
        const struct diff_request *r = &diff->requests[i];
        struct json *request = json_object();
        json_set_string(request, "dec_rid", r->a_rid);
        json_set_string(request, "pre_rid", r->b_rid);
        json_set_u64(request, "prompt_length", r->prompt_length);
        json_set_u64(request, "dec_length", r->a_length);
        json_set_u64(request, "pre_length", r->b_length);
        json_set_u64(request, "dec_cached_length", r->a_cached_length);
        json_set_u64(request, "pre_cached_length", r->b_cached_length);
        json_set_u64(request, "first_pair", r->first_pair);
        json_set_u64(request, "pairs", r->pair_count);
        json_set_u64(request, "targets", r->target_count);
        append_and_free(array, request);
    }
}

static void set_pairs(struct json *root, const struct diff *diff)
{
    static const char *const columns[] = {"request",  "rank",    "position", "id",     "target",
                                          "dec_step", "dec_row", "pre_step", "pre_row"};
    struct json *names = json_set_array(root, "pair_columns");
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        json_append_string(names, columns[i]);
    struct json *array = json_set_array(root, "pairs");
    struct buffer text;
    buffer_init(&text);
    size_t shown = diff->pair_count < REPORT_JSON_PAIRS ? diff->pair_count : REPORT_JSON_PAIRS;
    for (size_t i = 0; i < shown; i++) {
        const struct diff_pair *p = &diff->pairs[i];
        buffer_clear(&text);
        buffer_format(&text,
                      "[%" PRIu32 ",%" PRIu32 ",%" PRId64 ",%" PRId64 ",%s,%" PRIu64 ",%" PRIu32 ",%" PRIu64 ",%" PRIu32
                      "]",
                      p->request, p->rank, p->position, p->id, p->target ? "true" : "false", p->a_step, p->a_row,
                      p->b_step, p->b_row);
        json_append_printed(array, &text);
    }
    buffer_fini(&text);
    json_set_u64(root, "pairs_cut", diff->pair_count - shown);
}

void report_json(const struct diff *diff, struct buffer *out)
{
    struct json *root = json_object();
    json_set_string(root, "schema", "kldump.diff/1");
    json_set_u64(root, "status", (uint64_t)diff_status(diff));
    json_set_string(root, "headline", report_headline(diff));
    json_set_string(root, "dec", diff->a_path);
    json_set_string(root, "pre", diff->b_path);
    json_set_bool(root, "swapped", diff->swapped);
    json_set_string(root, "pairing", diff_pairing_word(diff->pairing));
    set_alignment(root, diff);
    set_verdict(root, diff);
    set_evidence(root, diff);
    set_observations(root, diff);
    set_requests(root, diff);
    set_pairs(root, diff);
    struct json *control = json_set_object(root, "control");
    json_set_u64(control, "elements", diff->control_elements);
    json_set_u64(control, "unequal", diff->control_unequal);
    json_set_u64(root, "ranks", diff->ranks);
    json_set_u64(root, "tp_size", diff->tp_size);
    json_set_u64(root, "targets", diff->target_count);
    json_set_texts(root, "refused", diff->refused);
    json_set_u64(root, "files_opened", diff->files_opened);
    json_set_u64(root, "bytes_read", diff->bytes_read);
    json_print(root, out);
    json_free(root);
}
