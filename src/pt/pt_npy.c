#include "pt/pt_npy.h"

#include <inttypes.h>

enum { ALIGNMENT = 64, PREAMBLE = 10 };

const char *pt_npy_type(enum pt_dtype dtype)
{
    const char *type = pt_dtype_numpy(dtype);
    size_t bytes = pt_dtype_bytes(dtype);
    return type != NULL ? type : bytes == 1 ? "|u1" : bytes == 2 ? "<u2" : "<u4";
}

void pt_npy_header(const struct pt_file_tensor *tensor, struct buffer *out)
{
    struct buffer text;
    buffer_init(&text);
    buffer_format(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", pt_npy_type(tensor->dtype));
    for (unsigned i = 0; i < tensor->rank; i++)
        buffer_format(&text, "%s%" PRIu64 "%s", i == 0 ? "" : ", ", tensor->size[i], tensor->rank == 1 ? "," : "");
    buffer_text(&text, "), }");
    while ((PREAMBLE + text.length + 1) % ALIGNMENT != 0)
        buffer_text(&text, " ");
    buffer_text(&text, "\n");
    buffer_append(out, "\x93NUMPY\1\0", 8);
    buffer_append(out, (const char[]){(char)(text.length & 255), (char)(text.length >> 8)}, 2);
    buffer_append(out, text.data, text.length);
    buffer_fini(&text);
}
