/* conv2d_engine.c - the choice between the ways, and the library's convolution. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "base/status.h"
#include "cpu/cpu.h"

/* Output pixels per image up to which our sums beat the library's convolution, by pass, in 3 x 3 and in 1 x 1 layers:
 * the library packs weights for every call and fills its tiles badly where there are few pixels. 1 x 1 layers of few
 * channels on one side are ours on every map. */
static const int64_t most_area[2][3] = {{16, 4, 9}, {49, 49, INT64_MAX}};
enum { NARROW_CHANNELS = 32, WIDE_CHANNELS = 256 };

/* Only properties of the layer may be asked here, never d->n: see conv2d_engine.h. */
static bool prefers_indirect(const fri_conv2d_desc *d, fri_pass pass) {
    const bool pointwise = d->r == 1 && d->s == 1;
    if (d->dtype != FR_F32 || d->groups != 1) return false;
    if (pointwise && fri_min_i64(d->c, d->k) <= NARROW_CHANNELS && fri_max_i64(d->c, d->k) <= WIDE_CHANNELS)
        return true;
    return d->p * d->q <= most_area[pointwise][pass];
}

static fr_status plan_direct(fri_conv2d_engine *e) {
    e->method = FRI_CONV2D_NONE;
    fr_status s = fri_dnnl_conv2d(&e->d, e->pass, &e->direct);
    if (s < 0 || e->direct == NULL) return s;
    e->method = FRI_CONV2D_DIRECT;
    e->bytes = 0;
    if (e->pass == FRI_PASS_FORWARD) e->bias_at = fri_part(&e->bytes, (size_t)e->d.k * fr_dtype_size(e->d.bias_dtype));
    e->weight_at = fri_part(&e->bytes, fri_dnnl_packed_bytes(e->direct));
    e->scratch_at = fri_part(&e->bytes, fri_dnnl_scratch_bytes(e->direct));
    return FR_OK;
}

static fr_status plan_indirect(fri_conv2d_engine *e) {
    e->bytes = 0;
    return fri_conv2d_indirect_plan(e);
}

/* Depthwise loops as wide as this processor's vectors. */
static const fri_conv2d_own *depthwise(void) {
#if defined(__x86_64__)
    if (fri_dnnl_lanes() == FRI_LANES_AVX512) return &fri_conv2d_depthwise_v4;
    if (fri_dnnl_lanes() == FRI_LANES_AVX2) return &fri_conv2d_depthwise_v3;
#endif
    return &fri_conv2d_depthwise;
}

fr_status fri_conv2d_engine_plan(const fri_conv2d_desc *d, fri_pass pass, fri_conv2d_method method,
                                 fri_conv2d_engine *e) {
    memset(e, 0, sizeof *e);
    e->d = *d;
    e->pass = pass;
    if (method == FRI_CONV2D_DIRECT) return plan_direct(e);
    if (method == FRI_CONV2D_INDIRECT) return plan_indirect(e);
    if (method == FRI_CONV2D_WINOGRAD) return fri_conv2d_winograd_plan(e);
    if (method == FRI_CONV2D_DEPTHWISE || depthwise()->pays(d, pass)) {
        e->own = depthwise();
        e->method = FRI_CONV2D_DEPTHWISE;
        e->own->plan(e);
        return FR_OK;
    }
    const bool indirect = prefers_indirect(d, pass);
    FRI_TRY(indirect ? plan_indirect(e) : plan_direct(e));
    /* The other way where this one does not exist, or where only the other one keeps the caller's limit. */
    const bool over = d->workspace_limit > 0 && e->bytes > d->workspace_limit;
    if (e->method != FRI_CONV2D_NONE && !over) return FR_OK;
    fri_conv2d_engine other = {.d = *d, .pass = pass};
    FRI_TRY(indirect ? plan_direct(&other) : plan_indirect(&other));
    if (other.method == FRI_CONV2D_NONE) return FR_OK;
    if (e->method == FRI_CONV2D_NONE || other.bytes <= d->workspace_limit) *e = other;
    return FR_OK;
}

fr_status fri_conv2d_engine_prepare(const fri_conv2d_engine *e, const void *w, char *workspace) {
    if (e->method == FRI_CONV2D_WINOGRAD || e->method == FRI_CONV2D_INDIRECT) return FR_OK;
    if (e->own != NULL) {
        if (e->pass != FRI_PASS_BACKWARD_WEIGHT) e->own->prepare(e, w, workspace);
        return FR_OK;
    }
    if (e->pass == FRI_PASS_FORWARD) memset(workspace + e->bias_at, 0, (size_t)e->d.k * fr_dtype_size(e->d.bias_dtype));
    if (e->method != FRI_CONV2D_DIRECT || e->pass == FRI_PASS_BACKWARD_WEIGHT || fri_dnnl_packed_bytes(e->direct) == 0)
        return FR_OK;
    return fri_dnnl_pack(e->direct, w, workspace + e->weight_at, workspace + e->scratch_at);
}

fr_status fri_conv2d_engine_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                char *workspace) {
    if (e->method == FRI_CONV2D_WINOGRAD) return fri_conv2d_winograd_run(e, a, b, bias, out, workspace);
    if (e->own != NULL) {
        if (e->pass == FRI_PASS_BACKWARD_WEIGHT)
            e->own->run_weight(e, a, b, out, workspace);
        else
            e->own->run(e, a, bias, out, workspace);
        return FR_OK;
    }
    if (e->method == FRI_CONV2D_INDIRECT) {
        fri_conv2d_indirect_run(e, a, b, bias, out, workspace);
        return FR_OK;
    }
    if (e->pass == FRI_PASS_FORWARD && bias == NULL) bias = workspace + e->bias_at;
    bool packed = fri_dnnl_packed_bytes(e->direct) > 0;
    void *weight = workspace + e->weight_at, *scratch = workspace + e->scratch_at;
    if (e->pass != FRI_PASS_BACKWARD_WEIGHT) return fri_dnnl_run(e->direct, a, packed ? weight : b, bias, out, scratch);
    fr_status s = fri_dnnl_run(e->direct, a, b, NULL, packed ? weight : out, scratch);
    if (s >= 0 && packed) s = fri_dnnl_unpack(e->direct, weight, out, scratch);
    return s;
}
