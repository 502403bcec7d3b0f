/* fuzz_seeds FOLDER: writes the fuzzers' first inputs to FOLDER/TARGET/: every file of tests/unit/hostile_files.c and
 * its pickle, a rids file, and names. The same bytes every time. */
#include "dump_files.h"
#include "fuzz.h"
#include "hostile_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const names[] = {
    "step=0___rank=0___dump_index=3___name=input_ids___recompute_status=disabled.pt",
    "step=17___rank=1___dump_index=900719925474099___name=non_intrusive__model.layers.35.self_attn.qkv_proj.inputs.0___"
    "recompute_status=disabled___layer_id=35.pt",
    "step=0___rank=0___dump_index=1___name=non_intrusive__inputs.forward_batch___recompute_status=disabled.pt",
    "step=0___rank=0___dump_index=1___name=non_intrusive__model.norm.output.1___recompute_status=original___layer_id=1_"
    "__"
    "pp_rank=0___tp_rank=1.pt",
    "step=-1___rank=0___dump_index=1___name=a.pt",
    "step=0___rank=0___dump_index=18446744073709551616___name=a___recompute_status=disabled.pt",
    "step=0___rank=0___name=a___dump_index=1.pt",
    "step=0___rank=0___dump_index=1___name=___recompute_status=disabled.pt",
    "x\x1b[31m\n.pt",
};

static void write_seed(const char *folder, const char *target, const char *name, const void *bytes, size_t length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", folder, target, name);
    FILE *stream = fopen(path, "wb");
    FUZZ_MUST(stream != NULL && fwrite(bytes, 1, length, stream) == length && fclose(stream) == 0);
}

/* A whole file, and what is in its data.pkl. */
static void write_file(const char *folder, const char *name, const struct buffer *bytes)
{
    struct pt_zip zip;
    const uint8_t *pickle;
    write_seed(folder, "container", name, bytes->data, bytes->length);
    write_seed(folder, "meta", name, bytes->data, bytes->length);
    pt_zip_init(&zip);
    if (pt_zip_read_memory(&zip, bytes->data, bytes->length, NULL) == ERROR_NONE) {
        const struct pt_zip_member *member = pt_zip_find(&zip, "data.pkl");
        if (member != NULL && pt_zip_payload_memory(&zip, member, &pickle, NULL) == ERROR_NONE)
            write_seed(folder, "pickle", name, pickle, member->size);
    }
    pt_zip_fini(&zip);
}

static void write_files(const char *folder)
{
    static const char *const ids[] = {"a", "b", "a"};
    const struct hostile_file *hostile;
    struct buffer bytes, pickle;
    buffer_init(&bytes);
    buffer_init(&pickle);
    for (size_t i = 0; (hostile = hostile_files_make(i, &bytes)) != NULL; i++) {
        write_file(folder, hostile->id, &bytes);
        buffer_clear(&bytes);
    }
    dump_files_pickle(&pickle, ids, 3);
    dump_files_archive(&bytes, "x", &(const struct dump_files_member){"data.pkl", pickle.data, pickle.length}, 1);
    write_file(folder, "rids", &bytes);
    buffer_fini(&pickle);
    buffer_fini(&bytes);
}

int main(int argc, char **argv)
{
    static const char *const targets[] = {"container", "pickle", "dump_name", "meta"};
    FUZZ_MUST(argc == 2);
    mkdir(argv[1], 0777);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], targets[i]);
        mkdir(path, 0777);
    }
    write_files(argv[1]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "%zu", i);
        write_seed(argv[1], "dump_name", name, names[i], strlen(names[i]));
    }
    return 0;
}
