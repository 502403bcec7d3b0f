/* The CRC of zip (polynomial 0xedb88320, reflected), about 2 GB/s. Pure; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of `length` bytes behind those that gave `crc`; 0 to begin with. */
uint32_t pt_crc32(uint32_t crc, const void *bytes, size_t length);
