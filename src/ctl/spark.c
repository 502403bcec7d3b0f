#include "ctl/spark.h"

#include "base/number.h"

enum { BARS = 8 };

void spark_add(struct spark *spark, uint64_t at_ms, uint64_t value)
{
    if (spark->count > 0 && at_ms <= spark->point[spark->count - 1].at_ms)
        return;
    if (spark->count == SPARK_POINTS) {
        for (size_t i = 0; i < SPARK_POINTS / 2; i++)
            spark->point[i] = spark->point[2 * i];
        spark->count = SPARK_POINTS / 2;
        spark->every_ms = (at_ms - spark->point[0].at_ms) / (SPARK_POINTS / 2);
    }
    bool merged = spark->count >= 2 && at_ms - spark->point[spark->count - 2].at_ms < spark->every_ms;
    size_t at = merged ? spark->count - 1 : spark->count++;
    spark->point[at].at_ms = at_ms;
    spark->point[at].value = value;
}

void spark_bounds(const struct spark *spark, uint64_t *ret_lowest, uint64_t *ret_highest, uint64_t *ret_span_ms)
{
    *ret_lowest = *ret_highest = spark->point[0].value;
    for (size_t i = 1; i < spark->count; i++) {
        uint64_t value = spark->point[i].value;
        *ret_lowest = value < *ret_lowest ? value : *ret_lowest;
        *ret_highest = value > *ret_highest ? value : *ret_highest;
    }
    *ret_span_ms = spark->point[spark->count - 1].at_ms - spark->point[0].at_ms;
}

void spark_draw(const struct spark *spark, size_t width, bool utf8, struct buffer *out)
{
    static const char *const blocks[BARS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[BARS] = {"_", ".", "-", "~", "=", "+", "*", "#"};
    uint64_t lowest, highest, span_ms;
    if (spark->count < 2 || width == 0)
        return;
    spark_bounds(spark, &lowest, &highest, &span_ms);
    size_t bars = spark->count < width ? spark->count : width, next = 0;
    uint64_t value = spark->point[0].value;
    for (size_t bar = 0; bar < bars; bar++) {
        uint64_t end_ms = spark->point[0].at_ms + number_scale(span_ms, bar + 1, bars);
        bool has_point = false;
        for (; next < spark->count && spark->point[next].at_ms <= end_ms; next++) {
            uint64_t own = spark->point[next].value;
            value = !has_point || own < value ? own : value;
            has_point = true;
        }
        size_t height = highest > lowest ? (size_t)number_scale(value - lowest, BARS - 1, highest - lowest) : BARS / 2;
        buffer_text(out, utf8 ? blocks[height] : letters[height]);
    }
}
