/* faults.c: see faults.h. */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

struct fault {
    const char *name;
    const char *default_value;
    const char *text;
    const char *fact;
};

static const struct fault TABLE[] = {
#define FAULT(symbol, name, value, text, fact) {name, value, text, fact},
#include "faults.def"
#undef FAULT
};

static const char *values[FAULTS_COUNT];

static bool switch_on(char *item)
{
    char *value = strchr(item, '=');
    if (value != NULL)
        *value++ = '\0';
    for (int i = 0; i < FAULTS_COUNT; i++) {
        if (strcmp(TABLE[i].name, item) != 0)
            continue;
        if (value != NULL && TABLE[i].default_value == NULL) {
            fprintf(stderr, "kldump-standin: fault '%s' takes no value, got '%s'\n", item, value);
            return false;
        }
        values[i] = value != NULL ? value : TABLE[i].default_value != NULL ? TABLE[i].default_value : "";
        return true;
    }
    fprintf(stderr, "kldump-standin: KLDUMP_STANDIN_FAULTS names an unknown fault '%s' (see --help-faults)\n", item);
    return false;
}

bool faults_init(void)
{
    const char *given = getenv("KLDUMP_STANDIN_FAULTS");
    if (given == NULL)
        return true;
    static char *list; /* kept: values point into it */
    list = text_duplicate(given);
    char *rest = NULL;
    for (char *item = strtok_r(list, ", ", &rest); item != NULL; item = strtok_r(NULL, ", ", &rest))
        if (!switch_on(item))
            return false;
    return true;
}

bool faults_on(enum faults_name name)
{
    return values[name] != NULL;
}

const char *faults_value(enum faults_name name)
{
    return values[name] != NULL ? values[name] : "";
}

long long faults_number(enum faults_name name)
{
    return strtoll(faults_value(name), NULL, 10);
}

void faults_help(void)
{
    for (int i = 0; i < FAULTS_COUNT; i++)
        printf("%s%s%s: %s [%s]\n", TABLE[i].name, TABLE[i].default_value != NULL ? "=" : "",
               TABLE[i].default_value != NULL ? TABLE[i].default_value : "", TABLE[i].text, TABLE[i].fact);
}
