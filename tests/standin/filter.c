/* filter.c: see filter.h. */
#include "filter.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum filter_result yes_or_no(bool condition)
{
    return condition ? FILTER_YES : FILTER_NO;
}

/* True when all of the text was one quoted string followed by `tail`; the string is copied. */
static bool quoted(const char *text, const char *tail, char *target, size_t size)
{
    char quote = text[0];
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(text + 1, quote);
    if (end == NULL || strcmp(end + 1, tail) != 0 || (size_t)(end - text) > size)
        return false;
    snprintf(target, size, "%.*s", (int)(end - text - 1), text + 1);
    return true;
}

static bool in_list(const char *list, int wanted, bool *ret_found)
{
    const char *at = list;
    *ret_found = false;
    while (*at != ']') {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at)
            return false;
        *ret_found = *ret_found || (wanted >= 0 && number == wanted);
        at = end + strspn(end, ", ");
    }
    return at[1] == '\0';
}

enum filter_result filter_evaluate(const char *expression, const char *name, int layer_id, const char **ret_message)
{
    char text[256], wanted[256];
    int number = 0, end = 0;
    snprintf(text, sizeof text, "%s", expression + strspn(expression, " "));
    if (strcmp(text, "True") == 0)
        return FILTER_YES;
    if (strcmp(text, "False") == 0 || strcmp(text, "None") == 0)
        return FILTER_NO;
    if (strncmp(text, "name == ", 8) == 0 && quoted(text + 8, "", wanted, sizeof wanted))
        return yes_or_no(strcmp(name, wanted) == 0);
    if (quoted(text, " in name", wanted, sizeof wanted))
        return yes_or_no(strstr(name, wanted) != NULL);
    bool found;
    if (strncmp(text, "layer_id in [", 13) == 0 && in_list(text + 13, layer_id, &found))
        return yes_or_no(found);
    if (sscanf(text, "layer_id is None or layer_id < %d%n", &number, &end) == 1 && text[end] == '\0')
        return yes_or_no(layer_id < 0 || layer_id < number);
    if (sscanf(text, "layer_id == %d%n", &number, &end) == 1 && text[end] == '\0')
        return yes_or_no(layer_id == number);
    if ((sscanf(text, "step == %d%n", &number, &end) == 1 || sscanf(text, "rank == %d%n", &number, &end) == 1) &&
        text[end] == '\0')
        return FILTER_NO;
    if (sscanf(text, "layer_id < %d%n", &number, &end) == 1 && text[end] == '\0') {
        if (layer_id >= 0)
            return yes_or_no(layer_id < number);
        *ret_message = "TypeError: '<' not supported between instances of 'NoneType' and 'int'";
        return FILTER_ERROR;
    }
    *ret_message = "SyntaxError: invalid syntax";
    return FILTER_ERROR;
}
