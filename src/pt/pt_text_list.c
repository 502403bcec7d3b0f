#include "pt/pt_text_list.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    OP_MARK = 0x28,
    OP_EMPTY_LIST = 0x5d,
    OP_EMPTY_DICT = 0x7d,
    OP_APPEND = 0x61,
    OP_APPENDS = 0x65,
    OP_BINUNICODE = 0x58,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINPUT = 0x71,
    OP_LONG_BINPUT = 0x72,
    OP_MEMOIZE = 0x94,
    OP_BINGET = 0x68,
    OP_LONG_BINGET = 0x6a,
    OP_PROTO = 0x80,
    OP_FRAME = 0x95,
};

struct memo {
    uint32_t key;
    const uint8_t *text;
    size_t length;
};

struct reader {
    const uint8_t *bytes;
    size_t length, position;
    struct memo *memo; /* strings only */
    size_t memo_count;
    uint32_t next_key; /* of MEMOIZE */
    struct list found;
};

struct token {
    const uint8_t *text; /* NULL: the token is `op` */
    size_t length;
    int op; /* -1 at the end */
};

static enum error_code bad(const struct reader *reader, const char *what, struct error *err)
{
    return error_set(err, ERROR_FORMAT, "pickle at byte %zu: %s", reader->position, what);
}

static bool take(struct reader *reader, size_t count, const uint8_t **ret_bytes)
{
    if (count > reader->length - reader->position)
        return false;
    *ret_bytes = reader->bytes + reader->position;
    reader->position += count;
    return true;
}

static uint32_t little(const uint8_t *p, size_t count)
{
    uint32_t value = 0;
    for (size_t i = count; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

static void remember(struct reader *reader, uint32_t key, const struct token *token)
{
    if (reader->next_key <= key)
        reader->next_key = key + 1;
    if (token == NULL || token->text == NULL || reader->memo_count == PT_TEXT_LIST_MAX)
        return;
    if ((reader->memo_count & (reader->memo_count - 1)) == 0)
        reader->memo =
            memory_resize(reader->memo, reader->memo_count == 0 ? 1 : 2 * reader->memo_count, sizeof *reader->memo);
    reader->memo[reader->memo_count++] = (struct memo){.key = key, .text = token->text, .length = token->length};
}

/* Eats what stores the value just read in the memo, frames and the protocol's number. */
static bool skip_stores(struct reader *reader, const struct token *token)
{
    const uint8_t *p;
    while (reader->position < reader->length) {
        uint8_t op = reader->bytes[reader->position];
        size_t count = op == OP_BINPUT || op == OP_PROTO ? 1 : op == OP_LONG_BINPUT ? 4 : op == OP_FRAME ? 8 : 0;
        if (count == 0 && op != OP_MEMOIZE)
            return true;
        if (!take(reader, 1 + count, &p))
            return false;
        if (op == OP_MEMOIZE)
            remember(reader, reader->next_key, token);
        else if (op != OP_PROTO && op != OP_FRAME)
            remember(reader, little(p + 1, count), token);
    }
    return true;
}

static bool recall(const struct reader *reader, uint32_t key, struct token *token)
{
    for (size_t i = reader->memo_count; i-- > 0;)
        if (reader->memo[i].key == key) {
            token->text = reader->memo[i].text;
            token->length = reader->memo[i].length;
            return true;
        }
    return false;
}

/* The next string or other opcode, and the stores behind it; false: cut short, or the memo has no such string. */
static bool next(struct reader *reader, struct token *ret_token)
{
    const uint8_t *p;
    struct token token = {.op = -1};
    if (!take(reader, 1, &p)) {
        *ret_token = token;
        return true;
    }
    token.op = p[0];
    size_t width = token.op == OP_BINUNICODE || token.op == OP_LONG_BINGET    ? 4
                   : token.op == OP_SHORT_BINUNICODE || token.op == OP_BINGET ? 1
                                                                              : 0;
    if (width != 0) {
        if (!take(reader, width, &p))
            return false;
        uint32_t value = little(p, width);
        if (token.op == OP_BINGET || token.op == OP_LONG_BINGET) {
            if (!recall(reader, value, &token))
                return false;
        } else {
            token.length = value;
            if (!take(reader, value, &token.text))
                return false;
        }
    }
    if (!skip_stores(reader, &token))
        return false;
    *ret_token = token;
    return true;
}

static enum error_code add(struct reader *reader, const struct token *token, struct error *err)
{
    if (token->length > PT_TEXT_LIST_TEXT_MAX || reader->found.count == PT_TEXT_LIST_MAX)
        return error_set(err, ERROR_TOO_LARGE, "pickle at byte %zu: more than %d strings, or one of more than %d bytes",
                         reader->position, PT_TEXT_LIST_MAX, PT_TEXT_LIST_TEXT_MAX);
    if (!text_is_utf8((const char *)token->text, token->length) || memchr(token->text, 0, token->length) != NULL)
        return bad(reader, "a string that is not UTF-8", err);
    char *text = memory_copy_n((const char *)token->text, token->length);
    list_add(&reader->found, text);
    free(text);
    return ERROR_NONE;
}

/* Items between MARK and APPENDS. */
static enum error_code read_batch(struct reader *reader, struct error *err)
{
    for (;;) {
        struct token token;
        if (!next(reader, &token) || token.op < 0)
            return bad(reader, "the list of strings is cut short", err);
        if (token.text == NULL)
            return token.op == OP_APPENDS ? ERROR_NONE : bad(reader, "the list holds something else than strings", err);
        enum error_code code = add(reader, &token, err);
        if (code != ERROR_NONE)
            return code;
    }
}

static enum error_code read_items(struct reader *reader, struct error *err)
{
    for (;;) {
        struct token token;
        if (!next(reader, &token) || token.op < 0)
            return bad(reader, "the list of strings is cut short", err);
        if (token.op == OP_MARK) {
            enum error_code code = read_batch(reader, err);
            if (code != ERROR_NONE)
                return code;
            continue;
        }
        if (token.text == NULL)
            return bad(reader, "the list holds something else than strings", err);
        if (reader->position == reader->length)
            return bad(reader, "the list of strings is cut short", err);
        /* A string that is not appended is the next key of the dict: the list has ended. */
        if (reader->bytes[reader->position] != OP_APPEND)
            return ERROR_NONE;
        reader->position++;
        enum error_code code = add(reader, &token, err);
        if (code != ERROR_NONE)
            return code;
    }
}

static enum error_code read_value(struct reader *reader, struct error *err)
{
    static const int opening[] = {OP_EMPTY_DICT, OP_MARK, OP_BINUNICODE, OP_EMPTY_LIST};
    if (reader->length < 2 || reader->bytes[0] != OP_PROTO || reader->bytes[1] < 2 || reader->bytes[1] > 5)
        return bad(reader, "does not begin as protocol 2 to 5", err);
    if (!skip_stores(reader, NULL))
        return bad(reader, "cut short", err);
    for (size_t i = 0; i < sizeof opening / sizeof opening[0]; i++) {
        struct token token;
        if (!next(reader, &token))
            return bad(reader, "cut short", err);
        bool fits = opening[i] == OP_BINUNICODE
                        ? token.text != NULL && token.length == 5 && memcmp(token.text, "value", 5) == 0
                        : token.op == opening[i];
        if (!fits)
            return bad(reader, "not a dict whose first key is \"value\" with a list", err);
    }
    return read_items(reader, err);
}

enum error_code pt_text_list_read(const void *pickle, size_t length, struct list *ret_list, struct error *err)
{
    struct reader reader = {.bytes = pickle, .length = length};
    enum error_code code = read_value(&reader, err);
    if (code == ERROR_NONE)
        list_add_all(ret_list, list_vector(&reader.found));
    list_fini(&reader.found);
    free(reader.memo);
    return code;
}
