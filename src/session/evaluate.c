/* evaluate.c - accuracy and loss of a batch of test images, in eval mode and without a graph. */
#include "session/session.h"
#include "tensor/readback.h"

#include <math.h>
#include <stdlib.h>

static fr_status settle_part(fri_sums *sum, int i) {
    fri_batch_numbers *b = &sum->batch[sum->of[i]];
    double mean = NAN;
    if (sum->n[i] == 0) return FR_OK;
    b->targets = (double)sum->n[i];
    sum->n[i] = 0;
    FRI_TRY(fri_readback_value(&sum->part[i].loss, &mean));
    FRI_TRY(fri_readback_value(&sum->part[i].correct, &b->correct));
    b->loss = mean * b->targets;
    return FR_OK;
}

/* Adds the program's metrics and the confusion matrix. Metrics run on the host, so meta plans only the cast. */
static fr_status measure_metrics(const fri_session *r, fr_tensor **y, fr_tensor *targets, fri_batch_numbers *b) {
    const fr_train_program *p = r->config->program;
    double value[FR_METRICS_MAX] = {0}, images = (double)fr_tensor_dim(targets, 0);
    const bool classes = r->config->opts.optim.per_class && r->config->accuracy;
    if (p->metrics == NULL && !classes) return FR_OK;
    if (fr_tensor_dtype(*y) != FR_F32) FRI_TRY(fr_cast(*y, FR_F32, y));
    if (fr_tensor_device(*y) == FR_META) return FR_OK;
    if (classes) FRI_TRY(fri_confusion_add(r, *y, targets));
    if (p->metrics != NULL) FRI_TRY(FRI_CALLBACK("metrics", p->metrics(p->ctx, *y, targets, value)));
    for (int64_t i = 0; i < p->n_metrics; i++) b->metric[i] = value[i] * images;
    b->images = images;
    return FR_OK;
}

fr_status fri_sums_total(const fri_session *r, const fri_sums *sum, fri_batch_numbers *total) {
    const int64_t batches = fri_test_batches(r->config), ranks = r->config->ranks, most = (batches + ranks - 1) / ranks;
    FRI_OWNED(fri_free) fri_batch_numbers *all = NULL;
    *total = (fri_batch_numbers){0};
    if (ranks > 1) FRI_TRY(fri_ranks_numbers(r, sum->batch, sum->batches, most, &all));
    const fri_batch_numbers *b = ranks > 1 ? all : sum->batch;
    for (int64_t i = 0; i < (ranks > 1 ? batches : sum->batches); i++) {
        total->loss += b[i].loss;
        total->correct += b[i].correct;
        total->targets += b[i].targets;
        total->images += b[i].images;
        for (int k = 0; k < FR_METRICS_MAX; k++) total->metric[k] += b[i].metric[k];
    }
    return FR_OK;
}

fr_status fri_sums_settle(fri_sums *sum) {
    fr_status s = settle_part(sum, sum->turn);
    return s < 0 ? s : settle_part(sum, 1 - sum->turn);
}

void fri_sums_drop(fri_sums *sum) {
    for (int i = 0; i < 2; i++) {
        fri_readback_drop(&sum->part[i].loss);
        fri_readback_drop(&sum->part[i].correct);
    }
    free(sum->batch);
    *sum = (fri_sums){0};
}

/* Appends an entry for the numbers of the next batch. */
static fr_status append_batch(fri_sums *sum) {
    const int64_t n = sum->batches;
    if ((n & (n - 1)) == 0) { /* the capacity is a power of two, so the array is full at 0, 1, 2, 4, ... */
        fri_batch_numbers *more = realloc(sum->batch, (size_t)(n > 0 ? 2 * n : 1) * sizeof *more);
        if (more == NULL)
            return fr_fail(FR_ENOMEM, "trainer: no host memory for the numbers of %lld batches", (long long)n);
        sum->batch = more;
    }
    sum->batch[sum->batches++] = (fri_batch_numbers){0};
    return FR_OK;
}

fr_status fri_evaluate_batch(const fri_session *r, fr_tensor **images, fr_tensor **targets, int64_t n, fri_sums *sum) {
    fr_tensor *y = NULL, *loss = NULL, *count = NULL;
    fri_step_part *part = &sum->part[sum->turn];
    fr_autocast_state was;
    fr_status s = append_batch(sum);
    if (s == FR_OK) s = fri_precision_begin(&r->config->opts, &was);
    if (s < 0) return s;
    FR_TRY(s, fri_model_images(r, images));
    FR_TRY(s, fri_model_forward(r, *images, &y));
    fr_tensor_release(images);
    FR_TRY(s, fri_loss_of_batch(r, y, *targets, false, &loss));
    if (r->config->accuracy) FR_TRY(s, fr_count_correct(y, *targets, &count));
    FR_TRY(s, fri_readback_begin(loss, &part->loss));
    if (count != NULL) FR_TRY(s, fri_readback_begin(count, &part->correct));
    FR_TRY(s, measure_metrics(r, &y, *targets, &sum->batch[sum->batches - 1]));
    sum->n[sum->turn] = n;
    sum->of[sum->turn] = sum->batches - 1;
    sum->turn = 1 - sum->turn;
    FR_TRY(s, settle_part(sum, sum->turn));
done:
    fri_precision_end(&r->config->opts, was);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_tensor_release(&count);
    fr_tensor_release(targets);
    return s;
}

bool fri_run_finished(const fri_session *r) {
    return r->tested.given_up || r->at.step >= fri_steps_total(r->config);
}

fr_status fri_swap_averages(const fri_session *r) {
    return r->net.share != NULL ? r->config->rank_calls->ema_swap(r->net.share)
                                : fr_optimizer_ema_swap(r->net.optimizer);
}

fri_evaluation_scope fri_evaluation_begin(const fri_session *r) {
    fri_evaluation_scope was = {fr_no_grad_begin(), fr_phase_begin(FR_PHASE_EVALUATION)};
    fr_module_evaluation_begin(r->net.model);
    return was;
}

void fri_evaluation_end(const fri_session *r, fri_evaluation_scope was) {
    fr_module_evaluation_end(r->net.model);
    fr_phase_end(was.phase);
    fr_no_grad_end(was.no_grad);
}
