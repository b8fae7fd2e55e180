/* cast - conversion between element types.
 *   forward    y = x rounded to the type (nearest, ties to even)
 *   backward   dx = dy converted to x's type
 *   saves      nothing
 *   in-place   no
 *   rebuild    from x; a cast of a leaf (a weight under autocast) always, unless casts are cached
 *   order      deterministic */
#include "ops/op.h"

#include "base/status.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fr_dtype *from = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    FRI_TRY(fri_tensor_clone_as(*dy, *from, FR_MEM_TEMPORARY, &dx));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    return fri_tensor_clone_as(in[0], node->dtype, FR_MEM_TEMPORARY, y);
}

static const fr_op cast = {.name = "cast",
                           .backward = backward,
                           .rebuild = rebuild,
                           .rebuild_inputs = 1,
                           .rebuild_from_leaf = true};

fr_status fr_cast(fr_tensor *x, fr_dtype dtype, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_call_begin(&c, &cast, 1, &x, 1));
    if (fr_dtype_size(dtype) == 0) return fr_fail(FR_EDTYPE, "cast: %d is not an element type", (int)dtype);
    if (x->requires_grad && !fr_dtype_is_float(dtype) && fr_grad_enabled())
        return fr_fail(FR_EDTYPE, "cast: x requires grad, but %s has no gradient; detach x first",
                       fr_dtype_name(dtype));
    if (x->dtype == dtype) { /* no copy, as in PyTorch */
        out = fr_tensor_retain(x);
    } else {
        FRI_TRY(fri_tensor_clone_as(x, dtype, FR_MEM_TEMPORARY, &out));
        FRI_TRY(fr_op_record(&cast, &x->dtype, sizeof x->dtype, &x, 1, NULL, 0, out));
    }
    fri_tensor_put(&out, y);
    return FR_OK;
}
