/* The tables of a diff, and filling and freeing it. */
#include "analysis/diff.h"

#include "base/buffer.h"
#include "base/list.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdlib.h>

static const struct {
    const char *word, *sentence;
} kinds[DIFF_KIND_COUNT] = {
#define X(constant, word, sentence) {word, sentence},
#include "analysis/diff_kinds.def"
#undef X
};

static const struct {
    const char *name, *claim, *contrary;
    bool fatal;
} proofs[DIFF_PROOF_COUNT] = {
#define X(id, fatal, claim, contrary) {#id, claim, contrary, fatal},
#include "analysis/diff_proofs.def"
#undef X
};

static const struct {
    const char *name, *cause, *remedy;
    bool fatal;
} messages[DIFF_MESSAGE_COUNT] = {
#define X(id, fatal, cause, remedy) {#id, cause, remedy, fatal},
#include "analysis/diff_messages.def"
#undef X
};

const char *diff_kind_word(enum diff_kind kind)
{
    return kinds[kind].word;
}
const char *diff_kind_sentence(enum diff_kind kind)
{
    return kinds[kind].sentence;
}
const char *diff_pairing_word(enum diff_pairing pairing)
{
    static const char *const words[] = {"phases", "runs", "whole", "restored", "itself"};
    return words[pairing];
}
const char *diff_pairing_sentence(enum diff_pairing pairing)
{
    static const char *const sentences[] = {
        NULL,
        "decode rows with decode rows of another run: nothing is said about decode against prefill",
        "prefill rows with prefill rows, no side decodes: nothing is said about decode against prefill",
        "rows behind a restored prefix with the same rows of a whole prefill: nothing is said about decode against "
        "prefill",
        "each request with itself, as nothing else here belongs together: nothing is said about decode against "
        "prefill; name the folder of the decode run and that of its scoring prefill",
    };
    return sentences[pairing];
}
const char *diff_proof_claim(enum diff_proof_id id)
{
    return proofs[id].claim;
}
const char *diff_proof_contrary(enum diff_proof_id id)
{
    return proofs[id].contrary;
}
bool diff_proof_fatal(enum diff_proof_id id)
{
    return proofs[id].fatal;
}
const char *diff_proof_name(enum diff_proof_id id)
{
    return proofs[id].name;
}
const char *diff_message_name(enum diff_message_id id)
{
    return messages[id].name;
}
const char *diff_message_cause(enum diff_message_id id)
{
    return messages[id].cause;
}
const char *diff_message_remedy(enum diff_message_id id)
{
    return messages[id].remedy;
}
bool diff_message_fatal(enum diff_message_id id)
{
    return messages[id].fatal;
}

const char *diff_proof_state_word(enum diff_proof_state state)
{
    static const char *const words[] = {"unknown", "holds", "weak", "fails"};
    return words[state];
}

const char *diff_confidence_word(enum diff_confidence confidence)
{
    static const char *const words[] = {"unproven", "likely", "proven"};
    return words[confidence];
}

void diff_prove(struct diff *diff, enum diff_proof_id id, enum diff_proof_state state, const char *format, ...)
{
    struct buffer text;
    va_list arguments;
    va_start(arguments, format);
    buffer_init(&text);
    buffer_format_list(&text, format, arguments);
    va_end(arguments);
    free(diff->proofs[id].evidence);
    diff->proofs[id] = (struct diff_proof){.state = state, .evidence = buffer_steal(&text)};
    buffer_fini(&text);
}

void diff_tell(struct diff *diff, enum diff_message_id id, const char *format, ...)
{
    struct buffer text;
    va_list arguments;
    va_start(arguments, format);
    buffer_init(&text);
    buffer_format_list(&text, format, arguments);
    va_end(arguments);
    diff->messages = memory_resize(diff->messages, diff->message_count + 1, sizeof *diff->messages);
    diff->messages[diff->message_count++] = (struct diff_message){.id = id, .evidence = buffer_steal(&text)};
    buffer_fini(&text);
}

enum status diff_status(const struct diff *diff)
{
    if (!diff->usable)
        return STATUS_INCOMPLETE;
    if (diff->refused_needed)
        return STATUS_REFUSED_FILE;
    if (!diff->proven)
        return STATUS_UNPROVEN;
    return diff->verdict.kind == DIFF_KIND_NONE ? STATUS_DONE : STATUS_NO;
}

static void free_observations(struct diff *diff)
{
    for (size_t i = 0; i < diff->observation_count; i++) {
        free(diff->observations[i].name);
        free(diff->observations[i].note);
        if (diff->observations[i].marks != diff->equal_marks)
            free(diff->observations[i].marks);
    }
    free(diff->equal_marks);
    free(diff->observations);
    for (size_t i = 0; i < diff->call_count; i++) {
        free(diff->calls[i].module);
        free(diff->calls[i].name);
    }
    free(diff->calls);
}

void diff_fini(struct diff *diff)
{
    free(diff->a_path);
    free(diff->b_path);
    for (size_t i = 0; i < DIFF_PROOF_COUNT; i++)
        free(diff->proofs[i].evidence);
    for (size_t i = 0; i < diff->message_count; i++)
        free(diff->messages[i].evidence);
    free(diff->messages);
    for (size_t i = 0; i < diff->request_count; i++) {
        free(diff->requests[i].a_rid);
        free(diff->requests[i].b_rid);
    }
    free(diff->requests);
    free(diff->pairs);
    free_observations(diff);
    free(diff->verdict.reading);
    free(diff->verdict.what);
    list_vector_free(diff->verdict.blind);
    list_vector_free(diff->refused);
    *diff = (struct diff){0};
}
