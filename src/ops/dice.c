/* dice - the Dice loss of softmax probabilities, mean over classes.
 *   forward    loss = mean over classes of 1 - (sum(p t) + s) / ((sum p + sum t) / 2 + s); 0 of classes without rows
 *   backward   with u = dloss/dp = other + own t, constants per class: dx = p (u - sum over classes of p u) * dloss
 *   saves      x, target (references), log-sum-exp per row, other and own per class
 *   order      deterministic; sums in f64
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_BYTES(dice_workspace, fri_loss_desc, (d))
FRI_OP_KERNEL(dice_forward, fri_loss_desc, (e, d, T(0), T(1), NULL, T(2), T(3), T(4), T(5)),
              .workspace = dice_workspace_bytes, .flops = 8, .moves = 2)
FRI_OP_KERNEL(dice_backward, fri_loss_desc, (e, d, T(0), T(1), NULL, T(2), T(3), T(4), T(5)), .flops = 8, .moves = 3)

fr_described fri_op_dice = {.op = {.name = "dice", .autocast = FR_AUTOCAST_F32},
                            .operands = "x[*,v] target:any > loss:real[] lse:real[r] factors:real[u] bad:i64[]",
                            .forward = {{"x target > loss lse factors bad", &dice_forward_kernel}},
                            .backward = {{"x target lse factors dloss > dx", &dice_backward_kernel}},
                            .bad = "the target of row"};

fr_status fr_dice(fr_tensor *x, fr_tensor *target, const fr_dice_opts *opts, fr_tensor **loss) {
    const fr_dice_opts *o = opts != NULL ? opts : FR_DICE_OPTS();
    if (!(o->smooth >= 0)) return fr_fail(FR_EINVAL, "dice: smooth is %g; it must be >= 0", o->smooth);
    const fri_loss_desc d = {.ignore_index = o->ignore_index, .smooth = o->smooth};
    return fri_loss_call(&fri_op_dice, x, target, NULL, false, true, d, loss);
}
