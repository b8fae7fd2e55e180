/* conv2d_constant.c - convolution of an inference network (conv2d.h).
 *
 * Backends without a fused kernel run convolution, sum and relu one after the other. */
#include "ops/conv2d.h"

#include "base/status.h"

/* f32 even under autocast. */
static fr_described constant = {.op = {.name = "conv2d"},
                                .operands = "x[n,h,w,c] w[k,r,s,g] b[k]? > y[n,p,q,k]",
                                .forward = {{"x w b? > y", &fri_conv2d_forward}}};

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

/* The kernel's y holds the addend. */
static fr_status one_pass_bytes(const fr_kernel_call *c, size_t *bytes) {
    bool there;
    *bytes = 0;
    return FRI_KERNEL_SLOT_CALL(c, conv2d_constant_plan, (c->options, &there, bytes));
}
FRI_OP_KERNEL(conv2d_constant_forward, fri_conv2d_desc, (e, d, T(0), T(1), T(2), T(3)), .workspace = one_pass_bytes,
              .fri_more = &fri_conv2d_own_limit)

/* Whether the backend has the fused kernel for d, which gets the bits of operands that are not aligned. */
static fr_status look_for_kernel(fr_tensor *const *in, fri_conv2d_desc *d, bool *there) {
    const fr_kernel_call c = {.t = in, .dtype = d->dtype, .device = fri_device_of(in[0])};
    const fri_backend *target = fri_target_of(&c);
    size_t bytes;
    *there = false;
    fri_conv2d_own_limit.prepare(&c, d);
    if (target == NULL || fri_kernels_for(target, d->dtype)->conv2d_constant_plan == NULL) return FR_OK;
    return fri_kernels_for(target, d->dtype)->conv2d_constant_plan(d, there, &bytes);
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
    fr_tensor *out = NULL, *in[] = {x, k->w, k->b};
    fri_frame f = {0};
    fri_conv2d_desc d;
    bool there = false;
    fr_status s = FR_OK;
    if (fr_grad_enabled() && x->requires_grad)
        s = fr_fail(FR_EUSAGE, "conv2d: a network folded for inference has no backward; train the unfolded one");
    FR_TRY(s, s < 0 ? s : fri_frame_begin(&f, &constant, in, y));
    FR_TRY(s, fri_conv2d_describe(&f, &k->opts, &d));
    d.accumulate = addend != NULL;
    d.relu = k->relu;
    FR_TRY(s, look_for_kernel(in, &d, &there));
    if (there) {
        FR_TRY(s, run_fused(&f.c, &d, addend, &out));
        FR_TRY(s, fri_kernel_run(&conv2d_constant_forward_kernel, &d, sizeof d, d.dtype,
                                 (fr_tensor *[]){x, k->w, k->b, out}, 4));
    } else {
        FR_TRY(s, run_separately(k, x, addend, &out));
    }
    fri_tensor_put(&out, y);
done:
    fri_frame_end(&f);
    fr_tensor_release(&out);
    if (addend != NULL) fr_tensor_release(addend);
    return s;
}
