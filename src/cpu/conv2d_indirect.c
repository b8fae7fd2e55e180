/* conv2d_indirect.c - f32 convolutions as products over pointers to pixels (igemm.h): a table of pointers replaces
 * the copied columns. One method for every stride, dilation and number of groups.
 *
 *   forward          y [N P Q, K]   = b + sum over taps of x [its pixels, C] w [K, tap, C]^T
 *   backward input   dx [pixels, C] = sum over taps of dy [its pixels, K] w [K, tap, C], for pixels of dx whose
 *                                     remainders by the strides, and so taps, are equal
 *   backward weight  dw [K, tap, C] = sum over output pixels of dy [K]^T x [its pixel, C]
 * Taps that lie outside of the map for every pixel are left out. */
#include "cpu/conv2d_engine.h"
#include "cpu/cpu.h"

#include <string.h>

bool fri_conv2d_indirect_reads_bf16(const fri_conv2d_desc *d, fri_pass pass) {
    const int64_t terms = pass == FRI_PASS_BACKWARD_INPUT ? d->k : d->c;
    return d->dtype == FR_BF16 && pass != FRI_PASS_BACKWARD_WEIGHT && d->groups == 1 && terms % 2 == 0 &&
           fri_igemm_reads_bf16();
}

/* True if pixels of y and of dx are computed one by one, because many taps lie outside of the map: for 3 x 3 filters on
 * 2 x 2 pixels 20 of 36. */
static bool by_pixel(const fri_conv2d_desc *d) {
    const int64_t pixels = fri_max_i64(d->p * d->q, d->h * d->w), channels = fri_min_i64(d->c, d->k);
    return d->groups == 1 && d->r * d->s > 1 && pixels <= 4 && channels > 80;
}

/* True if a tap meets the map in one of `grid` windows at distance `step`. */
static bool tap_hits_map(int64_t grid, int64_t step, int64_t tap, int64_t map) {
    const int64_t first = tap >= 0 ? 0 : fri_ceil_div(-tap, step);
    return first < grid && first * step + tap < map;
}

/* Pixels per tap: a row of a filter with few channels; 0: one pixel. */
static int64_t span_of(const fri_conv2d_desc *d) {
    enum { FEW = 8 };
    const bool dense = d->dtype == FR_F32 && d->groups == 1 && d->dilation_w == 1 && d->s * d->c <= FRI_IGEMM_RUN;
    return dense && d->c < FEW && d->s > 1 ? d->s : 0;
}

/* The product of a group, without data and taps. */
static fri_igemm shape_of(const fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups, row = d->r * d->s * cg;
    const bool pixel = by_pixel(d), dx = e->pass == FRI_PASS_BACKWARD_INPUT, bf16 = d->dtype == FR_BF16;
    const int64_t pair = bf16 ? 2 : 1, span = dx ? 0 : span_of(d), read = cg * fri_max_i64(1, span);
    fri_igemm s = {.images = d->n, .bf16 = bf16, .span = span};
    s.a_h = dx ? d->p : d->h, s.a_w = dx ? d->q : d->w, s.a_pitch = (dx ? d->k : d->c) / pair;
    s.c_h = dx ? d->h : d->p, s.c_w = dx ? d->w : d->q, s.c_pitch = dx ? d->c : d->k;
    s.step_h = dx ? 1 : d->stride_h, s.step_w = dx ? 1 : d->stride_w;
    s.c_step_h = pixel ? s.c_h : dx ? d->stride_h : 1, s.c_step_w = pixel ? s.c_w : dx ? d->stride_w : 1;
    switch (e->pass) {
    case FRI_PASS_FORWARD: s.depth = read / pair, s.columns = kg, s.b_row = 1, s.b_col = row / pair; break;
    case FRI_PASS_BACKWARD_INPUT: s.depth = kg / pair, s.columns = cg, s.b_row = row, s.b_col = 1; break;
    case FRI_PASS_BACKWARD_WEIGHT:
        s.depth = kg, s.columns = read, s.grid_h = d->p, s.grid_w = d->q;
        s.b_row = d->k, s.b_col = 1, s.c_pitch = row;
        break;
    }
    return s;
}

void fri_conv2d_indirect_plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const bool dx = e->pass == FRI_PASS_BACKWARD_INPUT, dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
    fri_igemm s = shape_of(e);
    e->method = d->bias_dtype == FR_F32 && (d->dtype == FR_F32 || fri_conv2d_indirect_reads_bf16(d, e->pass))
                    ? FRI_CONV2D_INDIRECT
                    : FRI_CONV2D_NONE;
    e->weight_at = fri_part(&e->bytes, (size_t)(d->r * d->s) * sizeof(fri_igemm_tap));
    const int64_t rows = d->n * s.c_h * s.c_w, taps = d->r * d->s / fri_max_i64(1, s.span);
    const bool strided = dx && d->dilation_h == 1 && d->dilation_w == 1 && !by_pixel(d);
    s.taps = strided ? fri_ceil_div(d->r, d->stride_h) * fri_ceil_div(d->s, d->stride_w) : taps; /* at least */
    if (!dw) s.grid_h = fri_ceil_div(s.c_h, s.c_step_h), s.grid_w = fri_ceil_div(s.c_w, s.c_step_w);
    const size_t scratch = fri_igemm_bytes(&s, dw), rest = e->bytes + scratch, limit = d->workspace_limit;
    if (!dw && (limit == 0 || limit > rest))
        e->room = fri_igemm_room(rows, taps * s.depth, s.columns, limit > 0 ? limit - rest : 0);
    e->scratch_at = fri_part(&e->bytes, e->room + scratch);
}

/* Product of the pixels y, y + s->c_step_h, ... of y or dx, likewise x; lists the taps that meet the map. */
static fri_igemm product_of(const fri_conv2d_engine *e, fri_igemm s, int64_t y, int64_t x, fri_igemm_tap *tap) {
    const fri_conv2d_desc *d = &e->d;
    const bool dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    s.grid_h = fri_ceil_div(s.c_h - y, s.c_step_h), s.grid_w = fri_ceil_div(s.c_w - x, s.c_step_w);
    s.c_y = y, s.c_x = x, s.tap = tap, s.taps = 0;
    for (int64_t i = 0; i < d->r * d->s; i += fri_max_i64(1, s.span)) {
        int64_t h = i / d->s * d->dilation_h - d->pad_h, w = i % d->s * d->dilation_w - d->pad_w;
        if (dx && ((y - h) % d->stride_h != 0 || (x - w) % d->stride_w != 0)) continue;
        h = dx ? (y - h) / d->stride_h : y * d->stride_h + h;
        w = dx ? (x - w) / d->stride_w : x * d->stride_w + w;
        if (tap_hits_map(s.grid_h, s.step_h, h, s.a_h) && (s.span > 0 || tap_hits_map(s.grid_w, s.step_w, w, s.a_w)))
            tap[s.taps++] = (fri_igemm_tap){h, w, i * (d->c / d->groups) / (s.bf16 && s.b_row == 1 ? 2 : 1)};
    }
    return s;
}

/* y or dx from the maps a and filters b of a group's first channel. */
static void run_maps(const fri_conv2d_engine *e, fri_igemm s, char *workspace) {
    const int64_t rows = fri_min_i64(s.c_step_h, s.c_h), columns = fri_min_i64(s.c_step_w, s.c_w);
    for (int64_t i = 0; i < rows * columns; i++) {
        const fri_igemm part =
            product_of(e, s, i / columns, i % columns, (fri_igemm_tap *)(void *)(workspace + e->weight_at));
        fri_igemm_run(&part, false, e->room, workspace + e->scratch_at);
    }
}

static void run_weight(const fri_conv2d_engine *e, fri_igemm s, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    fri_igemm_tap *tap = (fri_igemm_tap *)(void *)(workspace + e->weight_at);
    s.tap = tap;
    for (int64_t i = 0; i < d->r * d->s; i += fri_max_i64(1, s.span))
        tap[s.taps++] = (fri_igemm_tap){i / d->s * d->dilation_h - d->pad_h, i % d->s * d->dilation_w - d->pad_w};
    fri_igemm_run(&s, true, 0, workspace + e->scratch_at);
}

void fri_conv2d_indirect_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias, float *out,
                             char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups, row = d->r * d->s * cg;
    for (int64_t g = 0; g < d->groups; g++) {
        fri_igemm s = shape_of(e);
        s.a = a + g * (e->pass == FRI_PASS_BACKWARD_INPUT ? kg : cg);
        s.b_type = e->weight_type;
        s.b = fri_cpu_at(s.b_type, b, g * kg * (e->pass == FRI_PASS_BACKWARD_WEIGHT ? 1 : row));
        switch (e->pass) {
        case FRI_PASS_FORWARD:
            s.c = out + g * kg, s.bias = bias != NULL ? bias + g * kg : NULL, s.add = d->accumulate, s.relu = d->relu;
            run_maps(e, s, workspace);
            break;
        case FRI_PASS_BACKWARD_INPUT:
            s.c = out + g * cg;
            run_maps(e, s, workspace);
            break;
        case FRI_PASS_BACKWARD_WEIGHT:
            s.c = out + g * kg * row;
            run_weight(e, s, workspace);
            break;
        }
    }
}
