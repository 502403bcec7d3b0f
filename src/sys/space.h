/* Free space of one filesystem, read through a descriptor that is held open: a path would silently mean the parent
 * filesystem after a lazy unmount. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>

struct space {
    bool measurable;      /* false: the figures say nothing (0 blocks in all): neither full nor plenty */
    uint64_t total_bytes; /* free_bytes + what is in use, as an ordinary user counts: without root's reserve */
    uint64_t free_bytes;  /* what an ordinary user may still write */
    bool inodes_counted;  /* false: this filesystem does not count them (0 of 0) */
    uint64_t total_inodes, free_inodes;
    bool read_only; /* as the mount says; a filesystem that went read-only by an error need not say so */
};

/* Pure. Counts are in units of f_frsize (f_bsize where that is 0). More free than there are blocks is a count that went
 * below zero: 0 free. Products saturate. */
void space_from_statvfs(const struct statvfs *figures, struct space *ret_space);

/* Reads the filesystem of `fd` (any descriptor, O_PATH too). May block for ever on a dead network mount: watcher thread
 * only. Allocates nothing. ERROR_SYSTEM. */
enum error_code space_read(int fd, struct space *ret_space, struct error *err);

/* Name of the filesystem's type ("ext4", "tmpfs", "nfs"), or its number as "type 0x...". Static or in `buffer`. */
enum { SPACE_TYPE_TEXT = 24 };
const char *space_type(int fd, char buffer[SPACE_TYPE_TEXT]);

/* True for types whose free figures lag behind data that is still in memory. */
bool space_type_lags(const char *type);

/* Bytes of all filesystems together that are in memory and still to be written (Dirty, Writeback and the like of
 * /proc/meminfo, proc(5)). Per filesystem the kernel does not tell: elsewhere-bound bytes make us act too early, never
 * too late. */

/* -1 where there is no such file: then nothing is known to be pending. */
int space_open_pending(void);

/* 0 also when `fd` is -1 or cannot be read. Allocates nothing. */
uint64_t space_read_pending(int fd);

/* Pure: of the text of /proc/meminfo. Lines that are missing count as 0; sums saturate. */
uint64_t space_pending_from_text(const char *text, size_t length);
