#include "ctl/foreign.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

bool foreign_seen(const struct foreign *foreign)
{
    return foreign->tokens > 0 || (!foreign->counted && foreign->at_once > 0);
}

void foreign_begin(struct foreign *foreign, const struct server_answer *load)
{
    if (foreign->begun)
        return;
    foreign->begun = true;
    foreign->looks += load->load_known;
    foreign->counted = load->prefilled_known;
    foreign->base = foreign->told = load->prefilled;
}

void foreign_send(struct foreign *foreign, uint64_t requests)
{
    foreign->sent = requests;
    foreign->was_more = false;
}

void foreign_receive(struct foreign *foreign, uint64_t least, uint64_t most)
{
    foreign->sent = 0;
    foreign->was_more = false;
    foreign->ours_least += least;
    foreign->ours_most += most;
}

static void note_time(struct foreign *foreign, int64_t wall_ms)
{
    if (foreign->first_ms == 0)
        foreign->first_ms = wall_ms;
    foreign->last_ms = wall_ms;
}

void foreign_look(struct foreign *foreign, const struct server_answer *load, int64_t wall_ms)
{
    if (!load->load_known || !foreign->begun)
        return;
    foreign->looks++;
    bool more = load->requests > foreign->sent;
    uint64_t others = more ? load->requests - foreign->sent : 0;
    if (more && foreign->was_more) {
        foreign->at_once = others > foreign->at_once ? others : foreign->at_once;
        note_time(foreign, wall_ms);
    }
    foreign->was_more = more;
}

static void count(struct foreign *foreign, uint64_t prefilled, int64_t wall_ms)
{
    uint64_t most = foreign->base + foreign->ours_most;
    uint64_t others = prefilled > most ? prefilled - most : 0;
    if (others <= foreign->tokens)
        return;
    foreign->tokens = others;
    note_time(foreign, wall_ms);
}

bool foreign_settle(struct foreign *foreign, const struct server_answer *load, bool last, int64_t wall_ms)
{
    if (!load->load_known)
        return true;
    foreign->looks++;
    /* A count that goes back is that of another process of the server, which endpoint_check names. */
    foreign->counted = foreign->counted && load->prefilled_known && load->prefilled >= foreign->told;
    foreign->told = load->prefilled;
    bool behind = load->requests > 0 || (foreign->counted && load->prefilled < foreign->base + foreign->ours_least);
    if (behind && !last)
        return false;
    if (foreign->counted)
        count(foreign, load->prefilled, wall_ms);
    if (load->requests > 0) {
        foreign->at_once = load->requests > foreign->at_once ? load->requests : foreign->at_once;
        note_time(foreign, wall_ms);
    }
    return true;
}

/* ---- reports ---- */

static const char *time_text(int64_t wall_ms, char *text, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

char *foreign_text(const struct foreign *foreign)
{
    char first[40], last[40];
    if (foreign->looks == 0)
        return memory_copy("not known: the server does not say how many requests it has; keep other clients away");
    if (!foreign_seen(foreign))
        return memory_copy(foreign->counted
                               ? "nobody else has used the server: it has computed no token of a prompt but ours"
                               : "nobody else was seen: the server was asked about once a second, so requests shorter "
                                 "than that may be missed");
    time_text(foreign->first_ms, first, sizeof first);
    time_text(foreign->last_ms, last, sizeof last);
    char *tokens = foreign->tokens > 0
                       ? memory_format("%" PRIu64 " tokens of prompts that are not ours", foreign->tokens)
                       : memory_copy("requests that are not ours");
    char *beside =
        foreign->at_once > 0 ? memory_format(", up to %" PRIu64 " at once", foreign->at_once) : memory_copy("");
    char *text =
        memory_format("somebody else has used the server: %s%s, first seen %s, last %s", tokens, beside, first, last);
    free(tokens);
    free(beside);
    return text;
}

void foreign_json(const struct foreign *foreign, struct json *root)
{
    struct json *object = json_set_object(root, "foreign");
    char text[40];
    bool is_timed = foreign_seen(foreign);
    const char *by = foreign->counted ? "count" : "sampling";
    json_set_bool(object, "seen", foreign_seen(foreign));
    json_set_string(object, "by", foreign->looks > 0 ? by : NULL);
    json_set_null(object, "tokens");
    if (foreign->counted)
        json_set_u64(object, "tokens", foreign->tokens);
    json_set_u64(object, "requests_at_once", foreign->at_once);
    json_set_string(object, "first", is_timed ? time_text(foreign->first_ms, text, sizeof text) : NULL);
    json_set_string(object, "last", is_timed ? time_text(foreign->last_ms, text, sizeof text) : NULL);
}

enum error_code foreign_check_result(const struct json *result, struct error *err)
{
    bool seen = false;
    enum error_code code = json_optional_bool(result, "foreign.seen", false, &seen, err);
    if (code == ERROR_NONE && seen)
        code =
            error_set(err, ERROR_INCOMPLETE, "somebody else has used the server while it was measured: measure again");
    return code;
}
