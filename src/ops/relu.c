/* relu - rectifier.
 *   forward    y = max(x, 0), NaN passes
 *   backward   dx = dy where !(y <= 0), else 0          (needs the sign of y only)
 *   saves      the sign of y: shared with y, then 1 bit, or nothing if a max pool takes the mask over
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 the gradient is 0; gradcheck keeps |x| > 1e-2
 *   order      deterministic on all backends */
#include "autograd/anomaly.h"
#include "ops/op.h"

static fr_status values(const void *unused, const fr_tensor *x, fr_tensor *y) {
    (void)unused;
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

typedef struct params {
    bool of_node; /* x was what the node before made, and nobody had written to it */
} params;

/* Note [The mask of a relu]
 * Which elements of the gradient a relu lets through may follow from what a neighbour's backward reads anyway: a max
 * pool behind it sets its own gradient to 0 there, a batch norm before it makes its result again in registers. Either
 * takes the mask over through its op's absorb_mask. Here the one before is asked: only where the mask is at hand (a
 * value or bits, not something to be made again), the gradient would have been written over and nobody examines
 * gradients, so what is saved, when it is given up and what is allocated stay the same. A pass over the gradient
 * less. */
static fr_status left_to_producer(fr_node *node, const fr_tensor *dy, bool *left) {
    const params *p = fr_node_params(node);
    fr_node *up = p->of_node ? node->edges[0].node : NULL;
    bool ready = false;
    *left = false;
    if (up == NULL || up->op->absorb_mask == NULL || up->consumers != 1 || up->executed || up->gradient != NULL ||
        fri_results_examined())
        return FR_OK;
    fr_status s = fri_node_mask_ready(node, 0, dy, &ready);
    *left = ready && up->op->absorb_mask(up, NULL) == FR_OK;
    if (*left) fr_node_release_saved(node, 0);
    return s;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    bool left = false;
    fr_status s = left_to_producer(node, *dy, &left);
    if (s < 0) return s;
    if (left) return fr_node_grad(node, 0, dy);
    s = fr_node_mask(node, 0, 0, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

const fri_unary fri_relu_op = {{.name = "relu", .backward = backward, FRI_UNARY}, values, FRI_SAVES_Y, FR_SAVE_MASK};

fr_status fri_relu_tail(fr_tensor *x, bool there, fr_tensor **y) {
    params p = {fri_as_node_made(x)};
    return fri_unary_call(&fri_relu_op, &p, sizeof p, x, there, y);
}

fr_status fr_relu(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_relu_tail(x, false, y);
}

fr_status fr_relu_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    params p = {fri_as_node_made(x)};
    return fri_unary_inplace(&fri_relu_op, &p, sizeof p, x);
}
