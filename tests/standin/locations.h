/* locations.h: the leader's count of who uses which location of keys and values (kv.h): a running request, a sequence
 * of the radix cache, or several of them. Location 0 is never handed out; it may be shared and given back.
 */
#ifndef KLDUMP_STANDIN_LOCATIONS_H
#define KLDUMP_STANDIN_LOCATIONS_H

#include <stddef.h>
#include <stdint.h>

/* A free location, used once. */
int64_t locations_take(void);

/* One more user of each of them; one less, and those without any are free. */
void locations_share(const int64_t *locations, size_t count);
void locations_give(const int64_t *locations, size_t count);

size_t locations_used(void);

#endif
