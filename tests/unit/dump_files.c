#include "dump_files.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MUST(condition)                                                         \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #condition); \
            abort();                                                            \
        }                                                                       \
    } while (0)

static void number(struct buffer *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(i < 8 ? value >> (8 * i) : 0);
        buffer_append(out, &byte, 1);
    }
}

void dump_files_archive(struct buffer *out, const char *prefix, const struct dump_files_member *members, size_t count)
{
    size_t start = out->length;
    struct buffer directory;
    buffer_init(&directory);
    for (size_t i = 0; i < count; i++) {
        size_t offset = out->length - start, name = strlen(prefix) + 1 + strlen(members[i].name);
        size_t padding = (64 - (offset + 30 + name + 4) % 64) % 64;
        number(out, 0x04034b50, 4);
        number(out, 0x08080000, 6);
        number(out, 0, 16);
        number(out, name, 2);
        number(out, padding + 4, 2);
        buffer_format(out, "%s/%s", prefix, members[i].name);
        number(out, 0x4246, 2);
        number(out, padding, 2);
        for (size_t k = 0; k < padding; k++)
            buffer_append(out, "Z", 1);
        buffer_append(out, members[i].data, members[i].size);
        number(out, 0x08074b50, 4);
        number(out, 0, 4);
        number(out, members[i].size, 4);
        number(out, members[i].size, 4);

        number(&directory, 0x02014b50, 4);
        number(&directory, UINT64_C(0x080800000000), 8);
        number(&directory, 0, 8);
        number(&directory, members[i].size, 4);
        number(&directory, members[i].size, 4);
        number(&directory, name, 2);
        number(&directory, 0, 8);
        number(&directory, 0, 4);
        number(&directory, offset, 4);
        buffer_format(&directory, "%s/%s", prefix, members[i].name);
    }
    size_t offset = out->length - start, end = offset + directory.length;
    buffer_append(out, directory.data, directory.length);
    number(out, 0x06064b50, 4);
    number(out, 44, 8);
    number(out, 0x002d031e, 4);
    number(out, 0, 8);
    number(out, count, 8);
    number(out, count, 8);
    number(out, directory.length, 8);
    number(out, offset, 8);
    number(out, 0x07064b50, 4);
    number(out, 0, 4);
    number(out, end, 8);
    number(out, 1, 4);
    number(out, 0x06054b50, 4);
    number(out, 0, 4);
    number(out, count, 2);
    number(out, count, 2);
    number(out, directory.length, 4);
    number(out, offset, 4);
    number(out, 0, 2);
    buffer_fini(&directory);
}

static void text(struct buffer *out, const char *value, unsigned *memo)
{
    buffer_append(out, "X", 1);
    number(out, strlen(value), 4);
    buffer_text(out, value);
    buffer_append(out, "q", 1);
    number(out, (*memo)++, 1);
}

void dump_files_pickle(struct buffer *out, const char *const *ids, size_t count)
{
    unsigned memo = 1;
    buffer_append(out, "\x80\x02}q\0(", 6);
    text(out, "value", &memo);
    buffer_append(out, "]q\x02", 3);
    memo = 3;
    if (count > 1)
        buffer_append(out, "(", 1);
    for (size_t i = 0; i < count; i++)
        text(out, ids[i], &memo);
    if (count > 0)
        buffer_append(out, count > 1 ? "e" : "a", 1);
    text(out, "meta", &memo);
    buffer_append(out, "}", 1);
    buffer_append(out, "u.", 2);
}

/* In memory where there is room: a dump is thousands of small files, which take minutes on a disk. */
static const char *usual_parent(void)
{
    static const char memory[] = "/dev/shm";
    const uint64_t enough = 512 * 1024 * 1024;
    struct statvfs space;
    bool room = access(memory, W_OK | X_OK) == 0 && statvfs(memory, &space) == 0 &&
                (uint64_t)space.f_bavail * space.f_frsize >= enough;
    return room ? memory : "/tmp";
}

char *dump_files_folder(void)
{
    const char *parent = getenv("TMPDIR");
    char *path = memory_format("%s/kldump-test-XXXXXX", parent != NULL ? parent : usual_parent());
    MUST(mkdtemp(path) != NULL);
    return path;
}

void dump_files_remove(const char *folder)
{
    DIR *open_folder = opendir(folder);
    MUST(open_folder != NULL);
    for (struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *path = memory_format("%s/%s", folder, entry->d_name);
        struct stat status;
        MUST(lstat(path, &status) == 0);
        if (S_ISDIR(status.st_mode))
            dump_files_remove(path);
        else
            MUST(unlink(path) == 0);
        free(path);
    }
    closedir(open_folder);
    MUST(rmdir(folder) == 0);
}

void dump_files_write(const char *folder, const char *name, const void *bytes, size_t length)
{
    char *path = memory_format("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    MUST(fd >= 0);
    MUST(write(fd, bytes, length) == (ssize_t)length);
    MUST(close(fd) == 0);
    free(path);
}

char *dump_files_name(uint64_t step, uint32_t rank, uint64_t dump_index, const char *name, int layer)
{
    char *layer_tag = layer < 0 ? memory_copy("") : memory_format("___layer_id=%d", layer);
    char *file = memory_format("step=%" PRIu64 "___rank=%" PRIu32 "___dump_index=%" PRIu64
                               "___name=%s___recompute_status=disabled%s.pt",
                               step, rank, dump_index, name, layer_tag);
    free(layer_tag);
    return file;
}

static void write_archive(const char *folder, char *name, const struct dump_files_member *members, size_t count)
{
    struct buffer bytes;
    buffer_init(&bytes);
    char *prefix = memory_copy_n(name, strlen(name) - 3);
    dump_files_archive(&bytes, prefix, members, count);
    dump_files_write(folder, name, bytes.data, bytes.length);
    buffer_fini(&bytes);
    free(prefix);
    free(name);
}

void dump_files_tensor(const char *folder, uint64_t step, uint32_t rank, uint64_t dump_index, const char *name,
                       int layer, size_t bytes)
{
    void *data = memory_new(bytes + 1);
    const struct dump_files_member members[] = {
        {"data.pkl", "\x80\x02}.", 4}, {"byteorder", "little", 6}, {"data/0", data, bytes}, {"version", "3\n", 2}};
    write_archive(folder, dump_files_name(step, rank, dump_index, name, layer), members, 4);
    free(data);
}

void dump_files_ids(const char *folder, uint64_t step, uint32_t rank, uint64_t dump_index, const char *const *ids)
{
    size_t count = 0;
    while (ids[count] != NULL)
        count++;
    struct buffer pickle;
    buffer_init(&pickle);
    dump_files_pickle(&pickle, ids, count);
    const struct dump_files_member members[] = {{"data.pkl", pickle.data, pickle.length}, {"version", "3\n", 2}};
    write_archive(folder, dump_files_name(step, rank, dump_index, "rids", -1), members, 2);
    buffer_fini(&pickle);
}

void dump_files_pass(const char *folder, const struct dump_files_pass *pass, uint64_t *dump_index)
{
    uint64_t step = pass->step, index = *dump_index;
    uint32_t rank = pass->rank;
    size_t requests = 0;
    while (pass->ids[requests] != NULL)
        requests++;
    dump_files_tensor(folder, step, rank, ++index, "non_intrusive__inputs.0", -1, 8 * (size_t)pass->tokens);
    dump_files_tensor(folder, step, rank, ++index, "non_intrusive__inputs.1", -1, 8 * (size_t)pass->tokens);
    dump_files_tensor(folder, step, rank, ++index, "input_ids", -1, 8 * (size_t)pass->tokens);
    dump_files_tensor(folder, step, rank, ++index, "seq_lens", -1, 8 * requests);
    dump_files_tensor(folder, step, rank, ++index, "positions", -1, 8 * (size_t)pass->tokens);
    dump_files_tensor(folder, step, rank, ++index, "req_pool_indices", -1, 8 * requests);
    dump_files_ids(folder, step, rank, ++index, pass->ids);
    for (unsigned layer = pass->first_layer; layer < pass->first_layer + pass->layers; layer++) {
        char *input = memory_format("non_intrusive__model.layers.%u.mlp.inputs.0", layer);
        char *output = memory_format("non_intrusive__model.layers.%u.output", layer);
        dump_files_tensor(folder, step, rank, ++index, input, (int)layer, 64 * (size_t)pass->tokens);
        dump_files_tensor(folder, step, rank, ++index, output, -1, 64 * (size_t)pass->tokens);
        free(input);
        free(output);
    }
    dump_files_tensor(folder, step, rank, ++index, "non_intrusive__model.output", -1, 64 * (size_t)pass->tokens);
    dump_files_tensor(folder, step, rank, ++index, "non_intrusive__output.next_token_logits", -1, 128 * requests);
    *dump_index = index;
}
