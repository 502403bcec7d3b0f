/* dump_write.c: see dump_write.h. */
#include "dump_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults.h"
#include "log.h"

/* From below, as mkdir(parents=True) of Python's pathlib: what is there is not made, wherever it is mounted. */
static bool make(char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return true;
    char *slash = strrchr(path, '/');
    if (errno != ENOENT || slash == NULL || slash == path)
        return false;
    *slash = '\0';
    bool fine = make(path);
    *slash = '/';
    return fine && (mkdir(path, 0777) == 0 || errno == EEXIST);
}

bool dump_write_folders(const char *path)
{
    char copy[1200];
    snprintf(copy, sizeof copy, "%s", path);
    return make(copy);
}

static void skip_line(int rank, const char *error)
{
    log_dumper(rank, "Observe error=%s when saving data, skip the tensor", error);
}

/* How much of a file fits. A full disk takes whole pages of the last file that it takes, and nothing of the next. */
static size_t room_for(size_t length, const struct dump_write_about *about)
{
    static bool full; /* the one cut file of disk-full is written */
    if (about->capturing)
        return 0;
    enum { PAGE_BYTES = 4096 };
    if (faults_on(FAULTS_FAILING_WRITES) && about->dump_index % 2 == 0)
        return about->dump_index % 4 == 0 ? 0 : length * 2 / 3;
    if (!faults_on(FAULTS_DISK_FULL) || about->dump_index <= faults_number(FAULTS_DISK_FULL))
        return length;
    size_t last = !full && length > PAGE_BYTES ? (length - 1) / PAGE_BYTES * PAGE_BYTES : 0;
    full = full || last > 0;
    return last;
}

void dump_write_file(const char *path, const struct text *content, const struct dump_write_about *about)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        char error[256];
        snprintf(error, sizeof error, "open file failed with strerror: %s", strerror(errno));
        skip_line(about->rank, error);
        return;
    }
    size_t length = room_for(content->length, about), done = 0;
    while (done < length) {
        ssize_t got = write(fd, content->data + done, length - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    close(fd);
    if (done == content->length)
        return;
    char error[128];
    snprintf(error, sizeof error, "[enforce fail at inline_container.cc:672] . unexpected pos %zu vs %zu",
             content->length, done);
    skip_line(
        about->rank,
        about->capturing
            ? "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned."
        : done == 0 ? "basic_ios::clear: iostream error"
                    : error);
}
