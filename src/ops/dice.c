/* dice - the Dice loss of softmax probabilities, mean over classes.
 *   forward    loss = mean over classes of 1 - (sum(p t) + s) / ((sum p + sum t) / 2 + s); 0 of classes without rows
 *   backward   with u = dloss/dp = other + own t, constants per class: dx = p (u - sum over classes of p u) * dloss
 *   saves      x, target (references), log-sum-exp per row, other and own per class
 *   in-place   forward no; backward no
 *   rebuild    no
 *   order      deterministic; sums in f64
 *   autocast   f32 */
#include "ops/loss.h"

#include "base/status.h"

FRI_LOSS_KERNELS(dice)

static const fri_loss dice = {FRI_LOSS("dice"), .lse = true, .per_class = 2};

fr_status fr_dice(fr_tensor *x, fr_tensor *target, const fr_dice_opts *opts, fr_tensor **loss) {
    FRI_NOT_NULL(x, target, loss);
    const fr_dice_opts *o = opts != NULL ? opts : FR_DICE_OPTS();
    if (!(o->smooth >= 0)) return fr_fail(FR_EINVAL, "dice: smooth is %g; it must be >= 0", o->smooth);
    const fri_loss_desc d = {.ignore_index = o->ignore_index, .smooth = o->smooth};
    return fri_loss_call(&dice, x, target, NULL, false, &d, loss);
}
