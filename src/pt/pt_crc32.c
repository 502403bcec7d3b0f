/* Sixteen bytes a turn: table[k][b] is the CRC of byte b with k zero bytes behind it. */
#include "pt/pt_crc32.h"

#include <pthread.h>

enum { STEP = 16 };

static uint32_t tables[STEP][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320u : value >> 1;
        tables[0][i] = value;
    }
    for (int k = 1; k < STEP; k++)
        for (uint32_t i = 0; i < 256; i++)
            tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 255];
}

uint32_t pt_crc32(uint32_t crc, const void *bytes, size_t length)
{
    pthread_once(&once, make_tables);
    const uint8_t *p = bytes;
    uint32_t c = ~crc;
    for (; length >= STEP; length -= STEP, p += STEP) {
        c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = tables[15][c & 255] ^ tables[14][c >> 8 & 255] ^ tables[13][c >> 16 & 255] ^ tables[12][c >> 24] ^
            tables[11][p[4]] ^ tables[10][p[5]] ^ tables[9][p[6]] ^ tables[8][p[7]] ^ tables[7][p[8]] ^
            tables[6][p[9]] ^ tables[5][p[10]] ^ tables[4][p[11]] ^ tables[3][p[12]] ^ tables[2][p[13]] ^
            tables[1][p[14]] ^ tables[0][p[15]];
    }
    for (; length > 0; length--, p++)
        c = c >> 8 ^ tables[0][(c ^ *p) & 255];
    return ~c;
}
