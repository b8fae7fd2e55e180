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

/* Converts the weights to this layout of size `bytes`; 0: KRSC. */
static fr_status lay_out(fri_constant_conv2d *k, const void *layout, size_t bytes) {
    const fri_backend *be = fri_backend_of(k->w);
    fr_tensor *block = NULL, *w = NULL;
    fr_status s = FR_OK;
    if (layout == k->layout) return s;
    if (layout == NULL) bytes = fri_nbytes(k->w);
    const fr_shape flat = FRI_SHAPE((int64_t)(bytes / sizeof(float)));
    FR_TRY(s, fri_tensor_new(&flat, FR_F32, be->device, FR_MEM_PARAMETER, &block));
    FR_TRY(s, FRI_KERNEL(be, FR_F32, conv2d_constant_pack, (k->layout, fri_data(k->w), layout, fri_data(block))));
    FR_TRY(s, fri_tensor_on_storage(block->storage, 0, &k->w->shape, FR_F32, &w));
    fri_tensor_put(&w, &k->w);
    k->layout = layout;
done:
    fr_tensor_release(&block);
    fr_tensor_release(&w);
    return s;
}

fr_status fri_constant_conv2d_plain(fri_constant_conv2d *k) {
    return lay_out(k, NULL, 0);
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

static fr_status in_one_pass(fri_constant_conv2d *k, const fri_conv2d_desc *d, const fri_conv2d_layout *plan,
                             const fr_tensor *x, fr_tensor *out) {
    const fri_backend *be = fri_backend_of(x);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    FRI_TRY(lay_out(k, plan->layout, plan->packed_bytes));
    FRI_TRY(fri_workspace_begin(x, plan->workspace, &ws));
    return FRI_KERNEL(be, d->dtype, conv2d_constant_forward,
                      (&ws.exec, d, fri_data(x), fri_data(k->w), fri_data(k->b), fri_data(out)));
}

static fr_status run_separately(fri_constant_conv2d *k, fr_tensor *x, fr_tensor **addend, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(lay_out(k, NULL, 0));
    FRI_TRY(fr_conv2d(x, k->w, k->b, &k->opts, &out));
    if (addend != NULL) FRI_TRY(fr_add(out, *addend, &out));
    if (k->relu == FRI_ACTIVATION_RELU) FRI_TRY(fr_relu(out, &out));
    if (k->relu == FRI_ACTIVATION_RELU6) FRI_TRY(fr_relu6(out, &out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fri_conv2d_constant(fri_constant_conv2d *k, fr_tensor *x, fr_tensor **addend, fr_tensor **y) {
    fr_tensor *out = NULL;
    fri_call c;
    fri_conv2d_desc d;
    fri_conv2d_layout plan = {0};
    fr_status s = FR_OK;
    if (fr_grad_enabled() && x->requires_grad)
        s = fr_fail(FR_EUSAGE, "conv2d: a network folded for inference has no backward; train the unfolded one");
    if (s < 0) goto released;
    FR_TRY(s, fri_call_begin(&c, &conv2d, 2, (fr_tensor *[]){x, k->w, k->b}, 3));
    FR_TRY(s, fri_conv2d_describe(x, k->w, k->b, &k->opts, &d));
    d.accumulate = addend != NULL;
    d.relu = k->relu;
    if (fri_kernels_for(fri_backend_of(x), d.dtype)->conv2d_constant_plan != NULL)
        FR_TRY(s, FRI_KERNEL(fri_backend_of(x), d.dtype, conv2d_constant_plan, (&d, &plan)));
    if (plan.there) {
        FR_TRY(s, run_fused(&c, &d, addend, &out));
        FR_TRY(s, in_one_pass(k, &d, &plan, x, out));
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
