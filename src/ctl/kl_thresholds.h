/* Thresholds of the mean k3, measured for one model at one tensor-parallel size: a file that people keep.
 *
 * {"schema":"kldump.kl-thresholds/1","thresholds":[
 *   {"model":"/models/llama-8b","tp":1,"mean":{"match":1e-9,"prefill_cache_hit":0.002,"decode_cache_hit":0.002}},..]}
 *
 * "model" is the server's model_path, or its last part. Other members ("measured": when and how) are passed over. */
#pragma once

#include "analysis/kl.h"

struct kl_thresholds {
    double mean[KL_PATHS]; /* a path must be below; NaN: none for it */
};

/* ERROR_FORMAT, ERROR_NOT_FOUND as file_read. ERROR_BAD_VALUE where the file has nothing for this model, or only for
 * another tensor-parallel size, with both named: a threshold holds where it was measured. */
enum error_code kl_thresholds_read(const char *path, const char *model, unsigned tp,
                                   struct kl_thresholds *ret_thresholds, struct error *err);
