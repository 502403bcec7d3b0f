/* The bare loop that `kldumpctl diff` is held against: for every .pt file of A, the file of that name in B; open, read
 * both whole with pread, memcmp, close. Prints how many pairs it read, how many differ, and the bytes of both sides.
 *
 *   bare_compare A B */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1024 * 1024 };

static void fail(const char *what)
{
    fprintf(stderr, "bare_compare: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static size_t read_window(int fd, char *into, off_t from)
{
    size_t got = 0;
    while (got < WINDOW) {
        ssize_t n = pread(fd, into + got, WINDOW - got, from + (off_t)got);
        if (n < 0)
            fail("pread");
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return got;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bare_compare A B\n");
        return 2;
    }
    static char one[WINDOW], other[WINDOW];
    int a = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC), b = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = a < 0 ? NULL : fdopendir(dup(a));
    if (b < 0 || folder == NULL)
        fail(argv[b < 0 ? 2 : 1]);
    unsigned long pairs = 0, different = 0;
    unsigned long long bytes = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 3 || strcmp(entry->d_name + length - 3, ".pt") != 0)
            continue;
        int fd_a = openat(a, entry->d_name, O_RDONLY | O_CLOEXEC),
            fd_b = openat(b, entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd_a < 0 || fd_b < 0)
            fail(entry->d_name);
        int unequal = 0;
        for (off_t from = 0;; from += WINDOW) {
            size_t got = read_window(fd_a, one, from), got_other = read_window(fd_b, other, from);
            bytes += got + got_other;
            unequal |= got != got_other || memcmp(one, other, got) != 0;
            if (got < WINDOW)
                break;
        }
        close(fd_a);
        close(fd_b);
        pairs++;
        different += unequal != 0;
    }
    printf("%lu pairs, %lu different, %llu bytes\n", pairs, different, bytes);
    return EXIT_SUCCESS;
}
