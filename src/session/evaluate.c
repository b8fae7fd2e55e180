/* evaluate.c - accuracy and loss of a batch of test images, in eval mode and without a graph. */
#include "session/model.h"
#include "session/step.h"
#include "net/units.h"
#include "tensor/readback.h"
#include "tensor/tensor.h"

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
static fr_status measure_metrics(const fri_run *r, fr_tensor **y, fr_tensor *targets, fri_batch_numbers *b) {
    const fr_train_program *p = r->config->program;
    double value[FR_METRICS_MAX] = {0}, images = (double)fr_tensor_dim(targets, 0);
    const bool classes = fri_counts_classes(r->config);
    if (p->metrics == NULL && !classes) return FR_OK;
    if (fr_tensor_dtype(*y) != FR_F32) FRI_TRY(fr_cast(*y, FR_F32, y));
    if (fr_tensor_device(*y) == FR_META) return FR_OK;
    if (classes) FRI_TRY(fri_confusion_add(r, *y, targets));
    if (p->metrics != NULL) FRI_TRY(FRI_CALLBACK("metrics", p->metrics(p->ctx, *y, targets, value)));
    for (int64_t i = 0; i < p->n_metrics; i++) b->metric[i] = value[i] * images;
    b->images = images;
    return FR_OK;
}

fr_status fri_sums_total(const fri_run *r, const fri_sums *sum, fri_batch_numbers *total) {
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

/* Puts a part into a batch of n images. n 0: the part makes the whole batch. */
static fr_status put_part(fr_tensor **part, int64_t first, int64_t n, fr_category category, fr_tensor **whole) {
    if (n == 0)
        fri_tensor_put(part, whole);
    else
        FRI_TRY(fri_tensor_put_rows(*part, first, n, category, whole));
    fr_tensor_release(part);
    return FR_OK;
}

static fr_status outputs_of(const fri_run *r, fr_tensor **images, fr_tensor **y) {
    FRI_TRY(fri_model_images(r, images));
    FRI_TRY(fri_model_forward(r, *images, y));
    fr_tensor_release(images);
    return FR_OK;
}

/* Outputs of a batch of n images, computed part by part; n 0: all at once. A model with dependent images runs on the
 * joined parts. */
static fr_status batch_outputs(const fri_run *r, int64_t n, fri_evaluation_part_fn *next, void *ctx, fr_tensor **y,
                               fr_tensor **targets, int64_t *count) {
    FRI_OWNED(fr_tensor_release) fr_tensor *images = NULL, *x = NULL, *t = NULL, *part = NULL;
    const bool apart = fri_module_is_per_image(r->net.model);
    int64_t first = 0, counted = 0, images_of_part = 0;
    do {
        FRI_TRY(next(ctx, first, &x, &t, &counted));
        *count += counted;
        images_of_part = fr_tensor_dim(x, 0);
        FRI_TRY(put_part(&t, first, n, FR_MEM_INPUT, targets));
        if (apart) FRI_TRY(outputs_of(r, &x, &part));
        FRI_TRY(apart ? put_part(&part, first, n, FR_MEM_TEMPORARY, y) : put_part(&x, first, n, FR_MEM_INPUT, &images));
        first += images_of_part;
    } while (first < n);
    return apart ? FR_OK : outputs_of(r, &images, y);
}

fr_status fri_evaluate_batch(const fri_run *r, bool shorter, fri_evaluation_part_fn *next, void *ctx, fri_sums *sum) {
    const fri_config *c = r->config;
    const int64_t full = fri_batch_size(c, FR_SPLIT_TEST);
    const int64_t n = fri_evaluation_part(c) == full ? 0 : shorter ? fri_batch_rest(c, FR_SPLIT_TEST) : full;
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL, *targets = NULL, *loss = NULL, *count = NULL;
    fri_step_part *part = &sum->part[sum->turn];
    fr_autocast_state was;
    fr_status s = append_batch(sum);
    if (s == FR_OK) s = fri_precision_begin(&r->config->opts, &was);
    if (s < 0) return s;
    FR_TRY(s, batch_outputs(r, n, next, ctx, &y, &targets, &sum->n[sum->turn]));
    FR_TRY(s, fri_loss_of_batch(r, y, targets, false, &loss));
    if (r->config->accuracy) FR_TRY(s, fr_count_correct(y, targets, &count));
    FR_TRY(s, fri_readback_begin(loss, &part->loss));
    if (count != NULL) FR_TRY(s, fri_readback_begin(count, &part->correct));
    FR_TRY(s, measure_metrics(r, &y, targets, &sum->batch[sum->batches - 1]));
    sum->of[sum->turn] = sum->batches - 1;
    sum->turn = 1 - sum->turn;
    FR_TRY(s, settle_part(sum, sum->turn));
done:
    fri_precision_end(&r->config->opts, was);
    return s;
}

bool fri_run_finished(const fri_run *r) {
    return r->tested.given_up || r->at.step >= fri_steps_total(r->config);
}

fr_status fri_swap_averages(const fri_run *r) {
    return r->net.share != NULL ? r->config->rank_calls->ema_swap(r->net.share)
                                : fr_optimizer_ema_swap(r->net.optimizer);
}

fri_evaluation_scope fri_evaluation_begin(const fri_run *r) {
    fri_evaluation_scope was = {fr_no_grad_begin(), fr_phase_begin(FR_PHASE_EVALUATION)};
    fr_module_evaluation_begin(r->net.model);
    return was;
}

void fri_evaluation_end(const fri_run *r, fri_evaluation_scope was) {
    fr_module_evaluation_end(r->net.model);
    fr_phase_end(was.phase);
    fr_no_grad_end(was.no_grad);
}
