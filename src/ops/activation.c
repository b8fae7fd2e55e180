/* activation - sigmoid, tanh, silu, hardsigmoid, hardswish, gelu, gelu_tanh; formulas in backend/arith.h.
 *   forward    y = f(x)
 *   backward   dx = dy f'(x); sigmoid and tanh from y: y (1 - y), 1 - y^2
 *   saves      sigmoid, tanh: y; the others: x
 *   in-place   forward where x is not saved; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       hardsigmoid, hardswish at x = -3 and 3, where dx is 0, or dy for hardswish at 3, as PyTorch
 *   order      deterministic */
#include "backend/arith.h"
#include "ops/op.h"

typedef fr_status gradient_of(const fr_tensor *saved, const fr_tensor *dy, fr_tensor *dx);

static fr_status backward(fr_node *node, fr_tensor **dy, gradient_of *gradient) {
    fr_tensor *saved = NULL, *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_node_saved(node, 0, &saved));
    FR_TRY(s, fri_gradient_like(*dy, &dx));
    FR_TRY(s, gradient(saved, *dy, dx));
    fr_tensor_release(dy);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&saved);
    fr_tensor_release(&dx);
    return s;
}

#define ACTIVATION(name_, saves_)                                                                             \
    static fr_status name_##_values(const void *unused, const fr_tensor *x, fr_tensor *y) {                   \
        (void)unused;                                                                                         \
        return FRI_KERNEL(fri_backend_of(x), x->dtype, name_##_forward,                                       \
                          (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));                      \
    }                                                                                                         \
    static fr_status name_##_gradient(const fr_tensor *saved, const fr_tensor *dy, fr_tensor *dx) {           \
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
        return fri_unary_call(&name_##_op, NULL, 0, x, false, y);                                             \
    }
FRI_ACTIVATIONS(ACTIVATION)
