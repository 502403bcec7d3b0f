/* torch_read FOLDER: reads every file of torch_dumps.py's manifest with pt_file and compares shape, type and elements
 * with what is expected: in one piece, and in pieces of other sizes. Prints how many files; status 1 on a difference.
 */
#include "pt/pt_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct line {
    char name[64], dtype[64];
    uint64_t offset, bytes;
    unsigned rank;
    uint64_t size[PT_FILE_RANK_MAX];
};

static bool parse(char *text, struct line *ret_line)
{
    int used = 0;
    if (sscanf(text, "%63s %63s %" SCNu64 " %" SCNu64 "%n", ret_line->name, ret_line->dtype, &ret_line->offset,
               &ret_line->bytes, &used) != 4)
        return false;
    ret_line->rank = 0;
    for (char *at = text + used, *end; ret_line->rank < PT_FILE_RANK_MAX; at = end) {
        ret_line->size[ret_line->rank] = strtoull(at, &end, 10);
        if (end == at)
            break;
        ret_line->rank++;
    }
    return true;
}

static const char *compare_elements(struct pt_file *file, const unsigned char *expected, uint64_t piece,
                                    struct error *err)
{
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    size_t width = pt_dtype_bytes(tensor->dtype);
    for (uint64_t first = 0; first < tensor->elements; first += piece) {
        uint64_t count = tensor->elements - first < piece ? tensor->elements - first : piece;
        const void *elements;
        if (pt_file_elements(file, first, count, &elements, err) != ERROR_NONE)
            return err->message;
        if (memcmp(elements, expected + first * width, (size_t)count * width) != 0)
            return "the elements are others";
    }
    return NULL;
}

static const char *compare(struct pt_file *file, int folder, const struct line *line, const unsigned char *expected,
                           struct error *err)
{
    bool recorded;
    if (pt_file_open(file, folder, line->name, err) != ERROR_NONE || pt_file_verify(file, &recorded, err) != ERROR_NONE)
        return err->message;
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    if (tensor == NULL)
        return "no tensor";
    if (strcmp(pt_dtype_name(tensor->dtype), line->dtype) != 0)
        return "another element type";
    if (tensor->rank != line->rank || memcmp(tensor->size, line->size, line->rank * sizeof line->size[0]) != 0)
        return "another shape";
    size_t width = pt_dtype_bytes(tensor->dtype);
    if (tensor->elements * width != line->bytes)
        return "another number of elements";
    const uint64_t pieces[] = {PT_FILE_WINDOW / width, 7, 1000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const char *failure = tensor->elements / pieces[i] > 100000
                                  ? NULL
                                  : compare_elements(file, expected + line->offset, pieces[i], err);
        if (failure != NULL)
            return failure;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char path[4096], text[4096];
    if (argc != 2)
        return 2;
    int folder = open(argv[1], O_RDONLY | O_DIRECTORY);
    int contents = openat(folder, "expected", O_RDONLY);
    struct stat status;
    snprintf(path, sizeof path, "%s/manifest", argv[1]);
    FILE *manifest = fopen(path, "r");
    if (manifest == NULL || fstat(contents, &status) != 0)
        return 2;
    const unsigned char *expected = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, contents, 0);
    struct pt_file *file = pt_file_new();
    unsigned files = 0, wrong = 0;
    while (fgets(text, sizeof text, manifest) != NULL) {
        struct line line;
        struct error err = ERROR_INIT;
        if (!parse(text, &line))
            return 2;
        const char *failure = compare(file, folder, &line, expected, &err);
        files++;
        if (failure != NULL && wrong++ < 20)
            printf("%s %s: %s\n", line.name, line.dtype, failure);
    }
    pt_file_free(file);
    fclose(manifest);
    printf("%u files, %u wrong\n", files, wrong);
    return wrong != 0;
}
