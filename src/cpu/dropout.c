/* dropout.c - dropout without a stored mask: backward recomputes the mask with the counter-based generator. */
#include "cpu/cpu.h"

#include <string.h>

FRI_CLONES static void keep_row(int64_t n, uint32_t threshold, const uint32_t *u, uint8_t *keep) {
    for (int64_t i = 0; i < n; i++) keep[i] = fri_dropout_keeps(u[i], threshold);
}

/* keep[i] for numbers first .. first + n of the stream, n <= FRI_BLOCK; first need not start a counter. */
static void keep_numbers(const fri_dropout_desc *d, int64_t first, int64_t n, uint8_t *keep) {
    uint32_t u[FRI_BLOCK + 8];
    int64_t skip = first % 4;
    fri_cpu_philox(d->seed, d->stream, (uint64_t)(first / 4), fri_ceil_div(skip + n, 4), u);
    keep_row(n, fri_dropout_threshold(d->p), u + skip, keep);
}

FRI_CLONES static void apply_row(int64_t n, real scale, const uint8_t *keep, const real *x, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = keep[i] ? x[i] * scale : 0;
}

static real kept_scale(const fri_dropout_desc *d) {
    return (real)(1 / (1 - d->p)); /* infinite for p = 1, but then no element is kept */
}

static int64_t elements(const fri_dropout_desc *d) {
    return d->n * d->hw * d->c;
}

typedef struct dropout_loop {
    const fri_dropout_desc *d;
    const void *x;
    uint8_t *mask;
    void *y; /* NULL: the loop makes the mask */
} dropout_loop;

/* Applies keep to elements first .. first + n of x, or stores keep in the mask. */
static void put_block(const dropout_loop *l, int64_t first, int64_t n, const uint8_t *keep) {
    const fr_dtype t = l->d->dtype;
    real xbuf[FRI_BLOCK], ybuf[FRI_BLOCK];
    if (l->y == NULL) {
        memcpy(l->mask + first, keep, (size_t)n);
        return;
    }
    real *out = fri_cpu_target(t, l->y, first, ybuf);
    apply_row(n, kept_scale(l->d), keep, fri_cpu_load(t, l->x, first, n, xbuf), out);
    fri_cpu_store(t, l->y, first, n, out);
}

/* Blocks of at most FRI_BLOCK channels of an image; all positions share their random numbers. */
static int64_t channel_blocks(const fri_dropout_desc *d) {
    return fri_ceil_div(d->c, FRI_BLOCK);
}

/* Repeats the numbers of `count` channels for as many positions as a block holds; returns the number of positions. */
static int64_t repeat_numbers(int64_t count, int64_t max, uint8_t *keep) {
    const int64_t times = fri_min_i64(FRI_BLOCK / count, max);
    for (int64_t i = count; i < times * count; i++) keep[i] = keep[i - count];
    return times;
}

static void drop_block(const void *context, int64_t i, int thread) {
    const dropout_loop *l = context;
    const fri_dropout_desc *d = l->d;
    uint8_t keep[FRI_BLOCK];
    if (d->per_channel) {
        int64_t image = i / channel_blocks(d), c = i % channel_blocks(d) * FRI_BLOCK;
        int64_t count = fri_min_i64(FRI_BLOCK, d->c - c);
        keep_numbers(d, image * d->c + c, count, keep);
        int64_t step = count == d->c ? repeat_numbers(count, d->hw, keep) : 1;
        for (int64_t at = 0; at < d->hw; at += step)
            put_block(l, (image * d->hw + at) * d->c + c, count * fri_min_i64(step, d->hw - at), keep);
    } else {
        int64_t first = i * FRI_BLOCK, count = fri_min_i64(FRI_BLOCK, elements(d) - first);
        keep_numbers(d, first, count, keep);
        put_block(l, first, count, keep);
    }
}

static void drop(const dropout_loop *l) {
    const int64_t n = elements(l->d);
    fri_cpu_pieces(n, l->d->per_channel ? l->d->n * channel_blocks(l->d) : fri_ceil_div(n, FRI_BLOCK), drop_block, l);
}

fr_status fri_cpu_dropout(const fri_exec *e, const fri_dropout_desc *d, const void *x, void *y) {
    FRI_TRY(fri_cpu_accepts("dropout", d->dtype));
    drop(&(dropout_loop){d, .x = x, .y = y});
    return FR_OK;
}

fr_status fri_cpu_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    drop(&(dropout_loop){d, .mask = mask});
    return FR_OK;
}

static void apply_mask_block(const void *context, int64_t i, int thread) {
    const dropout_loop *l = context;
    put_block(l, i * FRI_BLOCK, fri_min_i64(FRI_BLOCK, elements(l->d) - i * FRI_BLOCK), l->mask + i * FRI_BLOCK);
}

fr_status fri_cpu_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask, const void *x,
                                     void *y) {
    FRI_TRY(fri_cpu_accepts("dropout", d->dtype));
    const dropout_loop l = {d, x, (uint8_t *)(uintptr_t)mask, y}; /* the mask is only read */
    fri_cpu_pieces(elements(d), fri_ceil_div(elements(d), FRI_BLOCK), apply_mask_block, &l);
    return FR_OK;
}
