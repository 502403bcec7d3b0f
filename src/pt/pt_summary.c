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

/* Sums that neither overflow nor vanish: very large and very small numbers are added up apart, scaled. */
enum { SCALE = 600, SCALE_SUM = 200 }; /* exponents of 2 */

struct summing {
    struct pt_summary summary;
    struct sum values, large_values;                  /* beyond 2^900: times 2^-SCALE_SUM */
    struct sum squares, large_squares, small_squares; /* of numbers beyond 2^400, below 2^-400: scaled */
};

static void add_finite(struct summing *summing, double value)
{
    double size = fabs(value);
    if (size > 0x1p900)
        add(&summing->large_values, ldexp(value, -SCALE_SUM));
    else
        add(&summing->values, value);
    int scale = size > 0x1p400 ? -SCALE : size < 0x1p-400 ? SCALE : 0;
    double scaled = scale == 0 ? value : ldexp(value, scale);
    add(scale < 0 ? &summing->large_squares : scale > 0 ? &summing->small_squares : &summing->squares, scaled * scaled);
}

static double total(const struct sum *sum)
{
    return sum->total + sum->lost;
}

static double mean_of(const struct summing *summing, double count)
{
    return total(&summing->values) / count + ldexp(total(&summing->large_values) / count, SCALE_SUM);
}

static double rms_of(const struct summing *summing, double count)
{
    double large = total(&summing->large_squares), middle = total(&summing->squares);
    double small = total(&summing->small_squares);
    if (large > 0)
        return ldexp(sqrt((large + ldexp(middle, -2 * SCALE)) / count), SCALE);
    if (middle > 0)
        return sqrt((middle + ldexp(small, -2 * SCALE)) / count);
    return ldexp(sqrt(small / count), -SCALE);
}

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
    add_finite(summing, value);
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
        summary->mean = mean_of(&summing, (double)finite);
        summary->rms = rms_of(&summing, (double)finite);
    }
    *ret_summary = *summary;
    return ERROR_NONE;
}
