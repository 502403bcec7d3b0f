/* What a server takes of the machine besides memory and GPUs, and what it leaves. SGLang 0.5.23. Pure. */
#pragma once

#include <stdbool.h>

enum {
    /* The soft limit of open files that each process sets for itself (srt/utils/common.py, set_ulimit); where the hard
     * limit is lower it keeps what it was given. */
    NEEDS_OPEN_FILES = 65535,
    /* Below its TMPDIR: "/tmpXXXXXXXX", the sockets between its processes, and the longest that Python's
     * multiprocessing makes there, "/pymp-XXXXXXXX/listener-XXXXXXXX". */
    NEEDS_SOCKET_NAME = 12,
    NEEDS_LONGEST_SOCKET_NAME = 32,
    /* Of shared memory: segments of NCCL for each pair of ranks, and its own of some KiB. */
    NEEDS_SHARED_MEMORY_MIB = 256,
};

/* True for the name of a file in /dev/shm as a server and what it runs on make them; those that nobody has mapped were
 * left by a server that was killed, as its resource tracker was killed with it. */
bool needs_is_shared_memory(const char *name);

/* The dumper asks the kernel from which address this one would be reached, for the address of its control channel
 * between ranks; without a route there it takes what the host name says, unless that is 127.0.0.1, and then none: the
 * first control call hangs (srt/debug_utils/dumper.py, _get_local_ip_by_remote). Nothing is sent. */
#define NEEDS_REMOTE_ADDRESS "8.8.8.8"
