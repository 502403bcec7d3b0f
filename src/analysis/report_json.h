/* A diff as JSON: what `kldumpctl diff --json` prints. Other programs may rely on it, members may be added; doc/diff.md
 * describes each one, and a test holds it to that. `verdict` is null, and evidence and observations are empty, where
 * report_has_verdict says no. */
#pragma once

#include "analysis/diff.h"
#include "base/buffer.h"

enum { REPORT_JSON_PAIRS = 100000, REPORT_JSON_RUNS = 256 };

/* Appends the object, without a newline. Its size grows with observations and pairs up to the limits above, never with
 * their product. As json.h: one thread at a time. */
void report_json(const struct diff *diff, struct buffer *out);
