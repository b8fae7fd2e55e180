/* conv2d_constant.c - convolutions of inference networks: the pass that writes y adds and activates. */
#include "cpu/conv2d_engine.h"
#include "cpu/cpu.h"

#include "base/process.h"
#include "base/status.h"

/* Plans a pass; e->method is FRI_CONV2D_NONE if there is none. Depthwise loops do not add. */
static void make_plan(const fri_conv2d_desc *d, fri_conv2d_engine *e) {
    *e = (fri_conv2d_engine){.method = FRI_CONV2D_NONE};
    if (d->dtype != FR_F32 || d->bias_dtype != FR_F32 || d->n * d->c * d->k == 0) return;
    if (!fri_exact_convolutions_get() && fri_conv2d_winograd_pays(d, FRI_PASS_FORWARD))
        fri_conv2d_engine_plan(d, FRI_PASS_FORWARD, FRI_CONV2D_WINOGRAD, e);
    if (e->method == FRI_CONV2D_NONE && d->groups == 1)
        fri_conv2d_engine_plan(d, FRI_PASS_FORWARD, FRI_CONV2D_INDIRECT, e);
}

fr_status fri_cpu_conv2d_constant_plan(const fri_conv2d_desc *d, bool *there, size_t *workspace) {
    fri_conv2d_engine e;
    make_plan(d, &e);
    *there = e.method != FRI_CONV2D_NONE, *workspace = e.bytes;
    return FR_OK;
}

fr_status fri_cpu_conv2d_constant_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                          const void *b, void *y) {
    fri_conv2d_engine engine;
    void *workspace = NULL;
    make_plan(d, &engine);
    FRI_TRY(fri_cpu_workspace(e, "conv2d_constant_forward", engine.bytes, &workspace));
    fri_conv2d_engine_run(&engine, x, w, b, y, workspace);
    return FR_OK;
}
