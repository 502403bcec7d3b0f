/* Whether somebody else uses a server while a measurement does: a pass that they share has other rows, and a cache that
 * they fill or flush is another. Two ways to know, both from the server's own account of its load (struct server_answer
 * of SERVER_LOAD):
 *
 * - counted (0.5.20 on): the tokens that all prefills since the start have computed. A request computes at least one,
 * so between two moments at which nothing of ours runs, more than ours are somebody else's, however short it was.
 * - sampled (before): the requests that run or wait, about once a second. A snapshot may be old by one look, so
 *   more than we have sent must be seen twice in a row; a request shorter than that may be missed.
 *
 * A probe of /health is in neither: on a busy server it computes nothing, on an idle one it is not counted.
 *
 * Happy path: foreign_begin on an idle server; foreign_send, foreign_look while it runs, foreign_receive,
 * foreign_settle once nothing of ours runs. Pure; one thread. */
#pragma once

#include "base/error.h"
#include "core/server.h"
#include "json/json.h"

struct foreign {
    bool begun;
    uint64_t looks;            /* that were answered */
    bool counted;              /* the server counts its tokens */
    uint64_t tokens;           /* counted: computed, and not ours */
    uint64_t at_once;          /* most requests that were seen beside ours, or while nothing of ours ran */
    int64_t first_ms, last_ms; /* when the first and the last were seen, since 1970 */
    /* private */
    uint64_t base, told, ours_least, ours_most, sent;
    bool was_more; /* the last look has shown more requests than ours */
};

/* Somebody else was there: where it is counted the count says so, else the samples. */
bool foreign_seen(const struct foreign *foreign);

/* What the server says while nothing of ours runs, and nothing of others: counting begins here. The first call counts.
 */
void foreign_begin(struct foreign *foreign, const struct server_answer *load);

/* So many requests of ours are sent; and their answers have come. `least`: tokens that they must have had computed,
 * `most`: that they can have. */
void foreign_send(struct foreign *foreign, uint64_t requests);
void foreign_receive(struct foreign *foreign, uint64_t least, uint64_t most);

/* What the server says while a batch runs, or while a flush waits for an idle server. Nothing before foreign_begin:
 * whoever was there before us is waited for. */
void foreign_look(struct foreign *foreign, const struct server_answer *load, int64_t wall_ms);

/* What it says while nothing of ours runs. True: it is idle and has counted all of ours, no further look is needed;
 * false: it may be behind, look again. `last`: there is no time for another look. */
bool foreign_settle(struct foreign *foreign, const struct server_answer *load, bool last, int64_t wall_ms);

/* One line for people, the caller's: who was seen and when, or how nobody was. */
char *foreign_text(const struct foreign *foreign);

/* The member `foreign` of a result: {"seen", "by", "tokens", "requests_at_once", "first", "last"}, as doc/kl.md says.
 */
void foreign_json(const struct foreign *foreign, struct json *root);

/* ERROR_INCOMPLETE where a result that is read again says that somebody else was seen. */
enum error_code foreign_check_result(const struct json *result, struct error *err);
