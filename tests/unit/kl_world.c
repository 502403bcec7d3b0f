#include "kl_world.h"

#include "base/memory.h"

#include <string.h>

static uint64_t seed = 1;

double kl_world_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static void fill(struct kl_path *path)
{
    path->measured = true;
    path->request_count = KL_WORLD_REQUESTS;
    path->requests = memory_new(KL_WORLD_REQUESTS * sizeof path->requests[0]);
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++) {
        struct kl_request *request = &path->requests[i];
        size_t length = 40 + 7 * i;
        *request = (struct kl_request){.rid = memory_format("r%zu", i),
                                       .prompt_length = length,
                                       .cached_tokens = length - 1,
                                       .first = length,
                                       .count = KL_WORLD_TOKENS,
                                       .ids = memory_new(KL_WORLD_TOKENS * sizeof(int64_t)),
                                       .a = memory_new(KL_WORLD_TOKENS * sizeof(double)),
                                       .b = memory_new(KL_WORLD_TOKENS * sizeof(double))};
        for (size_t t = 0; t < KL_WORLD_TOKENS; t++)
            request->a[t] = request->b[t] = (double)(float)(-6 * kl_world_random());
    }
}

struct kl_world kl_world_new(void)
{
    struct kl_world world = {.server = {.page_size = 1, .deterministic = true}};
    for (size_t id = 0; id < KL_PATHS; id++)
        fill(&world.paths[id]);
    return world;
}

void kl_world_read(struct kl_world *world)
{
    kl_reading_fini(&world->reading);
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_measure(&world->paths[id]);
    kl_read(world->paths, &world->server, &world->reading);
}

void kl_world_fini(struct kl_world *world)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_path_fini(&world->paths[id]);
    kl_reading_fini(&world->reading);
}
/* ---- faults ---- */

void kl_world_add(struct kl_request *request, size_t from, double size)
{
    for (size_t t = from; t < request->count; t++)
        request->a[t] += size * (0.5 + kl_world_random());
}

void kl_world_spoil(struct kl_world *world, enum kl_path_id id, size_t from, double size)
{
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++)
        kl_world_add(&world->paths[id].requests[i], from, size);
}

void kl_world_noise(struct kl_world *world, enum kl_path_id id)
{
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++)
        for (size_t t = 0; t < KL_WORLD_TOKENS; t++)
            world->paths[id].requests[i].a[t] += 6e-6 * (kl_world_random() - 0.5);
}

void kl_world_noise_everywhere(struct kl_world *world)
{
    kl_world_noise(world, KL_PATH_MATCH);
    kl_world_noise(world, KL_PATH_MATCH_ALONE);
    kl_world_noise(world, KL_PATH_PREFILL_CACHE_HIT);
    kl_world_noise(world, KL_PATH_DECODE_CACHE_HIT);
}

void kl_world_decode_forgets(struct kl_world *world, size_t position)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        for (size_t i = 0; id != KL_PATH_RESTORE && i < KL_WORLD_REQUESTS; i++) {
            struct kl_request *request = &world->paths[id].requests[i];
            size_t from = position > request->first ? position - request->first : 1;
            kl_world_add(request, from < request->count ? from : request->count, 0.02);
        }
}

void kl_world_one_row(struct kl_world *world)
{
    kl_world_spoil(world, KL_PATH_MATCH, 1, 0.01);
    kl_world_spoil(world, KL_PATH_MATCH_ALONE, 1, 0.01);
    kl_world_spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.01);
    kl_world_spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.01);
}

void kl_world_length_dependent(struct kl_world *world)
{
    struct kl_path *match = &world->paths[KL_PATH_MATCH], *alone = &world->paths[KL_PATH_MATCH_ALONE];
    kl_world_spoil(world, KL_PATH_MATCH, 0, 0.01);
    kl_world_spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.01);
    kl_world_spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.01);
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++) {
        memcpy(alone->requests[i].a, match->requests[i].a, KL_WORLD_TOKENS * sizeof(double));
        memcpy(alone->requests[i].b, match->requests[i].b, KL_WORLD_TOKENS * sizeof(double));
    }
}

void kl_world_stale_prefix(struct kl_world *world)
{
    kl_world_spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.05);
    kl_world_spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.05);
    kl_world_spoil(world, KL_PATH_RESTORE, 0, 0.05);
}

void kl_world_shift(struct kl_world *world, enum kl_path_id id, int by)
{
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++) {
        struct kl_request *request = &world->paths[id].requests[i];
        for (size_t t = 0; t < request->count; t++) {
            size_t from = by < 0 ? t + 1 : t - 1;
            request->a[t] = from < request->count ? request->b[from] : -3;
        }
    }
}

void kl_world_shift_all(struct kl_world *world, int by)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        if (id != KL_PATH_RESTORE)
            kl_world_shift(world, (enum kl_path_id)id, by);
}
