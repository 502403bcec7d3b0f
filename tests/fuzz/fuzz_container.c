#include "fuzz.h"
#include "pt/pt_zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void same_member(const struct pt_zip *memory, const struct pt_zip *file, size_t i, int fd)
{
    const uint8_t *payload = NULL;
    struct buffer read;
    buffer_init(&read);
    enum error_code code = pt_zip_payload_memory(memory, &memory->members[i], &payload, NULL);
    FUZZ_MUST(code == pt_zip_payload_file(file, fd, &file->members[i], SIZE_MAX / 2, &read, NULL));
    if (code == ERROR_NONE) {
        FUZZ_MUST(read.length == memory->members[i].size);
        FUZZ_MUST(read.length == 0 || memcmp(read.data, payload, read.length) == 0);
    }
    buffer_fini(&read);
}

int fuzz_container(const uint8_t *bytes, size_t length)
{
    struct pt_zip memory, file;
    struct error err = ERROR_INIT, file_err = ERROR_INIT;
    pt_zip_init(&memory);
    pt_zip_init(&file);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_MUST(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    enum error_code code = pt_zip_read_memory(&memory, bytes, length, &err);
    FUZZ_MUST(code == pt_zip_read_file(&file, fd, length, &file_err));
    FUZZ_MUST(memory.problem == file.problem && (code == ERROR_NONE) == (memory.problem == PT_ZIP_FINE));
    FUZZ_MUST(memory.member_count == file.member_count);
    for (size_t i = 0; i < memory.member_count; i++)
        same_member(&memory, &file, i, fd);
    close(fd);
    pt_zip_fini(&memory);
    pt_zip_fini(&file);
    return 0;
}
