/* Test support: the dumps of the real SGLang in tests/data/real. Failures end the test. */
#pragma once

#include "json/json.h"

/* A new temporary folder with NAME/dec, NAME/pre, NAME/truth.json in it; see dump_files_remove. */
char *real_dump_unpack(const char *name);

/* FOLDER/NAME/truth.json; the caller frees it. */
struct json *real_dump_truth(const char *folder, const char *name);

int64_t real_dump_number(const struct json *object, const char *key);
