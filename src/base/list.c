#include "base/list.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void list_fini(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct list){0};
}

static void add_owned(struct list *list, char *text)
{
    list->items = memory_resize(list->items, list->count + 2, sizeof *list->items);
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
}

void list_add(struct list *list, const char *text)
{
    add_owned(list, memory_copy(text));
}

void list_add_format(struct list *list, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        abort();
    add_owned(list, text);
}

void list_add_all(struct list *list, char *const *items)
{
    for (; *items != NULL; items++)
        list_add(list, *items);
}

bool list_has(const struct list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

void list_remove_first(struct list *list)
{
    free(list->items[0]);
    memmove(list->items, list->items + 1, list->count * sizeof *list->items);
    list->count--;
}

void list_vector_free(char **vector)
{
    for (char **item = vector; item != NULL && *item != NULL; item++)
        free(*item);
    free(vector);
}

char **list_vector(struct list *list)
{
    if (list->items == NULL)
        list->items = memory_new(sizeof *list->items);
    return list->items;
}

static size_t environment_find(const struct list *list, const char *name)
{
    size_t length = strlen(name);
    size_t i = 0;
    while (i < list->count && !(strncmp(list->items[i], name, length) == 0 && list->items[i][length] == '='))
        i++;
    return i;
}

const char *list_environment_get(const struct list *list, const char *name)
{
    size_t i = environment_find(list, name);
    return i < list->count ? list->items[i] + strlen(name) + 1 : NULL;
}

void list_environment_set(struct list *list, const char *name, const char *value)
{
    size_t i = environment_find(list, name);
    if (i == list->count) {
        list_add_format(list, "%s=%s", name, value);
        return;
    }
    free(list->items[i]);
    list->items[i] = memory_format("%s=%s", name, value);
}

void list_environment_unset(struct list *list, const char *name)
{
    size_t i = environment_find(list, name);
    if (i == list->count)
        return;
    free(list->items[i]);
    memmove(list->items + i, list->items + i + 1, (list->count - i) * sizeof *list->items);
    list->count--;
}
