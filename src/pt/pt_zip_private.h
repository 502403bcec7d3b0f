/* What pt_zip.c and pt_zip_payload.c share. */
#pragma once

#include "pt/pt_zip.h"

#define PT_ZIP_SIGNATURE_LOCAL 0x04034b50u

enum { PT_ZIP_LOCAL_BYTES = 30 }; /* of a local header, before its name */

static inline uint16_t pt_zip_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t pt_zip_get32(const uint8_t *p)
{
    return (uint32_t)pt_zip_get16(p) | (uint32_t)pt_zip_get16(p + 2) << 16;
}

static inline uint64_t pt_zip_get64(const uint8_t *p)
{
    return pt_zip_get32(p) | (uint64_t)pt_zip_get32(p + 4) << 32;
}

/* The bytes at an absolute position, or NULL when [offset, offset + length) is not wholly at hand. */
static inline const uint8_t *pt_zip_at(const struct pt_zip *zip, uint64_t offset, uint64_t length)
{
    if (offset < zip->window_offset || offset > zip->file_size || length > zip->file_size - offset)
        return NULL;
    return zip->window + (offset - zip->window_offset);
}

/* Reads all of it; a file that ends earlier is ERROR_FORMAT with PT_ZIP_TRUNCATED, a failure PT_ZIP_UNREADABLE. */
enum error_code pt_zip_private_read(struct pt_zip *zip, int fd, void *bytes, size_t length, uint64_t offset,
                                    struct error *err);
