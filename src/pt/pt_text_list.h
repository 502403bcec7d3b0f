/* The list of strings in a small pickle: what SGLang's dumper saves under the name `rids` is torch.save of
 * {"value": ["id", ...], "meta": {...}}, a pickle without tensors.
 *
 * Nothing is executed or built. Relied upon (protocol 2 as torch 2.11 and 2.14 write it, looked at in files; protocols
 * 4 and 5 by the pickle module's own description): the outermost dict's first key is "value" and its value is a list
 * whose items are strings, each written by BINUNICODE or SHORT_BINUNICODE, or fetched from the memo when the same
 * string object stands twice; items are appended one by one (APPEND) or in batches between MARK and APPENDS. Anything
 * else is refused. Any thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"

#include <stddef.h>

enum {
    PT_TEXT_LIST_MAX = 20000,      /* strings */
    PT_TEXT_LIST_TEXT_MAX = 65536, /* bytes of one */
};

/* Appends the strings to `ret_list` in their order; a string with a NUL byte or bytes that are not UTF-8 is refused.
 * ERROR_FORMAT with the byte position, ERROR_TOO_LARGE. */
enum error_code pt_text_list_read(const void *pickle, size_t length, struct list *ret_list, struct error *err);
