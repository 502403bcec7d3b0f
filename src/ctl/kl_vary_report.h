/* What `kl --vary` found, as text for people and as JSON (schema kldump.kl-vary/1, doc/kl.md). */
#pragma once

#include "ctl/kl_vary.h"
#include "ctl/output.h"

void kl_vary_report_text(const struct kl_vary_all *all, struct output *out);

/* The object; the caller frees it (json_free). */
struct json *kl_vary_report_json(const struct kl_vary_all *all);

/* 0 where nothing is dirty and all of it repeats; 1; or where no more than that could not be measured, the exit status
 * that belongs to it. */
int kl_vary_report_status(const struct kl_vary_all *all);
