/* pt_open FOLDER...: what opening and parsing the dump files of a folder costs above a bare open, pread, close of the
 * same files, and what comparing pairs costs beside a bare loop of open, pread both, memcmp, close. Warm; the best of
 * five. */
#include "pt/pt_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, TURNS = 5 };

struct folder {
    int fd;
    char **names;
    size_t count;
    struct pt_file *a, *b;
    char *buffer[2];
    size_t failed;
};

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static size_t read_bare(const struct folder *folder, const char *name, char *buffer)
{
    int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = pread(fd, buffer, BUFFER_BYTES, 0);
    close(fd);
    return got < 0 ? 0 : (size_t)got;
}

static void bare(struct folder *folder)
{
    for (size_t i = 0; i < folder->count; i++)
        folder->failed += read_bare(folder, folder->names[i], folder->buffer[0]) == 0;
}

static void opened(struct folder *folder)
{
    for (size_t i = 0; i < folder->count; i++)
        folder->failed += pt_file_open(folder->a, folder->fd, folder->names[i], NULL) != ERROR_NONE;
}

static void bare_pairs(struct folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        size_t a = read_bare(folder, folder->names[i], folder->buffer[0]);
        size_t b = read_bare(folder, folder->names[i], folder->buffer[1]);
        folder->failed += a != b || memcmp(folder->buffer[0], folder->buffer[1], a) != 0;
    }
}

static void opened_pairs(struct folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        const void *x, *y;
        folder->failed += pt_file_open(folder->a, folder->fd, folder->names[i], NULL) != ERROR_NONE ||
                          pt_file_open(folder->b, folder->fd, folder->names[i], NULL) != ERROR_NONE;
        const struct pt_file_tensor *tensor = pt_file_tensor(folder->a);
        if (tensor == NULL)
            continue;
        size_t bytes = tensor->elements * pt_dtype_bytes(tensor->dtype);
        if (bytes <= PT_FILE_WINDOW)
            folder->failed += pt_file_elements(folder->a, 0, tensor->elements, &x, NULL) != ERROR_NONE ||
                              pt_file_elements(folder->b, 0, tensor->elements, &y, NULL) != ERROR_NONE ||
                              memcmp(x, y, bytes) != 0;
    }
}

static double best_ns(struct folder *folder, void (*what)(struct folder *folder))
{
    double best = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        double start = now_ns();
        what(folder);
        double taken = (now_ns() - start) / (double)folder->count;
        if (turn == 0 || taken < best)
            best = taken;
    }
    return best;
}

static void measure(const char *path)
{
    struct folder folder = {.a = pt_file_new(), .b = pt_file_new()};
    DIR *open_folder = opendir(path);
    if (open_folder == NULL) {
        perror(path);
        return;
    }
    folder.fd = dirfd(open_folder);
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        if (strstr(entry->d_name, ".pt") == NULL)
            continue;
        folder.names = realloc(folder.names, (folder.count + 1) * sizeof *folder.names);
        folder.names[folder.count++] = strdup(entry->d_name);
    }
    for (int i = 0; i < 2; i++)
        folder.buffer[i] = malloc(BUFFER_BYTES);
    if (folder.count > 0) {
        double file = best_ns(&folder, opened), raw = best_ns(&folder, bare);
        double pair = best_ns(&folder, opened_pairs), raw_pair = best_ns(&folder, bare_pairs);
        printf("%zu files of %s%s\n", folder.count, path, folder.failed > 0 ? "  (SOME COULD NOT BE READ)" : "");
        printf("  a file  %5.0f ns, bare %5.0f ns, %5.0f ns above it\n", file, raw, file - raw);
        printf("  a pair  %5.0f ns, bare %5.0f ns, %5.0f %% of its speed\n", pair, raw_pair, 100 * raw_pair / pair);
    }
    for (size_t i = 0; i < folder.count; i++)
        free(folder.names[i]);
    free(folder.names);
    for (int i = 0; i < 2; i++)
        free(folder.buffer[i]);
    pt_file_free(folder.a);
    pt_file_free(folder.b);
    closedir(open_folder);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure(argv[i]);
    return argc > 1 ? 0 : 2;
}
