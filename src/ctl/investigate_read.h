/* What the results of an investigation's steps say. One thread. */
#pragma once

#include "analysis/investigation.h"
#include "base/error.h"

/* Fills own, dump, settings, axes, capture and diff anew from kl-own.json, kl-dump.json, ab.json, invariance.json,
 * capture.json and diff.json in `directory`, those that are there; the rest of `investigation` is left alone. Their
 * schemas are those of doc/kl.md, doc/diff.md and man/kldumpctl.1. ERROR_USAGE with the file and the member where one
 * is no such result or not as expected; else as file_read. On failure nothing is changed. */
enum error_code investigate_read(const char *directory, struct investigation *investigation, struct error *err);
