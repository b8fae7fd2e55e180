/* relu - rectifier.
 *   forward    y = max(x, 0), NaN passes
 *   backward   dx = dy where !(y <= 0), else 0          (needs the sign of y only)
 *   saves      the sign of y: shared with y, then 1 bit, or nothing if a max pool takes the mask over
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 the gradient is 0; gradcheck keeps |x| > 1e-2
 *   order      deterministic on all backends */
#include "ops/op.h"

static fr_status values(const void *unused, const fr_tensor *x, fr_tensor *y) {
    (void)unused;
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

/* Saves a pass over the gradient if the previous node takes over the mask (Note [The mask of a relu]). Only if the
 * mask is available and the gradient would be overwritten, so that saved tensors, releases and allocations stay
 * unchanged. */
static fr_status left_to_producer(fr_node *node, const fr_tensor *dy, bool *left) {
    bool ready = false;
    fr_status s = fri_node_mask_ready(node, 0, dy, &ready);
    *left = ready && fri_mask_left(node);
    if (*left) fr_node_release_saved(node, 0);
    return s;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    bool left = false;
    FRI_TRY(left_to_producer(node, *dy, &left));
    if (left) return fr_node_grad(node, 0, dy);
    fr_status s = fr_node_mask(node, 0, 0, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

const fri_unary fri_relu_op = {{.name = "relu", .backward = backward, FRI_UNARY}, values, FRI_SAVES_Y, FR_SAVE_MASK};

/* Precondition: y has a node (recording is on and x requires grad). */
static void mark_node_made(bool made, const fr_tensor *y) {
    if (fr_grad_enabled() && y->requires_grad) fri_node_of(y)->reads_as_made = made;
}

fr_status fri_relu_tail(fr_tensor *x, bool there, fr_tensor **y) {
    const bool made = fri_as_node_made(x);
    fr_status s = fri_unary_call(&fri_relu_op, NULL, 0, x, there, y);
    if (s == FR_OK) mark_node_made(made, *y);
    return s;
}

fr_status fr_relu(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_relu_tail(x, false, y);
}

fr_status fr_relu_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    const bool made = fri_as_node_made(x);
    fr_status s = fri_unary_inplace(&fri_relu_op, NULL, 0, x);
    if (s == FR_OK) mark_node_made(made, x);
    return s;
}
