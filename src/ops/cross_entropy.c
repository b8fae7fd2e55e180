/* cross_entropy - softmax cross-entropy with classes or shares of classes, mean over the rows that count.
 *   forward    loss = sum over rows and classes of q (lse(x) - x) / D,  lse = log sum exp
 *              q = weight ((1 - e) t + e / classes), e = label_smoothing, t the target's one-hot or shares
 *   backward   dx = (sum(q) softmax(x) - q) * dloss / D; 0 on ignored rows
 *   saves      x, target, weight (references), one value per row and D
 *   order      deterministic; sums in f64 per row
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_BYTES(cross_entropy_workspace, fri_loss_desc, (d))
FRI_OP_KERNEL(cross_entropy_forward, fri_loss_desc, (e, d, T(0), T(1), T(2), T(3), T(4), T(5), T(6)),
              .workspace = cross_entropy_workspace_bytes, .flops = 8, .moves = 1)
FRI_OP_KERNEL(cross_entropy_backward, fri_loss_desc, (e, d, T(0), T(1), T(2), T(3), T(4), T(5), T(6)), .flops = 8,
              .moves = 2)

fr_described fri_op_cross_entropy =
    {.op = {.name = "cross_entropy", .autocast = FR_AUTOCAST_F32},
     .operands = "x[*,v] target:any weight:real[v]? > loss:real[] lse:real[r] factors:real[u] bad:i64[]",
     .forward = {{"x target weight? > loss lse factors bad", &cross_entropy_forward_kernel}},
     .backward = {{"x target weight? lse factors dloss > dx", &cross_entropy_backward_kernel}},
     .bad = "the target of row"};

fr_status fr_cross_entropy(fr_tensor *x, fr_tensor *target, const fr_cross_entropy_opts *opts, fr_tensor **loss) {
    const fr_cross_entropy_opts *o = opts != NULL ? opts : FR_CROSS_ENTROPY_OPTS();
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return fr_fail(FR_EINVAL, "cross_entropy: label_smoothing is %g; it must lie in 0..1", o->label_smoothing);
    const fri_loss_desc d = {.label_smoothing = o->label_smoothing, .ignore_index = o->ignore_index};
    return fri_loss_call(&fri_op_cross_entropy, x, target, o->weight, true, false, d, loss);
}

FRI_OP_KERNEL(count_correct, fri_loss_desc, (e, d, T(0), T(1), T(2)), .flops = 1, .moves = 1)

fr_described fri_op_count_correct = {.op = {.name = "count_correct"},
                                     .operands = "x[*,v] target:any > correct:i64[]",
                                     .forward = {{"x target > correct", &count_correct_kernel}}};

fr_status fr_count_correct(fr_tensor *x, fr_tensor *target, fr_tensor **correct) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_loss_desc d = {.ignore_index = -100};
    FRI_TRY(fri_frame_begin(&f, &fri_op_count_correct, (fr_tensor *[]){x, target}, correct));
    FRI_TRY(fri_loss_describe(&f, false, &d));
    return fri_frame_run(&f, &d, sizeof d, correct);
}
