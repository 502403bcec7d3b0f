/* The clock that only goes forward. Any thread. */
#pragma once

#include <stdint.h>

int64_t now_ms(void);
