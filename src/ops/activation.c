/* activation - the activations of FRI_ACTIVATIONS, and clamp; formulas in backend/arith.h.
 *   forward    y = f(x)
 *   backward   dx = dy f'(x); sigmoid, tanh and elu from y
 *   saves      sigmoid, tanh, elu: y; the others: x
 *   in-place   forward where x is not saved; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       hardsigmoid, hardswish at x = -3 and 3, where dx is 0, or dy for hardswish at 3; clamp at its bounds,
 *              where dx is 0; as PyTorch
 *   order      deterministic */
#include "backend/arith.h"
#include "ops/op.h"

#include "base/status.h"

typedef fr_status gradient_of(const void *params, const fr_tensor *saved, const fr_tensor *dy, fr_tensor *dx);

static fr_status backward(fr_node *node, fr_tensor **dy, gradient_of *gradient) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *saved = NULL;
    FRI_TRY(fr_node_saved(node, 0, &saved));
    FRI_TRY(fri_gradient_like(*dy, &dx));
    FRI_TRY(gradient(fr_node_params(node), saved, *dy, dx));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

#define ACTIVATION(name_, saves_, ...)                                                                        \
    static fr_status name_##_values(const void *unused, const fr_tensor *x, fr_tensor *y) {                   \
        (void)unused;                                                                                         \
        return FRI_KERNEL(fri_backend_of(x), x->dtype, name_##_forward,                                       \
                          (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));                      \
    }                                                                                                         \
    static fr_status name_##_gradient(const void *unused, const fr_tensor *saved, const fr_tensor *dy,        \
                                      fr_tensor *dx) {                                                        \
        (void)unused;                                                                                         \
        return FRI_KERNEL(fri_backend_of(dy), dy->dtype, name_##_backward,                                    \
                          (FRI_EXEC, dy->dtype, fri_numel(dy), fri_data(saved), fri_data(dy), fri_data(dx))); \
    }                                                                                                         \
    static fr_status name_##_back(fr_node *node, fr_tensor **dy) {                                            \
        return backward(node, dy, name_##_gradient);                                                          \
    }                                                                                                         \
    static const fri_unary name_##_op = {{.name = #name_, .backward = name_##_back, FRI_UNARY},               \
                                         name_##_values,                                                      \
                                         FRI_SAVES_##saves_,                                                  \
                                         FR_SAVE_VALUE};                                                      \
    fr_status fr_##name_(fr_tensor *x, fr_tensor **y) {                                                       \
        FRI_NOT_NULL(x, y);                                                                                   \
        return fri_unary_call(&name_##_op, NULL, 0, x, y);                                                    \
    }
FRI_ACTIVATIONS(ACTIVATION)

/* ---- clamp: params are its bounds -------------------------------------------------------------------------------- */

static fr_status clamp_values(const void *bounds, const fr_tensor *x, fr_tensor *y) {
    const double *b = bounds;
    return FRI_KERNEL(fri_backend_of(x), x->dtype, clamp_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), b[0], b[1], fri_data(x), fri_data(y)));
}

static fr_status clamp_gradient(const void *bounds, const fr_tensor *saved, const fr_tensor *dy, fr_tensor *dx) {
    const double *b = bounds;
    return FRI_KERNEL(fri_backend_of(dy), dy->dtype, clamp_backward,
                      (FRI_EXEC, dy->dtype, fri_numel(dy), b[0], b[1], fri_data(saved), fri_data(dy), fri_data(dx)));
}

static fr_status clamp_back(fr_node *node, fr_tensor **dy) {
    return backward(node, dy, clamp_gradient);
}

static const fri_unary clamp_op = {{.name = "clamp", .backward = clamp_back, FRI_UNARY},
                                   clamp_values,
                                   FRI_SAVES_X,
                                   FR_SAVE_VALUE};

fr_status fr_clamp(fr_tensor *x, double low, double high, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    const double bounds[2] = {low, high};
    if (!(low <= high)) return fr_fail(FR_EINVAL, "clamp: low is %g and high is %g; low must be <= high", low, high);
    return fri_unary_call(&clamp_op, bounds, sizeof bounds, x, y);
}
