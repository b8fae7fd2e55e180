/* relu.c - relu: forward; backward from the output or from one bit per element; backward of a sum of gradients. */
#include "cpu/cpu.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

FRI_MAP_ROW(relu_forward_row, fri_relu(a[i]))

fr_status fri_cpu_relu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    return fri_cpu_map("relu", dtype, n, relu_forward_row, NULL, x, NULL, y);
}

FRI_MAP_ROW(relu_backward_row, fri_relu_gradient(a[i], b[i]))

fr_status fri_cpu_relu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, const void *dy, void *dx) {
    return fri_cpu_map("relu", dtype, n, relu_backward_row, NULL, y, dy, dx);
}

FRI_CLONES static void passes_row(int64_t n, const real *y, uint8_t *passes) {
    for (int64_t i = 0; i < n; i++) passes[i] = fri_relu_passes(y[i]);
}

FRI_CLONES static void passes6_row(int64_t n, const real *y, uint8_t *passes) {
    for (int64_t i = 0; i < n; i++) passes[i] = fri_relu6_passes(y[i]);
}

FRI_CLONES static void positive_row(int64_t n, const real *y, uint8_t *passes) {
    for (int64_t i = 0; i < n; i++) passes[i] = (y[i] > 0);
}

/* Packs eight bytes 0 or 1 into one byte, the first byte lowest: the product moves byte k to bit 56 + k without
 * collisions. The shifts make the word independent of byte order. */
static uint8_t pack8(const uint8_t b[8]) {
    uint64_t word = 0;
    for (int k = 0; k < 8; k++) word |= (uint64_t)b[k] << (8 * k);
    return (uint8_t)((word * 0x0102040810204080u) >> 56);
}

/* n bytes 0 or 1, n a multiple of 8, become n / 8 bytes of bits. */
static void pack_row(int64_t n, const uint8_t *passes, uint8_t *bits) {
    int64_t k = 0;
#ifdef __SSE2__
    for (; k + 16 <= n; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(passes + k));
        int sixteen = _mm_movemask_epi8(_mm_slli_epi16(bytes, 7)); /* the top bit of each byte */
        bits[k / 8] = (uint8_t)sixteen;
        bits[k / 8 + 1] = (uint8_t)(sixteen >> 8);
    }
#endif
    for (; k < n; k += 8) bits[k / 8] = pack8(passes + k);
}

typedef struct mask_loop {
    fr_dtype t;
    fri_mask_rule rule;
    real slope;
    const void *a, *b;
    uint8_t *bits;
    void *y;
} mask_loop;

/* first is divisible by 8. */
static void encode_range(const void *context, int64_t first, int64_t last) {
    const mask_loop *m = context;
    static void (*const rows[FRI_MASK_RULES])(int64_t n, const real *y, uint8_t *passes) =
        {[FRI_MASK_RELU] = passes_row, [FRI_MASK_POSITIVE] = positive_row, [FRI_MASK_RELU6] = passes6_row};
    real buf[FRI_BLOCK];
    uint8_t passes[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t count = fri_min_i64(FRI_BLOCK, last - i);
        rows[m->rule](count, fri_cpu_load(m->t, m->a, i, count, buf), passes);
        int64_t padded = count;
        for (; padded % 8 != 0; padded++) passes[padded] = 0; /* unused bits are 0 */
        pack_row(padded, passes, m->bits + i / 8);
    }
}

fr_status fri_cpu_relu_encode(const fri_exec *e, fr_dtype dtype, int64_t n, fri_mask_rule rule, const void *y,
                              uint8_t *bits) {
    FRI_TRY(fri_cpu_accepts("relu", dtype));
    fri_cpu_ranges(n, encode_range, &(mask_loop){.t = dtype, .rule = rule, .a = y, .bits = bits});
    return FR_OK;
}

/* Expands bits to bytes, not 0 for a 1: copies the byte eight times and keeps a different bit in each copy. All
 * copies are equal, so byte order does not matter. */
static void spread_row(int64_t bytes, const uint8_t *bits, uint8_t *passes) {
    static const uint8_t each[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t keep;
    memcpy(&keep, each, 8);
    for (int64_t i = 0; i < bytes; i++) {
        uint64_t word = bits[i] * UINT64_C(0x0101010101010101) & keep;
        memcpy(passes + 8 * i, &word, 8);
    }
}

FRI_CLONES static void add_mask_row(int64_t n, const uint8_t *passes, const real *a, const real *b, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_relu_gradient_bit(passes[i] != 0, 0, a[i] + b[i]);
}

static void add_mask_range(const void *context, int64_t first, int64_t last) {
    const mask_loop *m = context;
    const fr_dtype t = m->t;
    real abuf[FRI_BLOCK], bbuf[FRI_BLOCK], ybuf[FRI_BLOCK];
    uint8_t passes[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t count = fri_min_i64(FRI_BLOCK, last - i);
        real *out = fri_cpu_target(t, m->y, i, ybuf);
        spread_row(fri_ceil_div(count, 8), m->bits + i / 8, passes);
        add_mask_row(count, passes, fri_cpu_load(t, m->a, i, count, abuf), fri_cpu_load(t, m->b, i, count, bbuf), out);
        fri_cpu_store(t, m->y, i, count, out);
    }
}

fr_status fri_cpu_add_mask(const fri_exec *e, fr_dtype dtype, int64_t n, const uint8_t *bits, const void *a,
                           const void *b, void *y) {
    FRI_TRY(fri_cpu_accepts("add", dtype));
    const mask_loop m = {.t = dtype, .a = a, .b = b, .bits = (uint8_t *)(uintptr_t)bits, .y = y}; /* bits: only read */
    fri_cpu_ranges(n, add_mask_range, &m);
    return FR_OK;
}

FRI_CLONES static void backward_bits_row(int64_t n, real slope, const uint8_t *passes, const real *dy, real *dx) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = fri_relu_gradient_bit(passes[i] != 0, slope, dy[i]);
}

static void backward_bits_range(const void *context, int64_t first, int64_t last) {
    const mask_loop *m = context;
    real dybuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    uint8_t passes[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t count = fri_min_i64(FRI_BLOCK, last - i);
        real *out = fri_cpu_target(m->t, m->y, i, dxbuf);
        spread_row(fri_ceil_div(count, 8), m->bits + i / 8, passes);
        backward_bits_row(count, m->slope, passes, fri_cpu_load(m->t, m->a, i, count, dybuf), out);
        fri_cpu_store(m->t, m->y, i, count, out);
    }
}

fr_status fri_cpu_relu_backward_bits(const fri_exec *e, fr_dtype dtype, int64_t n, double slope, const uint8_t *bits,
                                     const void *dy, void *dx) {
    FRI_TRY(fri_cpu_accepts("relu", dtype));
    const mask_loop m = {.t = dtype, .slope = (real)slope, .a = dy, .bits = (uint8_t *)(uintptr_t)bits, .y = dx};
    fri_cpu_ranges(n, backward_bits_range, &m);
    return FR_OK;
}
