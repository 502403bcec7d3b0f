/* Minimum, maximum, mean and the like of a tensor's elements. */
#pragma once

#include "pt/pt_file.h"

/* Of complex elements both parts count as numbers, of packed pairs both of them. */
struct pt_summary {
    uint64_t numbers;
    uint64_t nans, infinities, zeros; /* infinities of either sign */
    double min, max;                  /* of the numbers that are no NaN; NAN where there are none */
    double mean, rms;                 /* of the finite ones; NAN where there are none */
};

/* True where the tensor is larger than its storage and than 1 GiB: written out or counted it would be work that a few
 * bytes ask for. */
bool pt_summary_is_inflated(const struct pt_file_tensor *tensor);

/* Reads all elements; ERROR_TOO_LARGE for an inflated tensor, else as pt_file_elements. */
enum error_code pt_summary_read(struct pt_file *file, struct pt_summary *ret_summary, struct error *err);
