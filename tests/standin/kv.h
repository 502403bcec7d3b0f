/* kv.h: what a process keeps of the tokens that it has computed, by location: a number that the leader hands out, the
 * same on every rank. Location 0 is nobody's: padding is written there.
 */
#ifndef KLDUMP_STANDIN_KV_H
#define KLDUMP_STANDIN_KV_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"

/* Of one token in one layer: key_value_width keys, then as many values; in a recurrent layer query_width inputs of the
 * convolution, then as many numbers of the state. Zeros until written. Valid for the life of the process. */
float *kv_row(const struct model *model, int64_t location, size_t layer);

#endif
