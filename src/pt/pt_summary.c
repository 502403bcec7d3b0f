#include "pt/pt_summary.h"

#include <inttypes.h>
#include <math.h>

/* A sum whose rounding errors are kept and added at the end (Neumaier): the same mean whatever the blocks. */
struct sum {
    double total, lost;
};

static void add(struct sum *sum, double value)
{
    double total = sum->total + value;
    sum->lost += fabs(sum->total) >= fabs(value) ? (sum->total - total) + value : (value - total) + sum->total;
    sum->total = total;
}

struct summing {
    struct pt_summary summary;
    struct sum values, squares;
};

static void take(struct summing *summing, double value)
{
    struct pt_summary *summary = &summing->summary;
    summary->numbers++;
    if (isnan(value)) {
        summary->nans++;
        return;
    }
    if (!(value >= summary->min))
        summary->min = value;
    if (!(value <= summary->max))
        summary->max = value;
    if (isinf(value)) {
        summary->infinities++;
        return;
    }
    summary->zeros += value == 0;
    add(&summing->values, value);
    add(&summing->squares, value * value);
}

bool pt_summary_is_inflated(const struct pt_file_tensor *tensor)
{
    uint64_t bytes = tensor->elements * pt_dtype_bytes(tensor->dtype);
    return bytes > tensor->storage_bytes && bytes > UINT64_C(1) << 30;
}

enum error_code pt_summary_read(struct pt_file *file, struct pt_summary *ret_summary, struct error *err)
{
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    if (tensor == NULL)
        return error_set(err, ERROR_FORMAT, "there is no tensor in the file");
    if (pt_summary_is_inflated(tensor))
        return error_set(err, ERROR_TOO_LARGE, "%" PRIu64 " elements from a storage of %" PRIu64 " bytes",
                         tensor->elements, tensor->storage_bytes);
    struct summing summing = {.summary = {.min = NAN, .max = NAN, .mean = NAN, .rms = NAN}};
    size_t width = pt_dtype_bytes(tensor->dtype);
    unsigned parts = pt_dtype_parts(tensor->dtype);
    uint64_t most = PT_FILE_WINDOW / width;
    for (uint64_t first = 0; first < tensor->elements;) {
        uint64_t count = tensor->elements - first < most ? tensor->elements - first : most;
        const void *elements;
        enum error_code code = pt_file_elements(file, first, count, &elements, err);
        if (code != ERROR_NONE)
            return code;
        for (uint64_t i = 0; i < count; i++)
            for (unsigned part = 0; part < parts; part++)
                take(&summing, pt_dtype_part(tensor->dtype, (const char *)elements + i * width, part));
        first += count;
    }
    struct pt_summary *summary = &summing.summary;
    uint64_t finite = summary->numbers - summary->nans - summary->infinities;
    if (finite > 0) {
        summary->mean = (summing.values.total + summing.values.lost) / (double)finite;
        summary->rms = sqrt((summing.squares.total + summing.squares.lost) / (double)finite);
    }
    *ret_summary = *summary;
    return ERROR_NONE;
}
