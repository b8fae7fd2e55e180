/* cross_entropy - softmax cross-entropy with classes or shares of classes, mean over the rows that count.
 *   forward    loss = sum over rows and classes of q (lse(x) - x) / D,  lse = log sum exp
 *              q = weight ((1 - e) t + e / classes), e = label_smoothing, t the target's one-hot or shares
 *   backward   dx = (sum(q) softmax(x) - q) * dloss / D; 0 on ignored rows
 *   saves      x, target, weight (references), one value per row and D
 *   in-place   forward no; backward no
 *   rebuild    no
 *   order      deterministic; sums in f64 per row
 *   autocast   f32 */
#include "ops/loss.h"

#include "base/status.h"

FRI_LOSS_KERNELS(cross_entropy)

static const fri_loss cross_entropy = {FRI_LOSS("cross_entropy"), .lse = true};
static const fr_op count_correct = {.name = "count_correct"};

fr_status fr_cross_entropy(fr_tensor *x, fr_tensor *target, const fr_cross_entropy_opts *opts, fr_tensor **loss) {
    FRI_NOT_NULL(x, target, loss);
    const fr_cross_entropy_opts *o = opts != NULL ? opts : FR_CROSS_ENTROPY_OPTS();
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return fr_fail(FR_EINVAL, "cross_entropy: label_smoothing is %g; it must lie in 0..1", o->label_smoothing);
    const fri_loss_desc d = {.label_smoothing = o->label_smoothing, .ignore_index = o->ignore_index};
    return fri_loss_call(&cross_entropy, x, target, o->weight, true, &d, loss);
}

fr_status fr_count_correct(fr_tensor *x, fr_tensor *target, fr_tensor **correct) {
    FRI_NOT_NULL(x, target, correct);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_loss_desc d;
    fr_shape scalar = {0};
    FRI_TRY(fri_call_begin(&c, &count_correct, 2, (fr_tensor *[]){x, target}, 2));
    FRI_TRY(fri_loss_describe(&count_correct, x, target, false, &d));
    FRI_TRY(fri_tensor_new(&scalar, FR_I64, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), d.dtype, count_correct,
                       (FRI_EXEC, &d, fri_data(x), fri_data(target), fri_data(out))));
    fri_tensor_put(&out, correct);
    return FR_OK;
}
