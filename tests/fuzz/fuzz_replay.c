/* fuzz_replay FOLDER...: gives every file of FOLDER/TARGET to that fuzzer, for each of the four; no fuzzing. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const uint8_t *bytes, size_t length);
} targets[] = {
    {"container", fuzz_container}, {"pickle", fuzz_pickle}, {"dump_name", fuzz_dump_name}, {"meta", fuzz_meta}};

static void replay(const char *path, int (*run)(const uint8_t *bytes, size_t length))
{
    FILE *stream = fopen(path, "rb");
    FUZZ_MUST(stream != NULL && fseek(stream, 0, SEEK_END) == 0);
    size_t length = (size_t)ftell(stream);
    uint8_t *bytes = malloc(length == 0 ? 1 : length); /* of this size exactly: a read beyond it is found out */
    rewind(stream);
    FUZZ_MUST(bytes != NULL && fread(bytes, 1, length, stream) == length);
    fclose(stream);
    run(bytes, length);
    free(bytes);
}

static unsigned replay_all(const char *folder, size_t target)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, targets[target].name);
    DIR *open_folder = opendir(path);
    unsigned count = 0;
    if (open_folder == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", folder, targets[target].name, entry->d_name);
        replay(path, targets[target].run);
        count++;
    }
    closedir(open_folder);
    return count;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        unsigned count = 0;
        for (int k = 1; k < argc; k++)
            count += replay_all(argv[k], i);
        printf("%s: %u inputs\n", targets[i].name, count);
        FUZZ_MUST(count > 0);
    }
    return 0;
}
