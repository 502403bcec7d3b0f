#include "sglang/filter.h"

#include "base/number.h"
#include "base/text.h"
#include "sglang/filter_pattern.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_MOST = 65535 };

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_SIGN, TOKEN_OTHER };

struct parser {
    const char *text;
    struct { /* the token that comes next */
        enum token_kind kind;
        size_t at, length;
    } next;
    unsigned int depth;
    bool has_layer; /* where we are, layer_id is known to be a number */
    struct error *err;
};

/* What a condition tells about layer_id. */
struct meaning {
    bool number_when_true, number_when_false;
};

enum operand {
    OPERAND_VARIABLE, /* name, recompute_status: always text */
    OPERAND_LAYER,    /* layer_id: a number or None */
    OPERAND_TEXT,
    OPERAND_NUMBER,
    OPERAND_NONE,
    OPERAND_TEXTS, /* lists */
    OPERAND_NUMBERS,
    OPERAND_CALL, /* search(...), match(...) */
    OPERAND_TRUTH /* True, False */
};

/* Words that look as if they worked. */
static const struct {
    const char *word, *advice;
} foreign_words[] = {
    {"step", "a filter does not see it, so this is never true: choose passes with `kldumpctl dump --passes`"},
    {"rank", "a filter does not see it, so this is never true: every rank writes its own files"},
    {"dump_index", "a filter does not see it, so this is never true"},
    {"re", "write search(...) or match(...) without 're.'"},
    {"range", "there are no functions but search and match: write the numbers out, layer_id in [0, 1, 2]"},
    {"len", "there are no functions but search and match"},
    {"lambda", "only conditions are taken"},
    {"true", "write True"},
    {"false", "write False"},
    {"none", "write None"},
    {"AND", "write and"},
    {"OR", "write or"},
    {"NOT", "write not"},
};

static const struct {
    const char *sign, *advice;
} foreign_signs[] = {
    {"=", "to compare, write == or in, as in layer_id in [0, 1]"},
    {"&", "write and"},
    {"|", "write or"},
    {"!", "write not"},
    {"{", "write a list: [0, 1]"},
    {".", "attributes are not taken: for name.startswith('x') write match('x', name)"},
    {"-", "only whole numbers from 0 on are there: write them out, layer_id in [0, 1, 2]"},
};

/* Always false, so that `return refuse(...)` reads well. */
static bool refuse(struct parser *p, size_t at, size_t length, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool refuse(struct parser *p, size_t at, size_t length, const char *format, ...)
{
    char words[300], shown[40], filter[120];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    text_clean(p->text, strlen(p->text), filter, sizeof filter);
    text_clean(p->text + at, length, shown, sizeof shown);
    error_set(
        p->err, ERROR_SETTINGS,
        "DUMPER_FILTER=%s is refused at character %zu%s%s%s: %s (it runs as code inside the forward pass, where an "
        "error ends the server)",
        filter, at + 1, length > 0 ? " ('" : "", length > 0 ? shown : "", length > 0 ? "')" : "", words);
    return false;
}

static bool refuse_next(struct parser *p, const char *words)
{
    return refuse(p, p->next.at, p->next.length, "%s", words);
}

/* ---- tokens ---- */

static size_t text_length(const char *at)
{
    size_t start = at[0] == 'r' || at[0] == 'R' ? 1 : 0;
    for (size_t i = start + 1; at[i] != '\0'; i++) {
        if (at[i] == at[start])
            return i + 1;
        if (at[i] == '\\' && at[i + 1] != '\0')
            i++;
    }
    return 0;
}

static bool begins_text(const char *at)
{
    return *at == '\'' || *at == '"' || ((*at == 'r' || *at == 'R') && (at[1] == '\'' || at[1] == '"'));
}

static void advance(struct parser *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","};
    size_t at = p->next.at + p->next.length;
    at += strspn(p->text + at, " \t");
    const char *here = p->text + at;
    p->next.at = at;
    p->next.length = 1;
    p->next.kind = TOKEN_OTHER;
    if (*here == '\0') {
        p->next.kind = TOKEN_END;
        p->next.length = 0;
    } else if (begins_text(here) && text_length(here) > 0) {
        p->next.kind = TOKEN_TEXT;
        p->next.length = text_length(here);
    } else if (isalpha((unsigned char)*here) || *here == '_') {
        p->next.kind = TOKEN_WORD;
        while (isalnum((unsigned char)here[p->next.length]) || here[p->next.length] == '_')
            p->next.length++;
    } else if (isdigit((unsigned char)*here)) {
        p->next.kind = TOKEN_NUMBER;
        while (isalnum((unsigned char)here[p->next.length]) || here[p->next.length] == '_')
            p->next.length++;
    } else {
        for (size_t i = 0; i < sizeof signs / sizeof signs[0] && p->next.kind == TOKEN_OTHER; i++)
            if (text_starts(here, signs[i])) {
                p->next.kind = TOKEN_SIGN;
                p->next.length = strlen(signs[i]);
            }
    }
}

static bool is_next(const struct parser *p, const char *word)
{
    return strlen(word) == p->next.length && strncmp(p->text + p->next.at, word, p->next.length) == 0 &&
           (p->next.kind == TOKEN_WORD || p->next.kind == TOKEN_SIGN);
}

static bool accept(struct parser *p, const char *word)
{
    bool there = is_next(p, word);
    if (there)
        advance(p);
    return there;
}

/* The best advice for a token that does not belong here. */
static bool refuse_token(struct parser *p, const char *expected)
{
    const char *here = p->text + p->next.at;
    if (p->next.kind == TOKEN_END)
        return refuse(p, p->next.at, 0, "it ends too early; %s is expected", expected);
    if (p->next.kind != TOKEN_TEXT && begins_text(here))
        return refuse_next(p, "a text without its closing quote");
    for (size_t i = 0; i < sizeof foreign_words / sizeof foreign_words[0]; i++)
        if (p->next.kind == TOKEN_WORD && strlen(foreign_words[i].word) == p->next.length &&
            strncmp(here, foreign_words[i].word, p->next.length) == 0)
            return refuse_next(p, foreign_words[i].advice);
    for (size_t i = 0; i < sizeof foreign_signs / sizeof foreign_signs[0]; i++)
        if (p->next.kind == TOKEN_OTHER && *here == foreign_signs[i].sign[0])
            return refuse_next(p, foreign_signs[i].advice);
    return refuse(p, p->next.at, p->next.length, "%s is expected", expected);
}

/* ---- operands ---- */

/* A text's inside; *ret_raw: behind r, where a backslash stands for itself. */
static bool take_text(struct parser *p, const char **ret_at, size_t *ret_length, bool *ret_raw)
{
    const char *token = p->text + p->next.at;
    size_t prefix = *token == 'r' || *token == 'R' ? 1 : 0;
    *ret_raw = prefix == 1;
    *ret_at = token + prefix + 1;
    *ret_length = p->next.length - prefix - 2;
    for (size_t i = 0; i < *ret_length; i++) {
        unsigned char c = (unsigned char)(*ret_at)[i];
        size_t at = p->next.at + prefix + 1 + i;
        if (c < 0x20 || c > 0x7e)
            return refuse(p, at, 1, "no tensor's name has this byte");
        if (c == '\\' && !*ret_raw && (isalnum((unsigned char)(*ret_at)[i + 1]) || (*ret_at)[i + 1] == '\\'))
            return refuse(p, at, 2, "a backslash means something else here than in r'...': write r'...'");
    }
    char after = token[p->next.length];
    if (after == '\'' || after == '"' || isalnum((unsigned char)after))
        return refuse(p, p->next.at + p->next.length, 1, "one text only, followed by a blank, an operator or ')'");
    advance(p);
    return true;
}

static bool take_number(struct parser *p)
{
    const char *here = p->text + p->next.at;
    uint64_t value = 0;
    if (number_scan(here, p->next.length, &value) != p->next.length || value > NUMBER_MOST ||
        (here[0] == '0' && p->next.length > 1) || here[p->next.length] == '.')
        return refuse_next(p, "a whole number from 0 to 65535 without leading zeros is expected");
    advance(p);
    return true;
}

static bool take_list(struct parser *p, enum operand *ret_operand)
{
    size_t texts = 0, numbers = 0, start = p->next.at;
    const char *inside;
    size_t length;
    bool raw;
    advance(p);
    while (!is_next(p, "]")) {
        bool is_text = p->next.kind == TOKEN_TEXT;
        if (!is_text && p->next.kind != TOKEN_NUMBER)
            return refuse_token(p, "a text or a number of the list");
        if (is_text ? !take_text(p, &inside, &length, &raw) : !take_number(p))
            return false;
        texts += is_text ? 1 : 0;
        numbers += is_text ? 0 : 1;
        if (!accept(p, ",") && !is_next(p, "]"))
            return refuse_token(p, "',' or ']'");
    }
    advance(p);
    if ((texts > 0) == (numbers > 0))
        return refuse(p, start, 1, "a list of texts, or one of numbers, is expected");
    *ret_operand = texts > 0 ? OPERAND_TEXTS : OPERAND_NUMBERS;
    return true;
}

/* search(TEXT, name) and match(TEXT, name) */
static bool take_call(struct parser *p)
{
    const char *pattern;
    size_t length;
    bool raw;
    struct filter_pattern_problem problem;
    advance(p);
    if (!accept(p, "("))
        return refuse_token(p, "'(', as in search('mlp', name),");
    if (p->next.kind != TOKEN_TEXT)
        return refuse_token(p, "a text, as in search('mlp', name),");
    if (!take_text(p, &pattern, &length, &raw))
        return false;
    if (!filter_pattern_check(pattern, length, &problem))
        return refuse(p, (size_t)(pattern - p->text) + problem.at, problem.at < length ? 1 : 0, "%s", problem.what);
    if (!accept(p, ","))
        return refuse_token(p, "',' and name");
    if (!accept(p, "name") && !accept(p, "recompute_status"))
        return refuse_token(p, "name");
    return accept(p, ")") || refuse_token(p, "')'");
}

static bool take_operand(struct parser *p, enum operand *ret_operand)
{
    static const struct {
        const char *word;
        enum operand operand;
    } words[] = {
        {"name", OPERAND_VARIABLE},  {"recompute_status", OPERAND_VARIABLE},
        {"layer_id", OPERAND_LAYER}, {"None", OPERAND_NONE},
        {"True", OPERAND_TRUTH},     {"False", OPERAND_TRUTH},
    };
    const char *inside;
    size_t length;
    bool raw;
    if (is_next(p, "search") || is_next(p, "match")) {
        *ret_operand = OPERAND_CALL;
        return take_call(p);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (accept(p, words[i].word)) {
            *ret_operand = words[i].operand;
            return true;
        }
    if (is_next(p, "["))
        return take_list(p, ret_operand);
    if (p->next.kind == TOKEN_TEXT) {
        *ret_operand = OPERAND_TEXT;
        return take_text(p, &inside, &length, &raw);
    }
    if (p->next.kind == TOKEN_NUMBER) {
        *ret_operand = OPERAND_NUMBER;
        return take_number(p);
    }
    return refuse_token(p, "name, layer_id, recompute_status, a text, a number, search(...), True or False");
}

/* ---- conditions ---- */

enum comparison {
    COMPARE_EQUAL,
    COMPARE_UNEQUAL,
    COMPARE_ORDER,
    COMPARE_IN,
    COMPARE_NOT_IN,
    COMPARE_IS,
    COMPARE_IS_NOT
};

static bool accept_comparison(struct parser *p, enum comparison *ret_comparison)
{
    static const struct {
        const char *sign;
        enum comparison comparison;
    } signs[] = {
        {"==", COMPARE_EQUAL}, {"!=", COMPARE_UNEQUAL}, {"<=", COMPARE_ORDER}, {">=", COMPARE_ORDER},
        {"<", COMPARE_ORDER},  {">", COMPARE_ORDER},    {"in", COMPARE_IN},    {"is", COMPARE_IS},
    };
    struct parser before = *p;
    *ret_comparison = COMPARE_NOT_IN;
    if (accept(p, "not") && accept(p, "in"))
        return true;
    *p = before; /* a "not" of its own belongs to somebody else */
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (accept(p, signs[i].sign)) {
            *ret_comparison = signs[i].comparison;
            if (*ret_comparison == COMPARE_IS && accept(p, "not"))
                *ret_comparison = COMPARE_IS_NOT;
            return true;
        }
    return false;
}

static bool both(enum operand left, enum operand right, enum operand one, enum operand other)
{
    return (left == one && right == other) || (left == other && right == one);
}

/* Which pairs can be compared without an error and without a foregone result. */
static bool check_pair(struct parser *p, size_t at, size_t length, enum operand left, enum comparison how,
                       enum operand right)
{
    switch (how) {
    case COMPARE_EQUAL:
    case COMPARE_UNEQUAL:
        if (both(left, right, OPERAND_VARIABLE, OPERAND_TEXT) || both(left, right, OPERAND_LAYER, OPERAND_NUMBER))
            return true;
        return refuse(p, at, length,
                      "name and recompute_status are texts, layer_id is a number or None: write name == 'x', "
                      "layer_id == 0 or layer_id is None");
    case COMPARE_ORDER:
        if (!both(left, right, OPERAND_LAYER, OPERAND_NUMBER))
            return refuse(p, at, length, "only layer_id and a number have an order");
        return p->has_layer || refuse(p, at, length,
                                      "layer_id is None for tensors outside the layers, and this fails "
                                      "there: write layer_id is None or layer_id < 3, or layer_id in "
                                      "[0, 1, 2]");
    case COMPARE_IN:
    case COMPARE_NOT_IN:
        if ((left == OPERAND_VARIABLE && right == OPERAND_TEXTS) ||
            (left == OPERAND_LAYER && right == OPERAND_NUMBERS) || (left == OPERAND_TEXT && right == OPERAND_VARIABLE))
            return true;
        return refuse(p, at, length, "write 'mlp' in name, name in ['a', 'b'] or layer_id in [0, 1]");
    case COMPARE_IS:
    case COMPARE_IS_NOT:
        if (right == OPERAND_NONE && (left == OPERAND_LAYER || left == OPERAND_CALL))
            return true;
        return refuse(p, at, length,
                      "only layer_id is None and search(...) is None are taken; texts and numbers are "
                      "compared with ==");
    }
    return false;
}

static bool take_condition(struct parser *p, struct meaning *ret_meaning);

static bool take_comparison(struct parser *p, struct meaning *ret_meaning)
{
    enum operand left, right;
    enum comparison how, again;
    size_t start = p->next.at, sign, sign_length;
    *ret_meaning = (struct meaning){false, false};
    if (!take_operand(p, &left))
        return false;
    sign = p->next.at;
    sign_length = p->next.length;
    if (!accept_comparison(p, &how)) {
        if (left == OPERAND_CALL || left == OPERAND_TRUTH)
            return true;
        if (p->next.kind == TOKEN_OTHER)
            return refuse_token(p, "a comparison");
        return refuse(p, start, sign - start,
                      "this alone is no condition: compare it, as in name == 'input_ids' or layer_id in "
                      "[0]");
    }
    if (!take_operand(p, &right) || !check_pair(p, sign, sign_length, left, how, right))
        return false;
    if (left == OPERAND_LAYER || right == OPERAND_LAYER) {
        ret_meaning->number_when_true = how == COMPARE_EQUAL || how == COMPARE_IN || how == COMPARE_IS_NOT;
        ret_meaning->number_when_false = how == COMPARE_UNEQUAL || how == COMPARE_NOT_IN || how == COMPARE_IS;
    }
    sign = p->next.at;
    sign_length = p->next.length;
    if (accept_comparison(p, &again))
        return refuse(p, sign, sign_length,
                      "one comparison at a time: join them with and, or write layer_id in [0, 1, 2]");
    return true;
}

static bool take_negation(struct parser *p, struct meaning *ret_meaning)
{
    bool negated = false;
    while (accept(p, "not"))
        negated = !negated;
    if (accept(p, "(")) {
        if (++p->depth > FILTER_DEPTH)
            return refuse_next(p, "more than 32 parentheses inside each other");
        if (!take_condition(p, ret_meaning))
            return false;
        if (!accept(p, ")"))
            return refuse_token(p, "and, or or ')'");
        p->depth--;
    } else if (!take_comparison(p, ret_meaning)) {
        return false;
    }
    if (negated)
        *ret_meaning = (struct meaning){ret_meaning->number_when_false, ret_meaning->number_when_true};
    return true;
}

static bool take_conjunction(struct parser *p, struct meaning *ret_meaning)
{
    if (!take_negation(p, ret_meaning))
        return false;
    while (accept(p, "and")) {
        struct meaning left = *ret_meaning, right;
        bool outside = p->has_layer;
        p->has_layer = outside || left.number_when_true;
        if (!take_negation(p, &right))
            return false;
        p->has_layer = outside;
        ret_meaning->number_when_true = left.number_when_true || right.number_when_true;
        ret_meaning->number_when_false = left.number_when_false && (left.number_when_true || right.number_when_false);
    }
    return true;
}

static bool take_condition(struct parser *p, struct meaning *ret_meaning)
{
    if (!take_conjunction(p, ret_meaning))
        return false;
    while (accept(p, "or")) {
        struct meaning left = *ret_meaning, right;
        bool outside = p->has_layer;
        p->has_layer = outside || left.number_when_false;
        if (!take_conjunction(p, &right))
            return false;
        p->has_layer = outside;
        ret_meaning->number_when_true = left.number_when_true && (left.number_when_false || right.number_when_true);
        ret_meaning->number_when_false = left.number_when_false || right.number_when_false;
    }
    return true;
}

enum error_code filter_check(const char *text, struct error *err)
{
    struct parser parser = {.text = text, .err = err};
    struct meaning meaning;
    if (strlen(text) > FILTER_MAX)
        return error_set(err, ERROR_SETTINGS, "DUMPER_FILTER has %zu characters; expected at most %d", strlen(text),
                         (int)FILTER_MAX);
    advance(&parser);
    if (!take_condition(&parser, &meaning))
        return ERROR_SETTINGS;
    if (parser.next.kind != TOKEN_END) {
        refuse_token(&parser, "and, or or the end");
        return ERROR_SETTINGS;
    }
    return ERROR_NONE;
}
