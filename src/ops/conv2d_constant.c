/* conv2d_constant.c - convolution of an inference network (conv2d.h).
 *
 * Backends without a fused kernel run convolution, sum and relu one after the other. */
#include "ops/conv2d.h"

#include "base/status.h"

static const fr_op conv2d = {.name = "conv2d"}; /* f32 even under autocast */

void fri_constant_conv2d_release(fri_constant_conv2d *k) {
    fr_tensor_release(&k->w);
    fr_tensor_release(&k->b);
}

/* Storage of y: the addend's if no other handle exists. */
static fr_status run_fused(const fri_call *c, const fri_conv2d_desc *d, fr_tensor **addend, fr_tensor **out) {
    const fr_shape shape = FRI_SHAPE(d->n, d->p, d->q, d->k);
    bool wanted = true;
    if (addend == NULL) return fri_result_new(c->in, c->n_in, &shape, d->dtype, &wanted, out);
    if (!fri_shape_equal(&(*addend)->shape, &shape) || (*addend)->dtype != d->dtype) {
        char is[FRI_SHAPE_TEXT], wants[FRI_SHAPE_TEXT];
        return fr_fail(FR_ESHAPE, "conv2d: the addend is %s but the result is %s",
                       fri_shape_text(&(*addend)->shape, is), fri_shape_text(&shape, wants));
    }
    if (!fri_tensor_sole(*addend)) return fr_tensor_clone(*addend, out);
    *out = *addend;
    *addend = NULL;
    fri_bump_version(*out);
    return FR_OK;
}

static fr_status in_one_pass(const fri_constant_conv2d *k, const fri_conv2d_desc *d, size_t workspace,
                             const fr_tensor *x, fr_tensor *out) {
    const fri_backend *be = fri_backend_of(x);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    FRI_TRY(fri_workspace_begin(x, workspace, &ws));
    return FRI_KERNEL(be, d->dtype, conv2d_constant_forward,
                      (&ws.exec, d, fri_data(x), fri_data(k->w), fri_data(k->b), fri_data(out)));
}

static fr_status run_separately(const fri_constant_conv2d *k, fr_tensor *x, fr_tensor **addend, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fr_conv2d(x, k->w, k->b, &k->opts, &out));
    if (addend != NULL) FRI_TRY(fr_add(out, *addend, &out));
    if (k->relu == FRI_ACTIVATION_RELU) FRI_TRY(fr_relu(out, &out));
    if (k->relu == FRI_ACTIVATION_RELU6) FRI_TRY(fr_relu6(out, &out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fri_conv2d_constant(const fri_constant_conv2d *k, fr_tensor *x, fr_tensor **addend, fr_tensor **y) {
    fr_tensor *out = NULL;
    fri_call c;
    fri_conv2d_desc d;
    bool there = false;
    size_t workspace = 0;
    fr_status s = FR_OK;
    if (fr_grad_enabled() && x->requires_grad)
        s = fr_fail(FR_EUSAGE, "conv2d: a network folded for inference has no backward; train the unfolded one");
    if (s < 0) goto released;
    FR_TRY(s, fri_call_begin(&c, &conv2d, 2, (fr_tensor *[]){x, k->w, k->b}, 3));
    FR_TRY(s, fri_conv2d_describe(x, k->w, k->b, &k->opts, &d));
    d.accumulate = addend != NULL;
    d.relu = k->relu;
    if (fri_kernels_for(fri_backend_of(x), d.dtype)->conv2d_constant_plan != NULL)
        FR_TRY(s, FRI_KERNEL(fri_backend_of(x), d.dtype, conv2d_constant_plan, (&d, &there, &workspace)));
    if (there) {
        FR_TRY(s, run_fused(&c, &d, addend, &out));
        FR_TRY(s, in_one_pass(k, &d, workspace, x, out));
    } else {
        FR_TRY(s, run_separately(k, x, addend, &out));
    }
    fri_tensor_put(&out, y);
done:
    fri_call_end(&c);
released:
    fr_tensor_release(&out);
    if (addend != NULL) fr_tensor_release(addend);
    return s;
}
