#include "fuzz.h"
#include "pt/pt_summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 4096 };

static void ask_elements(struct pt_file *file)
{
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    const void *elements;
    uint64_t count = tensor->elements < ELEMENTS ? tensor->elements : ELEMENTS;
    char whole[ELEMENTS * 16], text[PT_DTYPE_TEXT];
    size_t width = pt_dtype_bytes(tensor->dtype);
    FUZZ_MUST(pt_file_elements(file, 0, count, &elements, NULL) == ERROR_NONE);
    memcpy(whole, elements, (size_t)count * width);
    for (uint64_t i = 0; i < count; i += 1 + i / 8) {
        FUZZ_MUST(pt_file_elements(file, i, 1, &elements, NULL) == ERROR_NONE);
        FUZZ_MUST(memcmp(elements, whole + i * width, width) == 0);
        pt_dtype_text(tensor->dtype, elements, text);
    }
    FUZZ_MUST(pt_file_elements(file, tensor->elements - (tensor->elements > 0), tensor->elements > 0, &elements,
                               NULL) == ERROR_NONE);
    struct pt_summary summary;
    if (tensor->elements < 100000)
        FUZZ_MUST(pt_summary_read(file, &summary, NULL) == ERROR_NONE);
}

static struct pt_file *file; /* one for all, as a reader of many files has it */

int fuzz_meta(const uint8_t *bytes, size_t length)
{
    if (file == NULL)
        file = pt_file_new();
    struct error err = ERROR_INIT;
    if (pt_file_open_memory(file, bytes, length, "fuzz", &err) != ERROR_NONE) {
        FUZZ_MUST(pt_file_problem(file) != PT_FILE_FINE && strncmp(err.message, "fuzz: ", 6) == 0);
        return 0;
    }
    FUZZ_MUST(pt_file_problem(file) == PT_FILE_FINE);
    static const char *const paths[] = {"step", "name", "sglang_parallel_info.tp_size", "a.b.c", "", "."};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        int64_t number;
        const char *text;
        pt_file_meta_integer(file, paths[i], &number);
        pt_file_meta_text(file, paths[i], &text);
    }
    struct list texts = {0};
    bool recorded;
    if (pt_file_texts(file, &texts, NULL) != ERROR_NONE)
        FUZZ_MUST(texts.count == 0);
    list_fini(&texts);
    pt_file_verify(file, &recorded, NULL);
    if (pt_file_tensor(file) != NULL)
        ask_elements(file);
    pt_file_close(file);
    return 0;
}
