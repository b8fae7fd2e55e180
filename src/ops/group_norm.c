/* group_norm - normalization over groups of channels of each image (Wu and He, 2018), or over the last dimension (layer
 * norm; Ba et al., 2016).
 *   forward    y = (x - mean) * invstd * gamma + beta,  invstd = 1 / sqrt(var + eps), of each group
 *   backward   dbeta = sum dy;  dgamma = sum dy * xhat;
 *              dx = invstd * (g - mean(g) - xhat * mean(g * xhat)) with g = gamma * dy, means over the group
 *   order      deterministic
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

enum { DGAMMA = 5, DBETA, DX }; /* words of the backward step */

static fr_status backward_bytes(const fr_kernel_call *c, size_t *bytes) {
    const fri_backend *target = fri_target_of(c);
    *bytes = target != NULL && c->t[DGAMMA] != NULL
                 ? FRI_KERNEL_BYTES(target, c->dtype, group_norm_workspace, (c->options))
                 : 0;
    return FR_OK;
}

/* x and dy are read twice for dx, and once more for dgamma and dbeta. */
static void backward_cost(const fr_kernel_call *c, fri_kernel_call *work) {
    const double passes = (c->t[DX] != NULL ? 5 : 0) + (c->t[DGAMMA] != NULL ? 2 : 0);
    work->flops = 3 * passes * (double)N(0);
    work->bytes = passes * (double)fri_nbytes(c->t[0]);
}
static const fri_kernel_more backward_more = {.cost = backward_cost};

FRI_OP_KERNEL(group_norm_forward, fri_group_norm_desc, (e, d, T(0), T(1), T(2), T(3), T(4), T(5)), .flops = 8,
              .moves = 3)
FRI_OP_KERNEL(group_norm_backward, fri_group_norm_desc,
              (e, d, T(0), T(1), T(2), T(3), T(4), T(DX), T(DGAMMA), T(DBETA)), .workspace = backward_bytes,
              .fri_more = &backward_more)

#define NORM(word, x, statistic)                                                                               \
    fr_described fri_op_##word = {.op = {.name = #word, .autocast = FR_AUTOCAST_F32},                          \
                                  .operands = "x" x " gamma:real[c] beta:real[c] > y" x " mean:real" statistic \
                                              " invstd:real" statistic,                                        \
                                  .forward = {{"x gamma beta > y mean invstd", &group_norm_forward_kernel}},   \
                                  .backward = {{"x gamma mean invstd dy > dgamma&dbeta dx=dy|x",               \
                                                &group_norm_backward_kernel}}};
NORM(group_norm, "[n,h,w,c]", "[n,g]")
NORM(layer_norm, "[*,c]", "[r,g]")

static fr_status run_norm(fri_frame *f, fri_group_norm_desc d, fr_tensor **y) {
    if (!(d.eps >= 0)) return fr_fail(FR_EINVAL, "%s: eps is %g; it must be >= 0", f->read->op.name, d.eps);
    FRI_SIZE(*f, 'r') = d.n;
    FRI_SIZE(*f, 'g') = d.groups;
    return fri_frame_run(f, &d, sizeof d, y);
}

fr_status fr_group_norm(fr_tensor *x, int64_t groups, fr_tensor *gamma, fr_tensor *beta, double eps, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_group_norm, (fr_tensor *[]){x, gamma, beta}, y));
    const int64_t c = FRI_SIZE(f, 'c'), pixels = FRI_SIZE(f, 'h') * FRI_SIZE(f, 'w');
    if (groups < 1 || c % groups != 0)
        return fr_fail(FR_ESHAPE, "group_norm: %lld groups for %lld channels; groups must divide channels",
                       (long long)groups, (long long)c);
    return run_norm(&f, (fri_group_norm_desc){f.dtype, FRI_SIZE(f, 'n'), pixels, c, groups, eps}, y);
}

fr_status fr_layer_norm(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, double eps, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_layer_norm, (fr_tensor *[]){x, gamma, beta}, y));
    return run_norm(&f, (fri_group_norm_desc){f.dtype, fri_shape_numel(&f.any), 1, FRI_SIZE(f, 'c'), 1, eps}, y);
}
