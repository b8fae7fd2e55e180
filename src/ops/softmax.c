/* softmax, log_softmax - over the last dimension, a row.
 *   forward    y = exp(x) / sum(exp(x)); log_softmax: y = x - log(sum(exp(x)))
 *   backward   dx = y * (dy - sum(y * dy)); log_softmax: dx = dy - exp(y) * sum(dy)
 *   order      deterministic
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

/* Options: whether y is the logarithm. */
static fri_loss_desc rows_of(const fr_kernel_call *c) {
    const fr_shape *s = &c->t[0]->shape;
    const int64_t classes = s->dim[s->rank - 1];
    return (fri_loss_desc){.dtype = c->dtype, .rows = classes > 0 ? N(0) / classes : 0, .classes = classes};
}
#define ROWS (&(const fri_loss_desc[]){rows_of(c)}[0])
FRI_OP_KERNEL(softmax_forward, bool, (e, ROWS, *d, T(0), T(1)), .flops = 8)
FRI_OP_KERNEL(softmax_backward, bool, (e, ROWS, *d, T(0), T(1), T(2)), .flops = 4)

#define SOFTMAX(word, logarithm)                                                            \
    fr_described fri_op_##word = {.op = {.name = #word, .autocast = FR_AUTOCAST_F32},       \
                                  .operands = "x[*,c] > y[*,c]=x",                          \
                                  .forward = {{"x > y", &softmax_forward_kernel}},          \
                                  .backward = {{"y dy > dx=dy", &softmax_backward_kernel}}, \
                                  .rebuilds = true};                                        \
    fr_status fr_##word(fr_tensor *x, fr_tensor **y) {                                      \
        return fri_frame_call(&fri_op_##word, &x, &(bool){logarithm}, sizeof(bool), y);     \
    }
SOFTMAX(softmax, false)
SOFTMAX(log_softmax, true)
