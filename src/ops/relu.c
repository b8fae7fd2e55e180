/* relu - rectifier.
 *   forward    y = max(x, 0), NaN passes
 *   backward   dx = dy where !(y <= 0), else 0          (needs the sign of y only)
 *   saves      the sign of y: shared with y, then 1 bit, or nothing if a max pool takes the mask over
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 the gradient is 0; gradcheck keeps |x| > 1e-2
 *   order      deterministic on all backends */
#include "autograd/anomaly.h"
#include "base/env.h"
#include "ops/batchnorm2d.h"

static fr_status relu_values(const fr_tensor *x, fr_tensor *y) {
    fri_exec e = fri_exec_of(x);
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu_forward,
                      (&e, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

typedef struct params {
    bool of_batchnorm; /* of a batch norm's result as it made it */
} params;

/* Note [Relu's gradient in batch norm's]: does batch norm's backward mask the gradient? */
static fr_status left_to_batchnorm(fr_node *node, const fr_tensor *dy, bool *left) {
    const params *p = fr_node_params(node);
    bool ready = false;
    *left = false;
    if (!p->of_batchnorm || node->edges[0].node == NULL || fri_anomaly_looks() || fri_env_get()->check_nan)
        return FR_OK;
    fr_status s = fri_node_mask_ready(node, 0, dy, &ready);
    *left = ready && fri_batchnorm2d_masks(node->edges[0].node);
    if (*left) fr_node_release_saved(node, 0);
    return s;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    bool left = false;
    fr_status s = left_to_batchnorm(node, *dy, &left);
    if (s < 0) return s;
    if (left) return fr_node_grad(node, 0, dy);
    s = fr_node_mask(node, 0, 0, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    (void)node;
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_gradient_like(in[0], &out));
    FRI_TRY(s, relu_values(in[0], out));
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    return s;
}

static const fr_op relu = {.name = "relu",
                           .backward = backward,
                           .rebuild = rebuild,
                           .rebuild_inputs = 1,
                           .is_relu = true};

static fr_status record(fr_tensor *x, bool of_batchnorm, fr_tensor *out) {
    params p = {of_batchnorm};
    fr_save save = {out, FR_SAVE_MASK};
    return fr_op_record(&relu, &p, sizeof p, &x, 1, &save, 1, out);
}

fr_status fr_relu(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_call_begin(&c, &relu, 1, &x, 1));
    FRI_TRY(s, fri_expect_float(&relu, x, "x"));
    bool rectified = fri_take_rectified(x), of_batchnorm = fri_made_by_batchnorm2d(x);
    FRI_TRY(s, fri_result_like(x, y, &out));
    if (out != x || !rectified) FRI_TRY(s, relu_values(x, out));
    FRI_TRY(s, record(x, of_batchnorm, out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_relu_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    fri_call c;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_call_begin(&c, &relu, 1, &x, 1));
    FRI_TRY(s, fri_expect_float(&relu, x, "x"));
    FRI_TRY(s, fri_check_inplace(&relu, x));
    const bool of_batchnorm = fri_made_by_batchnorm2d(x);
    fri_bump_version(x);
    FRI_TRY(s, relu_values(x, x));
    FRI_TRY(s, record(x, of_batchnorm, x));
done:
    fri_call_end(&c);
    return s;
}
