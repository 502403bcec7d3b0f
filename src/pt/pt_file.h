/* One file of torch.save, opened for reading: what value it holds and, of a tensor, its elements row by row.
 *
 * Happy path: pt_file_open on a small dump file costs openat and one pread; directory (pt_zip), pickle (pt_pickle) and
 * payload are then read from memory, without allocation after the first files of that size. A larger payload is read on
 * demand, at most PT_FILE_WINDOW bytes at a time, with pread, so a file that shrinks while it is read is an error and
 * never a signal; it is not mapped. Only what strided elements reach is held as a whole, up to 32 MiB; beyond that they
 * are read run by run. Failure: every error names file, byte position, what was found and expected. Nothing is
 * executed: globals are looked up in an allow-list and become labels; a value that depends on an unknown global is
 * refused by name, one in `meta` is an opaque node (pt_file_pickle). What is relied upon: the public formats of zip,
 * pickle and torch.save (torch 1.13 to 2.14).
 *
 * A pt_file is used for many files, one after the other, by one thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "pt/pt_dtype.h"
#include "pt/pt_zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PT_FILE_RANK_MAX = 64,        /* dimensions */
    PT_FILE_WINDOW = 1024 * 1024, /* bytes of one pt_file_elements at most */
};

enum pt_file_kind {
    PT_FILE_TENSOR,
    PT_FILE_TEXTS,  /* a list of strings: rids */
    PT_FILE_NUMBER, /* int, float or bool */
    PT_FILE_TEXT,
    PT_FILE_NONE,
    PT_FILE_OTHER, /* anything else that may stand there: dict, list of numbers */
};

struct pt_file_tensor {
    enum pt_dtype dtype;
    unsigned rank; /* dimensions; 0: one element */
    uint64_t size[PT_FILE_RANK_MAX];
    uint64_t stride[PT_FILE_RANK_MAX]; /* in elements; 0 of an expanded dimension */
    uint64_t offset;                   /* of the first element in the storage, in elements */
    uint64_t elements;                 /* product of the sizes */
    bool contiguous;                   /* row-major without holes; strides of dimensions of size 1 do not count */
    bool conjugate, negative;          /* torch's lazy bits: pt_file_elements applies them */
    const char *location;              /* "cpu", "cuda:0"; lives until the next open */
    const char *storage_key;           /* "0" */
    uint64_t storage_position;         /* of its payload in the file, bytes */
    uint64_t storage_bytes;
};

struct pt_file; /* see pt_file_new */

struct pt_file *pt_file_new(void);
void pt_file_free(struct pt_file *file); /* NULL is allowed */

/* What a failed open was about, for callers that treat the kinds differently. */
enum pt_file_problem {
    PT_FILE_FINE,
    PT_FILE_MISSING,     /* ENOENT */
    PT_FILE_IRREGULAR,   /* a link, folder, pipe, device: never followed */
    PT_FILE_UNREADABLE,  /* no permission, I/O error, shrank while read */
    PT_FILE_ARCHIVE,     /* pt_zip_problem says more: empty, truncated, foreign, legacy, damaged */
    PT_FILE_PICKLE,      /* a pickle that is damaged, or not one that torch.save writes */
    PT_FILE_SUSPICIOUS,  /* asks for a global that runs code (os.system, builtins.eval, ...) */
    PT_FILE_UNSUPPORTED, /* sparse, quantized, unknown global or dtype: named */
    PT_FILE_GEOMETRY,    /* sizes, strides, storage that contradict each other */
};

/* Opens NAME in the folder (O_NOFOLLOW, regular files only) and reads `value` (or the bare object, `bare` then true)
 * and the description of its tensor. What was open before is closed. ERROR_FORMAT, ERROR_TOO_LARGE, ERROR_SYSTEM,
 * ERROR_NOT_FOUND, ERROR_FORBIDDEN, ERROR_MEMORY; pt_file_problem() says the kind. */
enum error_code pt_file_open(struct pt_file *file, int folder_fd, const char *name, struct error *err);
/* The same of a file that is in memory, `bytes` outliving what is read from it; `name` is for errors. */
enum error_code pt_file_open_memory(struct pt_file *file, const void *bytes, size_t length, const char *name,
                                    struct error *err);
enum pt_file_problem pt_file_problem(const struct pt_file *file);
/* Not damaged or out of reach, but nothing that the dumper writes: refused. */
bool pt_file_refuses(enum pt_file_problem problem);
enum pt_zip_problem pt_file_zip_problem(const struct pt_file *file);

/* Closes what is open, and gives a large file's descriptor and memory back; open does it, too. */
void pt_file_close(struct pt_file *file);

/* Of the file that is open. */
enum pt_file_kind pt_file_kind(const struct pt_file *file);
bool pt_file_bare(const struct pt_file *file);                           /* no {"value":, "meta":} around it */
const struct pt_file_tensor *pt_file_tensor(const struct pt_file *file); /* NULL: no tensor */
uint64_t pt_file_size(const struct pt_file *file); /* bytes; also of one that open refused, 0 where it got no further */

/* The strings of PT_FILE_TEXTS; ERROR_FORMAT where one has a NUL or is no UTF-8. */
enum error_code pt_file_texts(const struct pt_file *file, struct list *ret_list, struct error *err);

/* A member of `meta` ("step", "rank", "sglang_parallel_info.tp_size"): false where it is absent or of another kind. */
bool pt_file_meta_integer(const struct pt_file *file, const char *path, int64_t *ret_value);
bool pt_file_meta_text(const struct pt_file *file, const char *path, const char **ret_value); /* until the next open */

/* The tree of the file, for who shows all of it: nodes of the value and of meta (PT_PICKLE_NONE: there is none). */
struct pt_pickle;
const struct pt_pickle *pt_file_pickle(const struct pt_file *file, uint32_t *ret_value, uint32_t *ret_meta);

/* Elements first .. first+count-1 in row-major order of the tensor (whatever its strides), packed, little endian,
 * valid until the next call with this file. count * bytes <= PT_FILE_WINDOW. Contiguous ones in memory are not copied.
 * ERROR_SYSTEM, ERROR_FORMAT (shrank). */
enum error_code pt_file_elements(struct pt_file *file, uint64_t first, uint64_t count, const void **ret_elements,
                                 struct error *err);

/* Checks every recorded CRC (what open leaves out for storages). A CRC of 0 counts as not recorded. */
enum error_code pt_file_verify(struct pt_file *file, bool *ret_recorded, struct error *err);
