/* The directory of a torch.save archive: a zip of stored members, read from memory or from a descriptor with few reads.
 *
 * What torch writes (torch 1.13 to 2.14, looked at in files): members are stored, their names share the prefix
 * "<file name without .pt>/", sizes and offsets are true only in the central directory (local headers say 0), and the
 * file ends with central directory, zip64 end record, locator, end record. A writer that was killed or ran out of space
 * leaves a file without that end. Compressed, encrypted or spanned archives, names that could leave a folder, members
 * that overlap or lie outside are refused. Nothing is allocated from a count that the file's size does not cover.
 *
 * One pt_zip belongs to one thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PT_ZIP_MEMBERS_MAX = 65535,
    PT_ZIP_NAME_MAX = 1024,
    PT_ZIP_DIRECTORY_MAX = 8 * 1024 * 1024, /* bytes of a central directory that are read at most */
};

/* What is wrong with a file, for callers that treat the kinds differently; the error's message has the position. */
enum pt_zip_problem {
    PT_ZIP_FINE,
    PT_ZIP_EMPTY,      /* 0 bytes: the disk was full */
    PT_ZIP_TRUNCATED,  /* begins as a zip and has no end record */
    PT_ZIP_FOREIGN,    /* no zip at all; the message says what it is or how it begins */
    PT_ZIP_LEGACY,     /* torch.save from before 1.6, or with _use_new_zipfile_serialization=False */
    PT_ZIP_DAMAGED,    /* a zip whose directory is wrong, or not one that torch writes */
    PT_ZIP_UNREADABLE, /* reading failed: ERROR_SYSTEM */
};

struct pt_zip_member {
    const char *name; /* without the common prefix: "data.pkl", "data/0"; not ended by a NUL; lives in the pt_zip */
    size_t name_length;
    uint64_t size;          /* bytes of the payload */
    uint64_t header_offset; /* of the local header in the file */
    uint64_t limit;         /* where the next member or the directory begins */
    uint32_t crc;           /* 0: not recorded */
};

struct pt_zip {
    enum pt_zip_problem problem; /* of the last reading */
    uint64_t file_size;
    const char *prefix; /* of all names, without the '/'; not ended by a NUL */
    size_t prefix_length;
    struct pt_zip_member *members; /* in the directory's order */
    size_t member_count;

    /* private */
    struct pt_zip_member **order; /* as many as members; both are kept for the next archive */
    size_t member_capacity;
    struct buffer tail;     /* end of a file that was read from a descriptor */
    const uint8_t *window;  /* the bytes at hand: from window_offset to the end of the file */
    uint64_t window_offset; /* 0 for memory */
};

void pt_zip_init(struct pt_zip *zip);
void pt_zip_fini(struct pt_zip *zip); /* also of a zeroed one */

/* Reads the directory of an archive in memory, which must outlive the pt_zip; what was read before is dropped. On
 * failure there are no members, `problem` says which kind, the code is ERROR_FORMAT (or ERROR_TOO_LARGE, ERROR_MEMORY).
 */
enum error_code pt_zip_read_memory(struct pt_zip *zip, const void *bytes, size_t length, struct error *err);

/* The same from an open regular file of `size` bytes (fstat), whose offset is neither used nor changed: one read of the
 * last 4 KiB serves an ordinary file. A file that shrinks meanwhile is an error. Also ERROR_SYSTEM. */
enum error_code pt_zip_read_file(struct pt_zip *zip, int fd, uint64_t size, struct error *err);

/* The member with exactly this name after the prefix, or NULL. */
const struct pt_zip_member *pt_zip_find(const struct pt_zip *zip, const char *name);

/* Where the payload of a member stands in the file: checks the local header (signature, same name, payload before
 * `limit`), which is read from the descriptor where it is not at hand. ERROR_FORMAT, ERROR_SYSTEM. */
enum error_code pt_zip_locate(const struct pt_zip *zip, int fd, const struct pt_zip_member *member,
                              uint64_t *ret_position, struct error *err);

/* Payload of a member: checks the local header (signature, same name, payload before `limit`). From memory it points
 * into the archive. From a file it is read into `ret_bytes` (initialised; cleared first); more than `most` bytes:
 * ERROR_TOO_LARGE. */
enum error_code pt_zip_payload_memory(const struct pt_zip *zip, const struct pt_zip_member *member,
                                      const uint8_t **ret_bytes, struct error *err);
enum error_code pt_zip_payload_file(const struct pt_zip *zip, int fd, const struct pt_zip_member *member, size_t most,
                                    struct buffer *ret_bytes, struct error *err);
