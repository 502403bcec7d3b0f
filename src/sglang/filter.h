/* DUMPER_FILTER: a Python expression that the dumper evaluates for each tensor inside the forward pass, with no check
 * at all: an error in it ends the server, and it can run any code (SGLang 0.5.10 to 0.5.23, dumper.py). So only
 * expressions of a small grammar are let through, which cannot fail, run anything, or take long:
 *
 *   name == 'input_ids'   'mlp' in name   name in ['rids', 'input_ids']   search(r'mlp.*output', name)
 *   layer_id in [0, 1]    layer_id is None or layer_id < 2                recompute_status == 'disabled'
 *   True   False   and   or   not   ( )
 *
 * layer_id is None for tensors outside the layers, where < and its kin fail: they need a guard. Step and rank are not
 * there for a filter: a comparison with them is never true. Pure; any thread. */
#pragma once

#include "base/error.h"

enum { FILTER_MAX = 1024, FILTER_DEPTH = 32 };

/* ERROR_SETTINGS with the position, what stands there, what is wrong with it and what to write instead. A filter that
 * keeps nothing is taken: the probe shows that. */
enum error_code filter_check(const char *text, struct error *err);
