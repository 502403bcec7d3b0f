/* A world of five paths of a KL measurement for tests: clean until it is spoilt, as real servers with faults were
 * (facts of KL). Random numbers are the same in each call of a test program. */
#pragma once

#include "analysis/kl.h"

enum { KL_WORLD_REQUESTS = 12, KL_WORLD_TOKENS = 64 };

struct kl_world {
    struct kl_path paths[KL_PATHS];
    struct kl_server server;
    struct kl_reading reading;
};

struct kl_world kl_world_new(void);
void kl_world_read(struct kl_world *world); /* measures all paths and reads them */
void kl_world_fini(struct kl_world *world);
double kl_world_random(void); /* 0 to below 1 */

/* Moves the scores of a request from its token `from` on by half to one and a half of `size`. */
void kl_world_add(struct kl_request *request, size_t from, double size);
/* The same for all requests of a path. */
void kl_world_spoil(struct kl_world *world, enum kl_path_id id, size_t from, double size);
/* What operators that are not batch-invariant leave on a float32 server: a third of the tokens beyond stray. */
void kl_world_noise(struct kl_world *world, enum kl_path_id id);
void kl_world_noise_everywhere(struct kl_world *world); /* but in restore */
void kl_world_decode_forgets(struct kl_world *world, size_t position);
void kl_world_one_row(struct kl_world *world);
void kl_world_length_dependent(struct kl_world *world); /* as a real bfloat16 server on a CPU */
void kl_world_stale_prefix(struct kl_world *world);
void kl_world_shift(struct kl_world *world, enum kl_path_id id, int by); /* by one token: -1 or 1 */
void kl_world_shift_all(struct kl_world *world, int by);                 /* but restore, which has no decode */
