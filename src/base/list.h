/* A NULL-terminated list of strings that it owns: argument vectors, environments. Not shared between threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
    char **items; /* NULL after the last; the vector is usable as argv or envp. NULL while empty and untouched */
    size_t count;
};

void list_fini(struct list *list); /* also of a zeroed one */
void list_add(struct list *list, const char *text);
void list_add_format(struct list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
void list_add_all(struct list *list, char *const *items); /* items: NULL-terminated */
bool list_has(const struct list *list, const char *text);
void list_remove_first(struct list *list); /* requires count > 0 */
void list_vector_free(char **vector);      /* what list_vector gave, where its list is gone; NULL too */
char **list_vector(struct list *list);     /* never NULL */

/* Environment use: items are NAME=VALUE. get returns the value or NULL; set replaces or adds; unset removes. */
const char *list_environment_get(const struct list *list, const char *name);
void list_environment_set(struct list *list, const char *name, const char *value);
void list_environment_unset(struct list *list, const char *name);
