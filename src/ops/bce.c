/* bce - binary cross-entropy of a sigmoid per class, and with its focal factor; mean over the elements that count.
 *   forward    loss = mean of a (1 - p_t)^gamma b (ops.h); b = (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x))
 *   backward   dx = a ((1 - p_t)^gamma b' - gamma (1 - p_t)^(gamma - 1) p_t' b) * dloss / n; 0 on ignored rows
 *   saves      x, target, pos_weight (references) and n
 *   in-place   forward no; backward no
 *   rebuild    no
 *   order      deterministic; sums in f64 per row
 *   autocast   f32 */
#include "ops/loss.h"

#include "base/status.h"

FRI_LOSS_KERNELS(bce)

static const fri_loss bce = {FRI_LOSS("bce")};

fr_status fr_bce(fr_tensor *x, fr_tensor *target, const fr_bce_opts *opts, fr_tensor **loss) {
    FRI_NOT_NULL(x, target, loss);
    const fr_bce_opts *o = opts != NULL ? opts : FR_BCE_OPTS();
    if (!(o->gamma >= 0) || !(o->alpha <= 1))
        return fr_fail(FR_EINVAL, "bce: gamma is %g and alpha %g; needed: gamma >= 0, alpha <= 1", o->gamma, o->alpha);
    const fri_loss_desc d = {.ignore_index = o->ignore_index, .gamma = o->gamma, .alpha = o->alpha};
    return fri_loss_call(&bce, x, target, o->pos_weight, true, &d, loss);
}
