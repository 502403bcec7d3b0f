/* Test support: damaged and hostile files of torch.save, each with what a reader has to say. The one list for the unit
 * test and for the seeds of the fuzzers. */
#pragma once

#include "base/buffer.h"
#include "pt/pt_file.h"

#include <stddef.h>

struct hostile_file {
    const char *id;               /* of the input's kind, and a word: also a file name */
    enum pt_file_problem problem; /* that pt_file_open has with it; PT_FILE_FINE: it is read */
    const char *part;             /* of the message; "" for a file that is read */
};

/* Number `index` of the list, its bytes appended to `out`; NULL behind the last. */
const struct hostile_file *hostile_files_make(size_t index, struct buffer *out);
