/* What `kldumpctl show` looks at: one file of torch.save, or a folder of them. Text from files is made safe. */
#pragma once

#include "ctl/command.h"
#include "pt/pt_file.h"
#include "pt/pt_pickle.h"

struct inspect_options {
    bool as_json, verify;
    const char *npy; /* where to write the elements; NULL: nowhere. "-": standard output */
};

/* One file. Prints; returns the exit status. */
int inspect_file(const struct command *command, struct output *out, const char *path,
                 const struct inspect_options *options);

/* The dump files of a folder, `fd` open on it: a table, or a JSON object a line. Returns the exit status. */
int inspect_folder(const struct command *command, struct output *out, int fd, const struct inspect_options *options);

/* The exit status of a file that pt_file_open has refused. */
int inspect_status(const struct pt_file *file, const struct error *err);

/* "[4, 128]" */
void inspect_numbers(struct buffer *out, const uint64_t *numbers, unsigned count);

/* A node of a pickle as a member of a JSON object: false where what lies too deep, or beyond the first 10,000 items,
 * was left out. */
bool inspect_tree_set(struct json *object, const char *key, const struct pt_pickle *pickle, uint32_t number);

/* The same as a short text in Python's way; what is left out stands as "...". */
void inspect_tree_text(const struct pt_pickle *pickle, uint32_t number, struct buffer *out);
