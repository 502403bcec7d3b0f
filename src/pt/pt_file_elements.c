/* Elements in row-major order from wherever they lie.
 *
 * Row-major ones without lazy bits come from memory as they are, or by one pread. For others the part of the storage
 * that the tensor reaches is at hand (in memory, or held in `spread` up to PT_FILE_SPREAD_MAX bytes), or else is read
 * run by run: slow, and never more memory. */
#include "pt/pt_crc32.h"
#include "pt/pt_file_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where the elements of a storage are read. */
struct source {
    struct pt_file *file;
    const uint8_t *bytes; /* from byte `from` of the storage on; NULL: not at hand */
    uint64_t from;
    size_t width; /* of an element */
};

static enum error_code get_window(struct pt_file *file, struct error *err)
{
    if (file->window == NULL && (file->window = malloc(PT_FILE_WINDOW)) == NULL) {
        file->problem = PT_FILE_UNREADABLE;
        return error_set(err, ERROR_MEMORY, "no memory for %d bytes", PT_FILE_WINDOW);
    }
    return ERROR_NONE;
}

/* Element index of the last element in the storage; the tensor is not empty. */
static uint64_t reach(const struct pt_file_tensor *tensor)
{
    uint64_t last = tensor->offset;
    for (unsigned i = 0; i < tensor->rank; i++)
        last += (tensor->size[i] - 1) * tensor->stride[i];
    return last;
}

/* Brings the bytes that the tensor reaches to hand, where they are few enough. */
static enum error_code spread_out(struct pt_file *file, struct source *source, struct error *err)
{
    const struct pt_file_tensor *tensor = &file->tensor;
    uint64_t from = tensor->offset * source->width, bytes = (reach(tensor) + 1) * source->width - from;
    if (file->bytes != NULL) {
        source->bytes = file->bytes + tensor->storage_position;
        source->from = 0;
        return ERROR_NONE;
    }
    if (bytes > PT_FILE_SPREAD_MAX)
        return ERROR_NONE;
    if (file->spread_bytes == 0) {
        if (file->spread_capacity < bytes) {
            free(file->spread);
            file->spread = malloc((size_t)bytes);
            file->spread_capacity = file->spread == NULL ? 0 : bytes;
        }
        if (file->spread == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %" PRIu64 " bytes", bytes);
        enum error_code code =
            pt_file_private_read(file, tensor->storage_position + from, file->spread, (size_t)bytes, err);
        if (code != ERROR_NONE)
            return code;
        file->spread_bytes = bytes;
    }
    source->bytes = file->spread;
    source->from = from;
    return ERROR_NONE;
}

static void copy_strided(uint8_t *out, const uint8_t *from, uint64_t count, uint64_t step, size_t width)
{
    for (uint64_t i = 0; i < count; i++)
        memcpy(out + i * width, from + i * step * width, width);
}

/* `count` elements from element `index` of the storage on, `step` apart. */
static enum error_code copy_run(const struct source *source, uint64_t index, uint64_t count, uint64_t step,
                                uint8_t *out, struct error *err)
{
    size_t width = source->width;
    if (source->bytes != NULL) {
        const uint8_t *from = source->bytes + (index * width - source->from);
        if (step == 1)
            memcpy(out, from, (size_t)count * width);
        else
            copy_strided(out, from, count, step, width);
        return ERROR_NONE;
    }
    uint64_t position = source->file->tensor.storage_position + index * width;
    if (step == 1)
        return pt_file_private_read(source->file, position, out, (size_t)count * width, err);
    enum error_code code = ERROR_NONE;
    for (uint64_t i = 0; i < count && code == ERROR_NONE; i++)
        code = pt_file_private_read(source->file, position + i * step * width, out + i * width, width, err);
    return code;
}

/* Gathers run by run along the last dimension. */
static enum error_code gather(const struct source *source, uint64_t first, uint64_t count, uint8_t *out,
                              struct error *err)
{
    const struct pt_file_tensor *tensor = &source->file->tensor;
    uint64_t at[PT_FILE_RANK_MAX], index = tensor->offset, rest = first;
    for (unsigned i = tensor->rank; i-- > 0;) {
        at[i] = rest % tensor->size[i];
        rest /= tensor->size[i];
        index += at[i] * tensor->stride[i];
    }
    unsigned inner = tensor->rank - 1; /* a tensor of rank 0 is contiguous and may come here with lazy bits only */
    while (count > 0) {
        uint64_t run = tensor->rank == 0 ? 1 : tensor->size[inner] - at[inner];
        if (run > count)
            run = count;
        enum error_code code = copy_run(source, index, run, tensor->rank == 0 ? 1 : tensor->stride[inner], out, err);
        if (code != ERROR_NONE)
            return code;
        out += run * source->width;
        count -= run;
        if (count == 0)
            break;
        index -= at[inner] * tensor->stride[inner];
        at[inner] = 0;
        for (unsigned i = inner; i-- > 0;) {
            index += tensor->stride[i];
            if (++at[i] < tensor->size[i])
                break;
            index -= at[i] * tensor->stride[i];
            at[i] = 0;
        }
    }
    return ERROR_NONE;
}

/* Flips the signs that torch would flip on reading. A sign is the top bit of the last byte of a number. */
static void apply_lazy_bits(const struct pt_file_tensor *tensor, uint8_t *bytes, uint64_t count)
{
    bool complex = pt_dtype_kind(tensor->dtype) == PT_DTYPE_KIND_COMPLEX;
    size_t width = pt_dtype_bytes(tensor->dtype), part = complex ? width / 2 : width;
    for (uint64_t i = 0; i < count; i++, bytes += width) {
        if (tensor->negative)
            bytes[part - 1] ^= 0x80;
        if (complex && tensor->negative != tensor->conjugate)
            bytes[width - 1] ^= 0x80;
    }
}

static enum error_code get_elements(struct pt_file *file, uint64_t first, uint64_t count, const void **ret_elements,
                                    struct error *err)
{
    const struct pt_file_tensor *tensor = &file->tensor;
    bool lazy = tensor->conjugate || tensor->negative;
    struct source source = {.file = file, .width = pt_dtype_bytes(tensor->dtype)};
    if (tensor->contiguous && !lazy && file->bytes != NULL) {
        *ret_elements = file->bytes + tensor->storage_position + (tensor->offset + first) * source.width;
        return ERROR_NONE;
    }
    enum error_code code = get_window(file, err);
    if (code == ERROR_NONE && count > 0 && (!tensor->contiguous || file->bytes != NULL))
        code = spread_out(file, &source, err);
    if (code == ERROR_NONE && count > 0)
        code = tensor->contiguous ? copy_run(&source, tensor->offset + first, count, 1, file->window, err)
                                  : gather(&source, first, count, file->window, err);
    if (code != ERROR_NONE)
        return code;
    if (lazy)
        apply_lazy_bits(tensor, file->window, count);
    *ret_elements = file->window;
    return ERROR_NONE;
}

enum error_code pt_file_elements(struct pt_file *file, uint64_t first, uint64_t count, const void **ret_elements,
                                 struct error *err)
{
    const struct pt_file_tensor *tensor = &file->tensor;
    enum error_code code;
    if (!file->has_tensor)
        code = error_set(err, ERROR_FORMAT, "there is no tensor in the file");
    else if (first > tensor->elements || count > tensor->elements - first ||
             count > PT_FILE_WINDOW / pt_dtype_bytes(tensor->dtype))
        code = error_set(err, ERROR_TOO_LARGE, "elements %" PRIu64 " and %" PRIu64 " more of %" PRIu64, first, count,
                         tensor->elements);
    else
        code = get_elements(file, first, count, ret_elements, err);
    return pt_file_private_named(file, code, err);
}

/* ---- checksums ---- */

static enum error_code member_crc(struct pt_file *file, uint64_t position, uint64_t size, uint32_t *ret_crc,
                                  struct error *err)
{
    uint32_t crc = 0;
    if (file->bytes != NULL) {
        *ret_crc = pt_crc32(0, file->bytes + position, (size_t)size);
        return ERROR_NONE;
    }
    enum error_code code = get_window(file, err);
    for (uint64_t done = 0; code == ERROR_NONE && done < size;) {
        size_t part = size - done < PT_FILE_WINDOW ? (size_t)(size - done) : PT_FILE_WINDOW;
        code = pt_file_private_read(file, position + done, file->window, part, err);
        if (code == ERROR_NONE)
            crc = pt_crc32(crc, file->window, part);
        done += part;
    }
    if (code == ERROR_NONE)
        *ret_crc = crc;
    return code;
}

static enum error_code verify(struct pt_file *file, bool *ret_recorded, struct error *err)
{
    bool recorded = false;
    for (size_t i = 0; i < file->zip.member_count; i++) {
        const struct pt_zip_member *member = &file->zip.members[i];
        if (member->crc == 0)
            continue;
        recorded = true;
        uint64_t position;
        uint32_t crc;
        enum error_code code = pt_zip_locate(&file->zip, file->fd, member, &position, err);
        if (code == ERROR_NONE)
            code = member_crc(file, position, member->size, &crc, err);
        if (code != ERROR_NONE)
            return code;
        if (crc != member->crc) {
            file->problem = PT_FILE_ARCHIVE;
            return error_set(err, ERROR_FORMAT,
                             "member %.*s at byte %" PRIu64 " has the CRC %08" PRIx32 "; %08" PRIx32
                             " was recorded: the file is damaged",
                             (int)member->name_length, member->name, position, crc, member->crc);
        }
    }
    *ret_recorded = recorded;
    return ERROR_NONE;
}

enum error_code pt_file_verify(struct pt_file *file, bool *ret_recorded, struct error *err)
{
    return pt_file_private_named(file, verify(file, ret_recorded, err), err);
}
