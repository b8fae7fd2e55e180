/* evaluate.c - accuracy and loss of a batch of test images, in eval mode and without a graph. */
#include "session/session.h"

#include <math.h>

static fr_status settle(fri_sums *sum, int i) {
    double mean = NAN, correct = NAN;
    int64_t n = sum->n[i];
    fr_status s = FR_OK;
    if (n == 0) return FR_OK;
    sum->n[i] = 0;
    FR_TRY(s, fr_readback_value(&sum->part[i].loss, &mean));
    FR_TRY(s, fr_readback_value(&sum->part[i].correct, &correct));
    sum->loss += mean * (double)n;
    sum->correct += correct;
    sum->targets += n;
done:
    return s;
}

/* The program's own metrics; the plan knows no more of them than the cast. */
static fr_status measure(const fri_session *r, fr_tensor **y, fr_tensor *targets, fri_sums *sum) {
    const fr_train_program *p = r->config->program;
    double value[FR_METRICS_MAX] = {0}, images = (double)fr_tensor_dim(targets, 0);
    fr_status s = FR_OK;
    if (p->metrics == NULL) return FR_OK;
    if (fr_tensor_dtype(*y) != FR_F32) FR_TRY(s, fr_cast(*y, FR_F32, y));
    if (fr_tensor_device(*y) == FR_META) return FR_OK;
    FR_TRY(s, p->metrics(p->ctx, *y, targets, value));
    for (int64_t i = 0; i < p->n_metrics; i++) sum->metric[i] += value[i] * images;
    sum->images += images;
done:
    return s;
}

fr_status fri_sums_settle(fri_sums *sum) {
    fr_status s = settle(sum, sum->turn);
    return s < 0 ? s : settle(sum, 1 - sum->turn);
}

void fri_sums_drop(fri_sums *sum) {
    for (int i = 0; i < 2; i++) {
        fr_readback_drop(&sum->part[i].loss);
        fr_readback_drop(&sum->part[i].correct);
        sum->n[i] = 0;
    }
}

fr_status fri_evaluate_batch(const fri_session *r, fr_tensor **images, fr_tensor **targets, int64_t n, fri_sums *sum) {
    fr_tensor *y = NULL, *loss = NULL, *count = NULL;
    fri_step_part *part = &sum->part[sum->turn];
    fr_autocast_state was;
    fr_status s = fri_precision_begin(&r->config->opts, &was);
    if (s < 0) return s;
    FR_TRY(s, fri_model_forward(r, *images, &y));
    fr_tensor_release(images);
    FR_TRY(s, fri_loss(r, y, *targets, 0, &loss));
    if (r->config->accuracy) FR_TRY(s, fr_count_correct(y, *targets, &count));
    FR_TRY(s, fr_readback_begin(loss, &part->loss));
    if (count != NULL) FR_TRY(s, fr_readback_begin(count, &part->correct));
    FR_TRY(s, measure(r, &y, *targets, sum));
    sum->n[sum->turn] = n;
    sum->turn = 1 - sum->turn;
    FR_TRY(s, settle(sum, sum->turn));
done:
    fri_precision_end(&r->config->opts, was);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_tensor_release(&count);
    fr_tensor_release(targets);
    return s;
}

fri_evaluation_scope fri_evaluation_begin(const fri_session *r) {
    fri_evaluation_scope was = {fr_no_grad_begin(), fr_phase_begin(FR_PHASE_EVALUATION)};
    fr_module_evaluation_begin(r->model);
    return was;
}

void fri_evaluation_end(const fri_session *r, fri_evaluation_scope was) {
    fr_module_evaluation_end(r->model);
    fr_phase_end(was.phase);
    fr_no_grad_end(was.no_grad);
}
