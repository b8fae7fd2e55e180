/* conv2d_constant.c - convolutions of inference networks: weights are converted once, and the pass that writes y adds
 * and activates.
 *
 * The library's convolution with packed weights is the fastest method here for single images, except for large maps
 * of 3 x 3 layers, where transforming the filters for Winograd costs little compared with the products saved. */
#include "cpu/conv2d_engine.h"
#include "cpu/cpu.h"

#include "base/process.h"
#include "base/status.h"

/* Tiles per image from which Winograd beats the library with packed weights for one image (2 threads, AMD Zen 5,
 * oneDNN 2.6.3). Transforming the filters costs as much as about ten tiles, and nothing else needs packing. */
enum { TILES = 49 };

/* A plan sets one member or none; engine.method is FRI_CONV2D_NONE if the engine is not used. */
typedef struct plan {
    const fri_dnnl_op *direct;
    fri_conv2d_engine engine;
} plan;

static fr_status make_plan(const fri_conv2d_desc *d, plan *p) {
    *p = (plan){0};
    if (d->dtype != FR_F32 || d->bias_dtype != FR_F32 || d->n * d->c * d->k == 0) return FR_OK;
    const bool winograd = !fri_exact_convolutions_get() && fri_conv2d_winograd_pays(d, FRI_PASS_FORWARD);
    const bool large = fri_ceil_div(d->p, 4) * fri_ceil_div(d->q, 4) >= TILES;
    if (winograd && large) FRI_TRY(fri_conv2d_engine_plan(d, FRI_PASS_FORWARD, FRI_CONV2D_WINOGRAD, &p->engine));
    if (p->engine.method != FRI_CONV2D_NONE) return FR_OK;
    FRI_TRY(fri_dnnl()->conv2d(d, FRI_PASS_FORWARD, &p->direct));
    if (p->direct != NULL) return FR_OK;
    if (winograd) FRI_TRY(fri_conv2d_engine_plan(d, FRI_PASS_FORWARD, FRI_CONV2D_WINOGRAD, &p->engine));
    if (p->engine.method != FRI_CONV2D_NONE || d->groups > 1) return FR_OK;
    return fri_conv2d_engine_plan(d, FRI_PASS_FORWARD, FRI_CONV2D_INDIRECT, &p->engine);
}

fr_status fri_cpu_conv2d_constant_plan(const fri_conv2d_desc *d, fri_conv2d_layout *out) {
    plan p;
    fr_status s = make_plan(d, &p);
    *out = (fri_conv2d_layout){0};
    if (s < 0) return s;
    if (p.direct != NULL) {
        const size_t packed = p.direct->packed_bytes;
        *out = (fri_conv2d_layout){true, packed > 0 ? p.direct : NULL, packed, p.direct->scratch_bytes};
    } else if (p.engine.method != FRI_CONV2D_NONE) {
        *out = (fri_conv2d_layout){.there = true, .workspace = p.engine.bytes};
    }
    return FR_OK;
}

fr_status fri_cpu_conv2d_constant_pack(const void *from_layout, const void *from, const void *to_layout, void *to) {
    return fri_dnnl()->repack(from_layout, from, to_layout, to);
}

fr_status fri_cpu_conv2d_constant_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                          const void *b, void *y) {
    plan p;
    void *workspace = NULL;
    fr_status s = make_plan(d, &p);
    const size_t bytes = p.direct != NULL ? p.direct->scratch_bytes : p.engine.bytes;
    if (s >= 0) s = fri_cpu_workspace(e, "conv2d_constant_forward", bytes, &workspace);
    if (s < 0) return s;
    if (p.direct != NULL) return fri_dnnl()->run(p.direct, x, w, b, y, workspace);
    return fri_conv2d_engine_run(&p.engine, x, w, b, y, workspace);
}
