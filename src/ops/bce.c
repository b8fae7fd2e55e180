/* bce - binary cross-entropy of a sigmoid per class, and with its focal factor; mean over the elements that count.
 *   forward    loss = mean of a (1 - p_t)^gamma b (ops.h); b = (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x))
 *   backward   dx = a ((1 - p_t)^gamma b' - gamma (1 - p_t)^(gamma - 1) p_t' b) * dloss / n; 0 on ignored rows
 *   saves      x, target, pos_weight (references) and n
 *   order      deterministic; sums in f64 per row
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_BYTES(bce_workspace, fri_loss_desc, (d))
FRI_OP_KERNEL(bce_forward, fri_loss_desc, (e, d, T(0), T(1), T(2), T(3), NULL, T(4), T(5)),
              .workspace = bce_workspace_bytes, .flops = 12, .moves = 1)
FRI_OP_KERNEL(bce_backward, fri_loss_desc, (e, d, T(0), T(1), T(2), NULL, T(3), T(4), T(5)), .flops = 12, .moves = 2)

fr_described fri_op_bce = {.op = {.name = "bce", .autocast = FR_AUTOCAST_F32},
                           .operands = "x[*,v] target:any weight:real[v]? > loss:real[] factors:real[u] bad:i64[]",
                           .forward = {{"x target weight? > loss factors bad", &bce_forward_kernel}},
                           .backward = {{"x target weight? factors dloss > dx", &bce_backward_kernel}},
                           .bad = "the target of row"};

fr_status fr_bce(fr_tensor *x, fr_tensor *target, const fr_bce_opts *opts, fr_tensor **loss) {
    const fr_bce_opts *o = opts != NULL ? opts : FR_BCE_OPTS();
    if (!(o->gamma >= 0) || !(o->alpha <= 1))
        return fr_fail(FR_EINVAL, "bce: gamma is %g and alpha %g; needed: gamma >= 0, alpha <= 1", o->gamma, o->alpha);
    const fri_loss_desc d = {.ignore_index = o->ignore_index, .gamma = o->gamma, .alpha = o->alpha};
    return fri_loss_call(&fri_op_bce, x, target, o->pos_weight, true, false, d, loss);
}
