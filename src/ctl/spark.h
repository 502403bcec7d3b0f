/* A line of small bars for how a figure went, oldest first. One thread. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPARK_POINTS = 512 };

struct spark {
    struct {
        uint64_t at_ms, value;
    } point[SPARK_POINTS];
    size_t count;
    uint64_t every_ms; /* points that are nearer to each other are merged; grows when it is full */
};

/* Takes one point; one that is not later than the last one is dropped. When full, every second point goes, so that the
 * whole time is kept, ever more coarsely; the newest point is always there. */
void spark_add(struct spark *spark, uint64_t at_ms, uint64_t value);

/* Appends at most `width` bars over the whole time, from the lowest value to the highest; of points that share a bar
 * the lowest counts, and a bar without a point is as the one before. `utf8`: block elements, else ASCII. Nothing with
 * fewer than two points. */
void spark_draw(const struct spark *spark, size_t width, bool utf8, struct buffer *out);

/* The lowest and highest value, and the time between the first point and the last one. Requires count > 0. */
void spark_bounds(const struct spark *spark, uint64_t *ret_lowest, uint64_t *ret_highest, uint64_t *ret_span_ms);
