/* A diff as JSON: what `kldumpctl diff --json` prints. Other programs may rely on it; members may be added.
 *
 * {"schema":"kldump.diff/1","status":0|1|3|4|5,"headline":"DIFFERENT",
 *  "dec":PATH,"pre":PATH,"swapped":bool,               the sides as they were taken; swapped: they were given the other
 *                                                      way round
 *  "alignment":{"proven":bool,"usable":bool,"failed":["A2",..],
 *    "certificate":[{"id","claim","state":"holds|weak|fails|unknown","fatal":bool,"evidence":TEXT|null},..],
 *    "messages":[{"id":"M3","fatal":bool,"cause","evidence","remedy"},..]},
 *  "verdict":null|{"kind":"none|op|gap|glue|op+cache|state","module","layer":N|null,"position":N|null,"class","confidence",
 *    "request":N|null,"rank":N|null,"last_equal","first_unequal","after","tested","unequal","one_request",
 *    "one_position","ranks_agree","class_kind","needs","reading","what","blind":[..],"lines":{"verdict",..}},
 *  "evidence":[{"module","layer","class","kind","tested","unequal","first_position","max_ulp","history_equal"},..],
 *                                                      leaf calls that were tested or not, in the order of the program
 *  "observations":[{"name","call":N|null,"input":bool,"layer","presence":"both|dec|pre|unreadable|shape",
 *    "rows":"token|request|shared|none|unclear","factor","note","dtype","row_elements","tested","unequal",
 *    "control_tested","control_unequal","first_position","growth",
 *    "numbers":{..} where a row differs, "marks":[[first pair, pairs, mark],..] likewise, "marks_cut":true},..],
 *  "requests":[{"dec_rid","pre_rid","prompt_length","dec_length","pre_length","pre_cached_length","first_pair","pairs",
 *    "targets"},..],
 *  "pair_columns":["request","rank","position","id","target","dec_step","dec_row","pre_step","pre_row"],
 *  "pairs":[[..],..],"pairs_cut":N,                    at most REPORT_JSON_PAIRS of them; N are left out
 *  "control":{"elements","unequal"},"ranks","tp_size","targets","refused":[..],"files_opened","bytes_read"}
 *
 * What is not known is null. `verdict` is null, and evidence and observations are empty, where the alignment is not
 * proven. A mark: 1 equal, 2 + n the largest difference lies in 2^n .. 2^(n+1)-1 ULP, 254 unequal without a measure,
 * 255 NaN; pairs without a mark are not in `marks`. Numbers: those of numbers.h by their names, histogram as
 * [[bucket, count],..] of what is not 0. */
#pragma once

#include "analysis/diff.h"
#include "base/buffer.h"

enum { REPORT_JSON_PAIRS = 100000, REPORT_JSON_RUNS = 256 };

/* Appends the object, without a newline. Its size grows with observations and pairs up to the limits above, never with
 * their product. As json.h: one thread at a time. */
void report_json(const struct diff *diff, struct buffer *out);
