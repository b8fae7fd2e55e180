/* resize.c - separable triangle filter: rows first, into f32, then columns, rounded to 8 bit once; f32 stays f32. */
#include "data/transform.h"

#include "base/status.h"

/* Output i of a direction is sum over k < count of weight[k] * in[first + k]. */
typedef struct span {
    int32_t first, count;
    int64_t weight; /* index of the first weight */
} span;

static double triangle(double x) {
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

static int64_t taps_max(int64_t in, int64_t out) {
    return 2 * (in / out + 1) + 2;
}

static void make_spans(int64_t in, int64_t out, span *spans, float *weights) {
    const double step = (double)in / (double)out, reach = step > 1 ? step : 1;
    int64_t at = 0;
    for (int64_t i = 0; i < out; i++) {
        double center = ((double)i + 0.5) * step, sum = 0;
        int64_t lo = (int64_t)(center - reach + 0.5), hi = (int64_t)(center + reach + 0.5);
        if (center - reach + 0.5 < 0) lo = 0;
        if (hi > in) hi = in;
        for (int64_t k = lo; k < hi; k++) sum += triangle(((double)k + 0.5 - center) / reach);
        for (int64_t k = lo; k < hi; k++)
            weights[at + k - lo] = (float)(triangle(((double)k + 0.5 - center) / reach) / sum);
        spans[i] = (span){.first = (int32_t)lo, .count = (int32_t)(hi - lo), .weight = at};
        at += hi - lo;
    }
}

/* A row of `from`, resized across: of 8 bit pixels, or f32. */
#define RESIZE_ROW(name, type)                                                                                   \
    static void name(const type *from, int64_t channels, const span *across, const float *weight, int64_t out_w, \
                     float *to) {                                                                                \
        for (int64_t x = 0; x < out_w; x++) {                                                                    \
            const type *p = from + across[x].first * channels;                                                   \
            const float *w = weight + across[x].weight;                                                          \
            for (int64_t c = 0; c < channels; c++) {                                                             \
                float v = 0;                                                                                     \
                for (int32_t k = 0; k < across[x].count; k++) v += w[k] * (float)p[k * channels + c];            \
                to[x * channels + c] = v;                                                                        \
            }                                                                                                    \
        }                                                                                                        \
    }
RESIZE_ROW(row_of_u8, uint8_t)
RESIZE_ROW(row_of_f32, float)

fr_status fri_resize(fri_pixels *p, int64_t out_h, int64_t out_w, fri_transform_scratch *scratch) {
    const int64_t in_h = p->height, in_w = p->width;
    if (in_h == out_h && in_w == out_w) return FR_OK;
    const bool real = p->f32 != NULL;
    const size_t spans_bytes = (size_t)(out_h + out_w) * sizeof(span);
    const size_t weights_w = (size_t)(out_w * taps_max(in_w, out_w)),
                 weights_h = (size_t)(out_h * taps_max(in_h, out_h));
    const int64_t row = out_w * p->channels;
    FRI_TRY(fri_buffer_reserve(&scratch->weights, spans_bytes + (weights_w + weights_h) * sizeof(float), "resize"));
    FRI_TRY(fri_buffer_reserve(&scratch->rows, (size_t)(in_h + 1) * (size_t)row * sizeof(float), "resize"));
    FRI_TRY(fri_buffer_reserve(&scratch->resized, (size_t)(out_h * row) * (real ? sizeof(float) : 1), "resize"));
    span *across = scratch->weights.data, *down = across + out_w;
    float *weight_across = (float *)(down + out_h), *weight_down = weight_across + weights_w;
    make_spans(in_w, out_w, across, weight_across);
    make_spans(in_h, out_h, down, weight_down);
    float *rows = scratch->rows.data, *sum = rows + in_h * row;
    uint8_t *result = scratch->resized.data;
    float *real_result = scratch->resized.data;
    for (int64_t y = 0; y < in_h; y++) {
        const int64_t at = y * in_w * p->channels;
        if (real)
            row_of_f32(p->f32 + at, p->channels, across, weight_across, out_w, rows + y * row);
        else
            row_of_u8(p->u8 + at, p->channels, across, weight_across, out_w, rows + y * row);
    }
    for (int64_t y = 0; y < out_h; y++) {
        const float *w = weight_down + down[y].weight;
        for (int64_t x = 0; x < row; x++) sum[x] = real ? 0 : 0.5f; /* rounds to nearest when cut off */
        for (int32_t k = 0; k < down[y].count; k++) {
            const float *r = rows + (down[y].first + k) * row;
            for (int64_t x = 0; x < row; x++) sum[x] += w[k] * r[x];
        }
        for (int64_t x = 0; real && x < row; x++) real_result[y * row + x] = sum[x];
        for (int64_t x = 0; !real && x < row; x++)
            result[y * row + x] = sum[x] <= 0 ? 0 : sum[x] >= 255 ? 255 : (uint8_t)sum[x];
    }
    *p = (fri_pixels){real ? NULL : result, real ? real_result : NULL, out_h, out_w, p->channels};
    return FR_OK;
}
