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
    fr_tensor *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_tensor_clone_as(*dy, *from, FR_MEM_TEMPORARY, &dx));
    fr_tensor_release(dy);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&dx);
    return s;
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
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &cast, 1, &x, 1));
    if (fr_dtype_size(dtype) == 0) {
        s = fr_fail(FR_EDTYPE, "cast: %d is not an element type", (int)dtype);
        goto done;
    }
    if (x->requires_grad && !fr_dtype_is_float(dtype) && fr_grad_enabled()) {
        s = fr_fail(FR_EDTYPE, "cast: x requires grad and %s has no gradient; detach it first", fr_dtype_name(dtype));
        goto done;
    }
    if (x->dtype == dtype) { /* the same tensor, as in PyTorch */
        out = fr_tensor_retain(x);
    } else {
        FR_TRY(s, fri_tensor_clone_as(x, dtype, FR_MEM_TEMPORARY, &out));
        FR_TRY(s, fr_op_record(&cast, &x->dtype, sizeof x->dtype, &x, 1, NULL, 0, out));
    }
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}
