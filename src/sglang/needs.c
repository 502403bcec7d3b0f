#include "sglang/needs.h"

#include <stddef.h>
#include <string.h>

bool needs_is_shared_memory(const char *name)
{
    static const char *const prefixes[] = {
        "sglang_loads_",         /* one for each server: srt/managers/load_snapshot.py */
        "sgl_shm_mq_",           /* its queues between processes */
        "multi_tokenizer_args_", /* several tokenizer workers */
        "psm_",                  /* Python's multiprocessing.shared_memory */
        "sem.mp-", "sem.loky-",  /* its semaphores, and those of joblib */
        "nccl-",                 /* NCCL, between the ranks of one machine */
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}
