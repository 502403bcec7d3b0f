/* locations.c: see locations.h. */
#include "locations.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

static unsigned *users;     /* of each location */
static int64_t *free_stack; /* those below `known` that nobody uses */
static size_t known = 1, free_count, capacity, used;

static void grow(void)
{
    size_t larger = capacity > 0 ? 2 * capacity : 1024;
    unsigned *more_users = text_allocate(larger * sizeof more_users[0]);
    int64_t *more_free = text_allocate(larger * sizeof more_free[0]);
    if (capacity > 0) {
        memcpy(more_users, users, capacity * sizeof users[0]);
        memcpy(more_free, free_stack, free_count * sizeof free_stack[0]);
    }
    free(users);
    free(free_stack);
    users = more_users;
    free_stack = more_free;
    if (capacity == 0)
        users[0] = 1; /* nobody's, so never free */
    capacity = larger;
}

int64_t locations_take(void)
{
    if (free_count == 0 && known >= capacity)
        grow();
    int64_t location = free_count > 0 ? free_stack[--free_count] : (int64_t)known++;
    users[location] = 1;
    used++;
    return location;
}

void locations_share(const int64_t *locations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        users[locations[i]]++;
}

void locations_give(const int64_t *locations, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (--users[locations[i]] > 0)
            continue;
        free_stack[free_count++] = locations[i];
        used--;
    }
}

size_t locations_used(void)
{
    return used;
}
