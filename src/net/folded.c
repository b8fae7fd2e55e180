/* folded.c - layer FoldedConv2d of inference networks: convolution, sum and relu in one call. */
#include "net/module.h"
#include "ops/conv2d.h"

#include "base/status.h"

/* Shape run of a definition: replaces weights on other devices by meta copies. */
static fr_status run_on_meta(const fri_constant_conv2d *k, fr_tensor **in, int n_in, fr_tensor **out) {
    fri_constant_conv2d twin = {.opts = k->opts, .relu = k->relu};
    fr_status s = fri_tensor_new(&k->w->shape, FR_F32, FR_META, FR_MEM_TEMPORARY, &twin.w);
    if (s == FR_OK) s = fri_tensor_new(&k->b->shape, FR_F32, FR_META, FR_MEM_TEMPORARY, &twin.b);
    if (s == FR_OK) s = fri_conv2d_constant(&twin, in[0], n_in > 1 ? &in[1] : NULL, &out[0]);
    fri_constant_conv2d_release(&twin);
    return s;
}

static fr_status folded_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    const fri_constant_conv2d *k = m->state;
    if (fri_device_of(in[0]) == FR_META && fri_device_of(k->w) != FR_META) return run_on_meta(k, in, n_in, out);
    return fri_conv2d_constant(m->state, in[0], n_in > 1 ? &in[1] : NULL, &out[0]);
}

static void folded_free(void *state) {
    fri_constant_conv2d_release(state);
}

static const fr_module_class folded_class = {.name = "FoldedConv2d",
                                             .run = folded_run,
                                             .traits = FR_LAYER_PER_IMAGE,
                                             .free_state = folded_free};

fr_status fr_folded_conv2d_create(const fr_folded_conv2d *of, fr_module **out) {
    FRI_NOT_NULL(of, of->w, of->b, out);
    FRI_TRY(fr_module_create(&folded_class, sizeof(fri_constant_conv2d), out));
    *(fri_constant_conv2d *)(*out)->state = (fri_constant_conv2d){.w = fr_tensor_retain(of->w),
                                                                  .b = fr_tensor_retain(of->b),
                                                                  .opts = of->opts,
                                                                  .relu = of->relu    ? FRI_ACTIVATION_RELU
                                                                          : of->relu6 ? FRI_ACTIVATION_RELU6
                                                                                      : FRI_ACTIVATION_NONE};
    return FR_OK;
}

fr_status fr_folded_conv2d_get(fr_module *m, fr_folded_conv2d *out) {
    FRI_NOT_NULL(m, out);
    if (m->class_ != &folded_class) return fr_fail(FR_EINVAL, "%s is not a FoldedConv2d", m->class_->name);
    const fri_constant_conv2d *k = m->state;
    *out = (fr_folded_conv2d){.w = k->w,
                              .b = k->b,
                              .opts = k->opts,
                              .relu = k->relu == FRI_ACTIVATION_RELU,
                              .relu6 = k->relu == FRI_ACTIVATION_RELU6};
    return FR_OK;
}
