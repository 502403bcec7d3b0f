/* Numbers that look random and are the same for the same seed on every machine (splitmix64). Any thread. */
#pragma once

#include <stdint.h>

uint64_t random_next(uint64_t *state); /* `state` begins as the seed */
