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

fr_status fri_conv2d_indirect_plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    e->method = d->dtype == FR_F32 && d->bias_dtype == FR_F32 ? FRI_CONV2D_INDIRECT : FRI_CONV2D_NONE;
    e->weight_at = fri_part(&e->bytes, (size_t)(d->r * d->s) * sizeof(fri_igemm_tap));
    e->scratch_at = fri_part(&e->bytes, fri_igemm_bytes());
    return FR_OK;
}

/* x, w, y and bias start at the group's first channel. */
static void run_forward(const fri_conv2d_engine *e, fri_igemm s, const float *x, const float *w, const float *bias,
                        float *y, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    s.depth = d->c / d->groups, s.columns = d->k / d->groups;
    s.a = x, s.b = w, s.c = y, s.bias = bias;
    s.b_row = 1, s.b_col = d->r * d->s * s.depth;
    s.c_h = d->p, s.c_w = d->q, s.c_pitch = d->k, s.c_step_h = s.c_step_w = 1;
    s.add = d->accumulate, s.relu = d->relu;
    fri_igemm_run(&s, false, workspace + e->scratch_at);
}

static void run_weight(const fri_conv2d_engine *e, fri_igemm s, const float *x, const float *dy, float *dw,
                       char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    s.depth = d->k / d->groups, s.columns = d->c / d->groups;
    s.a = x, s.b = dy, s.c = dw;
    s.b_row = d->k, s.b_col = 1;
    s.c_pitch = d->r * d->s * s.columns;
    fri_igemm_run(&s, true, workspace + e->scratch_at);
}

/* True if a tap meets the map in one of `grid` windows at distance `step`. */
static bool meets(int64_t grid, int64_t step, int64_t tap, int64_t map) {
    const int64_t first = tap >= 0 ? 0 : fri_ceil_div(-tap, step);
    return first < grid && first * step + tap < map;
}

/* Lists the taps that contribute to pixels of dx at row y and column x modulo the strides, and returns their number. */
static int64_t taps_of(const fri_conv2d_desc *d, int64_t y, int64_t x, fri_igemm_tap *tap) {
    int64_t n = 0;
    for (int64_t i = 0; i < d->r * d->s; i++) {
        const int64_t h = y + d->pad_h - i / d->s * d->dilation_h, w = x + d->pad_w - i % d->s * d->dilation_w;
        if (h % d->stride_h != 0 || w % d->stride_w != 0) continue;
        if (!meets(fri_ceil_div(d->h - y, d->stride_h), 1, h / d->stride_h, d->p) ||
            !meets(fri_ceil_div(d->w - x, d->stride_w), 1, w / d->stride_w, d->q))
            continue;
        tap[n++] = (fri_igemm_tap){h / d->stride_h, w / d->stride_w, i * (d->c / d->groups)};
    }
    return n;
}

static void run_input(const fri_conv2d_engine *e, const float *dy, const float *w, float *dx, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    fri_igemm_tap *tap = (fri_igemm_tap *)(void *)(workspace + e->weight_at);
    for (int64_t i = 0; i < fri_min_i64(d->stride_h, d->h) * fri_min_i64(d->stride_w, d->w); i++) {
        const int64_t y = i / fri_min_i64(d->stride_w, d->w), x = i % fri_min_i64(d->stride_w, d->w);
        fri_igemm s = {.images = d->n,
                       .grid_h = fri_ceil_div(d->h - y, d->stride_h),
                       .grid_w = fri_ceil_div(d->w - x, d->stride_w),
                       .depth = kg,
                       .columns = cg,
                       .taps = taps_of(d, y, x, tap),
                       .tap = tap,
                       .a_h = d->p,
                       .a_w = d->q,
                       .a_pitch = d->k,
                       .step_h = 1,
                       .step_w = 1,
                       .b_row = d->r * d->s * cg,
                       .b_col = 1,
                       .c_h = d->h,
                       .c_w = d->w,
                       .c_pitch = d->c,
                       .c_y = y,
                       .c_x = x,
                       .c_step_h = d->stride_h,
                       .c_step_w = d->stride_w};
        for (int64_t g = 0; g < d->groups; g++) {
            s.a = dy + g * kg, s.b = w + g * kg * s.b_row, s.c = dx + g * cg;
            fri_igemm_run(&s, false, workspace + e->scratch_at);
        }
    }
}

void fri_conv2d_indirect_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias, float *out,
                             char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups, weights = kg * d->r * d->s * cg;
    fri_igemm_tap *tap = (fri_igemm_tap *)(void *)(workspace + e->weight_at);
    if (e->pass == FRI_PASS_BACKWARD_INPUT) {
        run_input(e, a, b, out, workspace);
        return;
    }
    int64_t taps = 0;
    for (int64_t i = 0; i < d->r * d->s; i++) {
        const int64_t y = i / d->s * d->dilation_h - d->pad_h, x = i % d->s * d->dilation_w - d->pad_w;
        if (e->pass == FRI_PASS_BACKWARD_WEIGHT || /* writes zeros for taps outside */
            (meets(d->p, d->stride_h, y, d->h) && meets(d->q, d->stride_w, x, d->w)))
            tap[taps++] = (fri_igemm_tap){y, x, i * cg};
    }
    const fri_igemm s = {.images = d->n,
                         .grid_h = d->p,
                         .grid_w = d->q,
                         .taps = taps,
                         .tap = tap,
                         .a_h = d->h,
                         .a_w = d->w,
                         .a_pitch = d->c,
                         .step_h = d->stride_h,
                         .step_w = d->stride_w};
    for (int64_t g = 0; g < d->groups; g++) {
        if (e->pass == FRI_PASS_FORWARD)
            run_forward(e, s, a + g * cg, b + g * weights, bias != NULL ? bias + g * kg : NULL, out + g * kg,
                        workspace);
        else
            run_weight(e, s, a + g * cg, b + g * kg, out + g * weights, workspace);
    }
}
