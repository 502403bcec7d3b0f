/* The modules of a decoder layer, as SGLang 0.5.23 calls and names them (facts/sglang.md 1.3). */
#include "scenario_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct names { /* of the layer at hand */
    char layer[SCENARIO_NAME / 2];
    char text[2 * SCENARIO_NAME];
    int number;
};

enum operator{
    EMBED,
    NORM,
    ADD,
    QKV,
    HEAD_NORM,
    ROTATE,
    ATTEND,
    STATE,
    PROJECT,
    GATE,
    ROUTE,
    WEIGH,
    EXPERTS,
    UP,
    ACTIVATE,
    DOWN,
    HEAD
};

static size_t all(const struct scenario *s)
{
    return (size_t)SCENARIO_RANKS * s->token_count;
}

static struct scenario_row *new_rows(const struct scenario *s)
{
    struct scenario_row *rows = calloc(all(s) + 1, sizeof *rows);
    if (rows == NULL)
        abort();
    return rows;
}

static const char *below(struct names *names, const char *tail)
{
    snprintf(names->text, sizeof names->text, "%s.%s", names->layer, tail);
    return names->text;
}

static uint64_t weights(const struct scenario *s, enum operator operator, int layer)
{
    return scenario_mix(s->model.weights + 1, scenario_mix((uint64_t) operator+ 77, (uint64_t)(layer + 1)));
}

/* A local operator: each row of `in` (and `other`) alone. Shards differ by rank. */
static void apply(struct scenario *s, uint64_t weight, const struct scenario_row *in, const struct scenario_row *other,
                  unsigned width, bool shard, struct scenario_row *out)
{
    for (size_t i = 0; i < all(s); i++) {
        uint64_t hash = scenario_mix(weight, scenario_key(&in[i], width));
        if (other != NULL)
            hash = scenario_mix(hash, scenario_key(&other[i], width));
        if (shard && s->model.tp_size > 1 && !s->model.replicas)
            hash = scenario_mix(hash, 1000 + i / s->token_count);
        out[i] = (struct scenario_row){.hash = hash};
    }
}

/* A matrix product whose ranks add up what each has: with an all-reduce. `out` may be `in`. */
static void reduce(struct scenario *s, uint64_t weight, const struct scenario_row *in, unsigned width,
                   struct scenario_row *out)
{
    bool sum = s->model.tp_size > 1 && !s->model.replicas;
    struct scenario_row *results = new_rows(s);
    for (int rank = s->first_rank; rank < s->end_rank; rank++) {
        for (size_t i = 0; i < s->token_count; i++) {
            uint64_t hash = weight;
            for (int from = sum ? s->first_rank : rank; from < (sum ? s->end_rank : rank + 1); from++)
                hash = scenario_mix(hash, scenario_key(&in[(size_t)from * s->token_count + i], width));
            results[(size_t)rank * s->token_count + i] = (struct scenario_row){.hash = hash};
        }
    }
    memcpy(out, results, all(s) * sizeof *out);
    free(results);
}

/* Attention over all key and value rows up to the token's own, or the state that they have left. */
static void remember(struct scenario *s, uint64_t weight, int layer, const struct scenario_row *query,
                     unsigned query_width, const struct scenario_row *key, const struct scenario_row *value,
                     unsigned width, struct scenario_row *out)
{
    for (int rank = s->first_rank; rank < s->end_rank; rank++) {
        for (size_t i = 0; i < s->token_count; i++) {
            size_t at = (size_t)rank * s->token_count + i;
            struct scenario_sequence *sequence = s->tokens[i].sequence;
            uint64_t own = scenario_mix(scenario_key(&key[at], width), scenario_key(&value[at], width));
            if (sequence != NULL) {
                size_t number = (size_t)(layer - (int)s->model.first_layer) * SCENARIO_RANKS + (size_t)rank;
                uint64_t *history = sequence->history + number * sequence->count;
                size_t position = (size_t)s->tokens[i].position;
                history[position] = scenario_mix(position == 0 ? 5 : history[position - 1], own);
                own = history[position];
            }
            out[at].hash = scenario_mix(scenario_mix(weight, own), scenario_key(&query[at], query_width));
            out[at] = (struct scenario_row){.hash = out[at].hash};
        }
    }
}

static void slice(const struct scenario *s, const struct scenario_row *in, unsigned offset, struct scenario_row *out)
{
    for (size_t i = 0; i < all(s); i++) {
        out[i] = in[i];
        out[i].offset += offset;
    }
}

static void emit_positions(struct scenario *s, const char *name, bool core, int layer)
{
    int64_t *values = calloc(s->token_count + 1, sizeof *values);
    for (size_t i = 0; i < s->token_count; i++)
        values[i] = s->tokens[i].shown;
    scenario_emit_integers(s, name, core, layer, values, s->token_count, 1);
    free(values);
}

static unsigned shared(const struct scenario *s, unsigned whole)
{
    return s->model.replicas ? whole : whole / s->model.tp_size;
}

static void head_norm(struct scenario *s, struct names *names, const char *module, unsigned width, unsigned heads,
                      struct scenario_row *rows)
{
    char tail[64];
    snprintf(tail, sizeof tail, "self_attn.%s.inputs.0", module);
    scenario_emit(s, below(names, tail), names->number, rows, width, heads);
    apply(s, weights(s, HEAD_NORM, names->number) + width, rows, NULL, width, false, rows);
    snprintf(tail, sizeof tail, "self_attn.%s.output", module);
    scenario_emit(s, below(names, tail), names->number, rows, width, heads);
}

static void rotate(struct scenario *s, int layer, unsigned q, unsigned k, struct scenario_row *query,
                   struct scenario_row *key)
{
    char name[2 * SCENARIO_NAME], base[SCENARIO_NAME + 48];
    snprintf(base, sizeof base, "%s.%u.self_attn.rotary_emb", s->layers, s->model.first_layer);
    snprintf(name, sizeof name, "%s.inputs.0", base);
    emit_positions(s, name, false, layer);
    snprintf(name, sizeof name, "%s.inputs.1", base);
    scenario_emit(s, name, layer, query, q, 1);
    snprintf(name, sizeof name, "%s.inputs.2", base);
    scenario_emit(s, name, layer, key, k, 1);
    for (size_t i = 0; i < all(s); i++) { /* the same module, without weights, in every layer */
        uint64_t turn = scenario_mix(ROTATE, (uint64_t)s->tokens[i % s->token_count].position);
        query[i] = (struct scenario_row){.hash = scenario_mix(turn, scenario_key(&query[i], q))};
        key[i] = (struct scenario_row){.hash = scenario_mix(turn, scenario_key(&key[i], k))};
    }
    snprintf(name, sizeof name, "%s.output.0", base);
    scenario_emit(s, name, layer, query, q, 1);
    snprintf(name, sizeof name, "%s.output.1", base);
    scenario_emit(s, name, layer, key, k, 1);
}

static void attention(struct scenario *s, struct names *names, struct scenario_row *rows)
{
    unsigned hidden = s->model.hidden, q = shared(s, s->model.heads) * s->model.head_size;
    unsigned k = shared(s, s->model.key_value_heads) * s->model.head_size;
    struct scenario_row *query = new_rows(s), *key = new_rows(s), *value = new_rows(s);
    scenario_emit(s, below(names, "self_attn.inputs.hidden_states"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "self_attn.qkv_proj.inputs.0"), names->number, rows, hidden, 1);
    apply(s, weights(s, QKV, names->number), rows, NULL, hidden, true, rows);
    scenario_emit(s, below(names, "self_attn.qkv_proj.output"), names->number, rows, q + 2 * k, 1);
    slice(s, rows, 0, query);
    slice(s, rows, q, key);
    slice(s, rows, q + k, value);
    if (s->model.fused_qk_norm) {
        head_norm(s, names, "q_norm", q, q / s->model.head_size, query);
        head_norm(s, names, "k_norm", k, k / s->model.head_size, key);
    }
    rotate(s, names->number, q, k, query, key);
    scenario_emit(s, below(names, "self_attn.attn.inputs.0"), names->number, query, q, 1);
    scenario_emit(s, below(names, "self_attn.attn.inputs.1"), names->number, key, k, 1);
    scenario_emit(s, below(names, "self_attn.attn.inputs.2"), names->number, value, k, 1);
    remember(s, weights(s, ATTEND, 0), names->number, query, q, key, value, k, rows);
    scenario_emit(s, below(names, "self_attn.attn.output"), names->number, rows, q, 1);
    scenario_emit(s, below(names, "self_attn.o_proj.inputs.0"), names->number, rows, q, 1);
    reduce(s, weights(s, PROJECT, names->number), rows, q, rows);
    scenario_emit(s, below(names, "self_attn.o_proj.output"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "self_attn.output"), names->number, rows, hidden, 1);
    free(query);
    free(key);
    free(value);
}

static void recurrent(struct scenario *s, struct names *names, struct scenario_row *rows)
{
    unsigned hidden = s->model.hidden;
    scenario_emit(s, below(names, "linear_attn.inputs.hidden_states"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "linear_attn.in_proj.inputs.0"), names->number, rows, hidden, 1);
    apply(s, weights(s, QKV, names->number), rows, NULL, hidden, false, rows);
    scenario_emit(s, below(names, "linear_attn.in_proj.output"), names->number, rows, 2 * hidden, 1);
    scenario_emit(s, below(names, "linear_attn.attn.inputs.0"), names->number, rows, 2 * hidden, 1);
    remember(s, weights(s, STATE, names->number), names->number, rows, 2 * hidden, rows, rows, 2 * hidden, rows);
    scenario_emit(s, below(names, "linear_attn.attn.output"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "linear_attn.out_proj.inputs.0"), names->number, rows, hidden, 1);
    reduce(s, weights(s, PROJECT, names->number), rows, hidden, rows);
    scenario_emit(s, below(names, "linear_attn.out_proj.output"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "linear_attn.output"), names->number, rows, hidden, 1);
}

static void dense(struct scenario *s, struct names *names, struct scenario_row *rows)
{
    unsigned hidden = s->model.hidden, inner = shared(s, s->model.intermediate);
    scenario_emit(s, below(names, "mlp.inputs.0"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "mlp.gate_up_proj.inputs.0"), names->number, rows, hidden, 1);
    apply(s, weights(s, UP, names->number), rows, NULL, hidden, true, rows);
    scenario_emit(s, below(names, "mlp.gate_up_proj.output"), names->number, rows, 2 * inner, 1);
    scenario_emit(s, below(names, "mlp.act_fn.inputs.0"), names->number, rows, 2 * inner, 1);
    apply(s, weights(s, ACTIVATE, 0), rows, NULL, 2 * inner, false, rows);
    scenario_emit(s, below(names, "mlp.act_fn.output"), names->number, rows, inner, 1);
    scenario_emit(s, below(names, "mlp.down_proj.inputs.0"), names->number, rows, inner, 1);
    reduce(s, weights(s, DOWN, names->number), rows, inner, rows);
    scenario_emit(s, below(names, "mlp.down_proj.output"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "mlp.output"), names->number, rows, hidden, 1);
}

/* The expert ids depend on the router's numbers without their change: a flip is a fault of its own on topk.output.1. */
static void experts(struct scenario *s, struct names *names, struct scenario_row *rows)
{
    enum { TOP = 2 };
    unsigned hidden = s->model.hidden, count = s->model.experts;
    struct scenario_row *logits = new_rows(s), *weight = new_rows(s);
    int64_t *ids = calloc(s->token_count + 1, TOP * sizeof *ids);
    scenario_emit(s, below(names, "mlp.inputs.0"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "mlp.gate.inputs.0"), names->number, rows, hidden, 1);
    apply(s, weights(s, GATE, names->number), rows, NULL, hidden, false, logits);
    scenario_emit(s, below(names, "mlp.gate.output"), names->number, logits, count, 1);
    scenario_emit(s, below(names, "mlp.topk.inputs.0"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "mlp.topk.inputs.1"), names->number, logits, count, 1);
    apply(s, weights(s, WEIGH, names->number), logits, NULL, count, false, weight);
    scenario_emit(s, below(names, "mlp.topk.output.0"), names->number, weight, TOP, 1);
    size_t base = (size_t)s->first_rank * s->token_count;
    for (size_t i = 0; i < s->token_count; i++) {
        uint64_t choice = logits[base + i].hash;
        ids[i * TOP] = (int64_t)(choice % count);
        ids[i * TOP + 1] = (int64_t)((choice % count + 1 + (choice >> 32) % (count - 1)) % count);
    }
    scenario_emit_integers(s, below(names, "mlp.topk.output.1"), false, names->number, ids, s->token_count, TOP);
    scenario_emit(s, below(names, "mlp.topk.output.2"), names->number, logits, count, 1);
    scenario_emit(s, below(names, "mlp.experts.inputs.0"), names->number, rows, hidden, 1);
    apply(s, weights(s, EXPERTS, names->number), rows, weight, hidden, false, rows);
    for (size_t i = 0; i < all(s); i++)
        for (unsigned k = 0; k < TOP && s->token_count > 0; k++)
            rows[i].hash = scenario_mix(rows[i].hash, (uint64_t)ids[i % s->token_count * TOP + k]);
    scenario_emit(s, below(names, "mlp.experts.output"), names->number, rows, hidden, 1);
    scenario_emit(s, below(names, "mlp.output"), names->number, rows, hidden, 1);
    free(logits);
    free(weight);
    free(ids);
}

/* A norm that adds the residual in place: the first has none. */
static void norm(struct scenario *s, struct names *names, const char *module, bool first, uint64_t weight,
                 struct scenario_row *rows, struct scenario_row *residual)
{
    unsigned hidden = s->model.hidden;
    char tail[2 * SCENARIO_NAME];
    snprintf(tail, sizeof tail, "%s.inputs.0", module);
    scenario_emit(s, tail, names->number, rows, hidden, 1);
    if (first) {
        memcpy(residual, rows, all(s) * sizeof *rows);
    } else {
        snprintf(tail, sizeof tail, "%s.inputs.1", module);
        scenario_emit(s, tail, names->number, residual, hidden, 1);
        apply(s, ADD, rows, residual, hidden, false, residual);
    }
    apply(s, weight, residual, NULL, hidden, false, rows);
    snprintf(tail, sizeof tail, first ? "%s.output" : "%s.output.0", module);
    scenario_emit(s, tail, names->number, rows, hidden, 1);
    if (!first) {
        snprintf(tail, sizeof tail, "%s.output.1", module);
        scenario_emit(s, tail, names->number, residual, hidden, 1);
    }
}

static void layer(struct scenario *s, unsigned number, struct scenario_row *rows, struct scenario_row *residual)
{
    struct names names = {.number = (int)(s->model.first_layer + number)};
    unsigned hidden = s->model.hidden;
    bool first = number == 0;
    char module[SCENARIO_NAME + 32];
    snprintf(names.layer, sizeof names.layer, "%s.%d", s->layers, names.number);
    emit_positions(s, below(&names, "inputs.0"), false, names.number);
    scenario_emit(s, below(&names, "inputs.1"), names.number, rows, hidden, 1);
    if (s->model.pairs && !first)
        scenario_emit(s, below(&names, "inputs.3"), names.number, residual, hidden, 1);
    snprintf(module, sizeof module, "%s.input_layernorm", names.layer);
    norm(s, &names, module, first, weights(s, NORM, names.number), rows, residual);
    if (s->model.recurrent >> number & 1) {
        recurrent(s, &names, rows);
    } else {
        emit_positions(s, "positions", true, names.number);
        attention(s, &names, rows);
    }
    snprintf(module, sizeof module, "%s.post_attention_layernorm", names.layer);
    norm(s, &names, module, false, weights(s, NORM, 100 + names.number), rows, residual);
    if (s->model.experts > 0)
        experts(s, &names, rows);
    else
        dense(s, &names, rows);
    scenario_emit(s, below(&names, s->model.pairs ? "output.0" : "output"), -1, rows, hidden, 1);
    if (s->model.pairs)
        scenario_emit(s, below(&names, "output.1"), -1, residual, hidden, 1);
}

static void root_inputs(struct scenario *s, int64_t *ids)
{
    struct names names = {.number = -1};
    snprintf(names.layer, sizeof names.layer, "%s", s->root);
    scenario_emit_integers(s, below(&names, "inputs.0"), false, -1, ids, s->token_count, 1);
    emit_positions(s, below(&names, "inputs.1"), false, -1);
    scenario_emit_integers(s, below(&names, "embed_tokens.inputs.0"), false, -1, ids, s->token_count, 1);
}

void scenario_forward(struct scenario *s)
{
    struct scenario_row *rows = new_rows(s), *residual = new_rows(s);
    struct names names = {.number = -1};
    char norm_name[SCENARIO_NAME + 16];
    int64_t *ids = calloc(s->token_count + 1, sizeof *ids);
    for (size_t i = 0; i < s->token_count; i++)
        ids[i] = s->tokens[i].id;
    snprintf(names.layer, sizeof names.layer, "%s", s->root);
    root_inputs(s, ids);
    for (size_t i = 0; i < all(s); i++)
        rows[i].hash = scenario_mix(weights(s, EMBED, 0), (uint64_t)ids[i % s->token_count]);
    scenario_emit(s, below(&names, "embed_tokens.output"), -1, rows, s->model.hidden, 1);
    for (unsigned number = 0; number < s->model.layers; number++)
        layer(s, number, rows, residual);
    snprintf(norm_name, sizeof norm_name, "%s.norm", s->root);
    norm(s, &names, norm_name, false, weights(s, NORM, -1), rows, residual);
    scenario_emit(s, below(&names, "output"), -1, rows, s->model.hidden, 1);
    scenario_emit_integers(s, "logits_processor.inputs.0", false, -1, ids, s->token_count, 1);
    scenario_emit(s, "logits_processor.inputs.1", -1, rows, s->model.hidden, 1);
    apply(s, weights(s, HEAD, 0), rows, NULL, s->model.hidden, false, rows);
    scenario_emit_logits(s, "logits_processor.output.next_token_logits", rows, s->model.vocabulary);
    scenario_emit_logits(s, "output.next_token_logits", rows, s->model.vocabulary);
    free(rows);
    free(residual);
    free(ids);
}
