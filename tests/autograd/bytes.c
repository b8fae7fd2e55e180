/* bytes.c - see bytes.h. */
#include "autograd/bytes.h"

#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <stdarg.h>
#include <stdio.h>

#include "support/golden.h"

size_t rounded(int64_t bytes) {
    return (size_t)(bytes + 511) / 512 * 512;
}

fr_tensor *labelled(int rank, const int64_t *shape, fr_dtype dtype, fr_category category) {
    fr_tensor *t = NULL;
    must(fr_tensor_empty(rank, shape, dtype, FR_META, &t));
    fr_tensor_category_set(t, category);
    if (category == FR_MEM_PARAMETER) must(fr_tensor_set_requires_grad(t, true));
    return t;
}

size_t live(fr_category c) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.requested_by[c];
}

size_t live_total(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.requested;
}

size_t begin(void) {
    must(fr_memory_reset_peak(FR_META));
    return live_total();
}

size_t rise(size_t before) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.peak_requested - before;
}

void nothing_left(void) {
    cr_expect_eq(live_total(), 0u, "%zu bytes live at the end", live_total());
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

void expect_bytes(size_t got, size_t formula, const char *what, ...) {
    char text[128];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    cr_expect_eq(got, formula, "%s: %zu bytes, the formula says %zu", text, got, formula);
}
