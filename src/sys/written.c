#include "sys/written.h"

#include "base/number.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool written_from_text(const char *text, size_t length, uint64_t *ret_bytes)
{
    static const char name[] = "wchar: ";
    for (size_t i = 0; i + sizeof name - 1 < length; i++)
        if ((i == 0 || text[i - 1] == '\n') && memcmp(text + i, name, sizeof name - 1) == 0)
            return number_scan(text + i + sizeof name - 1, length - i - (sizeof name - 1), ret_bytes) > 0;
    return false;
}

bool written_by(pid_t pid, uint64_t *ret_bytes)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    return length > 0 && written_from_text(text, (size_t)length, ret_bytes);
}

struct place {
    pid_t pid;
    size_t index;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Marks those of `all` that descend from a marked one; false: nothing new. */
static bool mark_children(const struct process_list *all, const struct place *places, bool *marks)
{
    bool more = false;
    for (size_t i = 0; i < all->count; i++) {
        struct place wanted = {.pid = all->items[i].parent};
        const struct place *parent =
            marks[i] ? NULL : bsearch(&wanted, places, all->count, sizeof *places, compare_places);
        if (parent != NULL && marks[parent->index])
            marks[i] = more = true;
    }
    return more;
}

uint64_t written_by_tree(const struct process_list *all, pid_t ancestor)
{
    bool *marks = calloc(all->count + 1, sizeof *marks);
    struct place *places = calloc(all->count + 1, sizeof *places);
    uint64_t sum = 0, one;
    if (marks != NULL && places != NULL) {
        for (size_t i = 0; i < all->count; i++) {
            places[i] = (struct place){all->items[i].pid, i};
            marks[i] = all->items[i].pid == ancestor;
        }
        qsort(places, all->count, sizeof *places, compare_places);
        while (mark_children(all, places, marks))
            continue;
        for (size_t i = 0; i < all->count; i++)
            if (marks[i] && written_by(all->items[i].pid, &one))
                sum = number_add(sum, one);
    }
    free(places);
    free(marks);
    return sum;
}
