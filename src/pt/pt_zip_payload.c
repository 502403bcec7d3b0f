/* Members of an archive whose directory has been read. */
#include "pt/pt_zip_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const struct pt_zip_member *pt_zip_find(const struct pt_zip *zip, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < zip->member_count; i++)
        if (zip->members[i].name_length == length && memcmp(zip->members[i].name, name, length) == 0)
            return &zip->members[i];
    return NULL;
}

/* Checks a local header of PT_ZIP_LOCAL_BYTES + name bytes; gives where the payload begins. */
static enum error_code payload_offset(const struct pt_zip *zip, const struct pt_zip_member *member,
                                      const uint8_t *header, uint64_t *ret_offset, struct error *err)
{
    size_t full = zip->prefix_length + 1 + member->name_length;
    if (pt_zip_get32(header) != PT_ZIP_SIGNATURE_LOCAL || pt_zip_get16(header + 26) != full ||
        memcmp(header + PT_ZIP_LOCAL_BYTES, member->name - zip->prefix_length - 1, full) != 0)
        return error_set(err, ERROR_FORMAT, "local header at byte %" PRIu64 " is not the one that the directory names",
                         member->header_offset);
    uint64_t head = PT_ZIP_LOCAL_BYTES + full + pt_zip_get16(header + 28);
    uint64_t room = member->limit - member->header_offset;
    if (head > room || member->size > room - head)
        return error_set(err, ERROR_FORMAT,
                         "payload of %" PRIu64 " bytes after the header at byte %" PRIu64 " reaches past byte %" PRIu64,
                         member->size, member->header_offset, member->limit);
    *ret_offset = member->header_offset + head;
    return ERROR_NONE;
}

enum error_code pt_zip_locate(const struct pt_zip *zip, int fd, const struct pt_zip_member *member,
                              uint64_t *ret_position, struct error *err)
{
    uint8_t read_header[PT_ZIP_LOCAL_BYTES + PT_ZIP_NAME_MAX];
    size_t head = PT_ZIP_LOCAL_BYTES + zip->prefix_length + 1 + member->name_length;
    const uint8_t *header = pt_zip_at(zip, member->header_offset, head);
    if (header == NULL) {
        struct pt_zip reader = {.file_size = zip->file_size};
        enum error_code code = pt_zip_private_read(&reader, fd, read_header, head, member->header_offset, err);
        if (code != ERROR_NONE)
            return code;
        header = read_header;
    }
    return payload_offset(zip, member, header, ret_position, err);
}

enum error_code pt_zip_payload_memory(const struct pt_zip *zip, const struct pt_zip_member *member,
                                      const uint8_t **ret_bytes, struct error *err)
{
    uint64_t offset;
    enum error_code code = pt_zip_locate(zip, -1, member, &offset, err);
    if (code == ERROR_NONE)
        *ret_bytes = zip->window + offset;
    return code;
}

enum error_code pt_zip_payload_file(const struct pt_zip *zip, int fd, const struct pt_zip_member *member, size_t most,
                                    struct buffer *ret_bytes, struct error *err)
{
    if (member->size > most)
        return error_set(err, ERROR_TOO_LARGE, "member at byte %" PRIu64 " has %" PRIu64 " bytes; at most %zu are read",
                         member->header_offset, member->size, most);
    uint64_t offset = 0;
    enum error_code code = pt_zip_locate(zip, fd, member, &offset, err);
    if (code != ERROR_NONE)
        return code;
    char *bytes = malloc((size_t)member->size + 1);
    if (bytes == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu64 " bytes", member->size);
    struct pt_zip reader = {.file_size = zip->file_size};
    code = pt_zip_private_read(&reader, fd, bytes, (size_t)member->size, offset, err);
    if (code == ERROR_NONE) {
        buffer_clear(ret_bytes);
        buffer_append(ret_bytes, bytes, (size_t)member->size);
    }
    free(bytes);
    return code;
}
