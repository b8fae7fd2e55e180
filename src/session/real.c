/* real.c - the driver's parts for a run on a device. */
#include "data/input.h"
#include "session/driver.h"
#include "tensor/readback.h"

#include <math.h>

typedef struct real {
    fri_run *r;
    double began;      /* seconds */
    fr_loader *loader; /* test images, only during an evaluation */
    fri_sums sum;
} real;

/* ---- steps --------------------------------------------------------------------------------------------------- */

static fr_status real_batch(void *ctx, int64_t i) {
    fri_step_work *w = ctx;
    fr_status s = fri_input_next(w->r->data.input, w->r->data.loader, &w->images, &w->targets);
    if (s != FR_OK) return s;
    w->count = fri_input_count(w->r->data.input);
    return i + w->r->config->ranks < w->r->config->opts.memory.accumulate
               ? fri_input_fetch(w->r->data.input, w->r->data.loader)
               : FR_OK;
}

static const fri_stepping device_stepping = {real_batch, fri_step_train, fri_step_update};

static fr_status real_step(void *ctx, fri_section part, int64_t alike, int64_t *done) {
    fri_run *r = ((real *)ctx)->r;
    FRI_OWNED(fri_step_work_end) fri_step_work w = {.r = r, .v = &r->numbers.values[r->at.step % 2]};
    (void)alike, (void)done;
    w.v->began = fri_seconds_now();
    FRI_TRY(fri_train_arena_part(r, part));
    fri_watch_begin(r);
    FRI_TRY(fri_drive_step(r, &device_stepping, &w, w.v));
    fri_watch_end(w.v);
    return FR_OK;
}

/* Waits for the step's numbers, stores and reports them. On an asynchronous device the next step is already running,
 * so a step's time is measured from the end of the previous step. */
static fr_status step_known(fri_run *r, fri_step_values *v) {
    double loss = NAN;
    FRI_TRY(fri_step_settle(r, v, &loss));
    double now = fri_seconds_now();
    FRI_TRY(
        fri_step_remember(r, loss, 1000 * (now - (r->numbers.known_at > v->began ? r->numbers.known_at : v->began))));
    r->numbers.known_at = now;
    r->numbers.known = v->number;
    FRI_TRY(fri_watch_loss(r, loss, false));
    return fri_run_emit(r, FR_RUN_STEP);
}

static fr_status steps_known(fri_run *r, int64_t up_to) {
    fr_status s = FR_OK;
    while (s == FR_OK && r->numbers.known < up_to) s = step_known(r, &r->numbers.values[r->numbers.known % 2]);
    return s;
}

static fr_status step_over(void *ctx) {
    fri_run *r = ((real *)ctx)->r;
    return steps_known(r, fr_device_is_asynchronous(r->config->opts.device) ? r->at.step - 1 : r->at.step);
}

static fr_status real_save(void *ctx, bool last) {
    fri_run *r = ((real *)ctx)->r;
    fr_status s = steps_known(r, r->at.step);
    return s == FR_OK ? fri_save(r, last) : s;
}

static fr_status real_prefetch(void *ctx) {
    fri_run *r = ((real *)ctx)->r;
    return fri_input_fetch(r->data.input, r->data.loader);
}

/* Folds the peaks since the last call into *kept. */
static fr_status keep_peak(fri_run *r, fr_memory_stats *kept) {
    fr_memory_stats now = {0};
    FRI_TRY(fri_peak_keep(r->config->opts.device, &now));
    fri_peak_fold(&now, kept);
    return FR_OK;
}

static fr_status steps_over(void *ctx) {
    fri_run *r = ((real *)ctx)->r;
    FRI_TRY(steps_known(r, r->at.step));
    FRI_TRY(fri_readback_check_all()); /* reports bad targets of the last steps */
    return keep_peak(r, &r->memory.training);
}

/* ---- evaluations ------------------------------------------------------------------------------------------------ */

static fr_status real_part(void *ctx, int64_t first, fr_tensor **images, fr_tensor **targets, int64_t *count) {
    const real *x = ctx;
    (void)first;
    FRI_TRY(fri_input_next(x->r->data.input, x->loader, images, targets));
    *count = fri_input_count(x->r->data.input);
    return FR_OK;
}

static fr_status real_evaluation_begin(void *ctx) {
    real *x = ctx;
    fri_run *r = x->r;
    FRI_TRY(fri_train_arena_part(r, FRI_PART_EVALUATION));
    FRI_TRY(fri_confusion_begin(r));
    return fri_data_loader(r->config, FR_SPLIT_TEST, r->data.test, &x->loader);
}

static fr_status real_evaluate(void *ctx, fri_section part, int64_t alike, int64_t *done) {
    real *x = ctx;
    fri_run *r = x->r;
    (void)alike, (void)done;
    if (part != FRI_PART_EVALUATION) FRI_TRY(fri_train_arena_part(r, part));
    return fri_evaluate_batch(r, part == FRI_PART_EVALUATION_SHORT, real_part, x, &x->sum);
}

/* Results are discarded if a signal ended the evaluation early. */
static fr_status real_evaluation_over(void *ctx, fr_status s) {
    real *x = ctx;
    fri_run *r = x->r;
    fri_batch_numbers sum = {0};
    if (s == FR_OK) s = fri_sums_settle(&x->sum);
    if (s == FR_OK && r->at.signal == 0) s = fri_sums_total(r, &x->sum, &sum);
    if (s == FR_OK && r->at.signal == 0) s = fri_confusion_total(r);
    fri_sums_drop(&x->sum);
    fr_loader_release(&x->loader);
    if (s == FR_OK) s = keep_peak(r, &r->memory.evaluation);
    if (s < 0 || r->at.signal != 0 || sum.targets == 0) return s;
    r->tested.targets = (int64_t)sum.targets;
    r->tested.loss = sum.loss / sum.targets;
    r->tested.accuracy = r->config->accuracy ? sum.correct / sum.targets : NAN;
    for (int64_t i = 0; i < r->config->program->n_metrics; i++) r->tested.metric[i] = sum.metric[i] / sum.images;
    r->tested.correct = isfinite(sum.correct) ? (int64_t)sum.correct : 0;
    s = fri_watch_loss(r, r->tested.loss, true);
    if (s == FR_OK) s = fri_best_compare(r);
    return s == FR_OK ? fri_run_emit(r, FR_RUN_EVALUATION) : s;
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static fr_status real_epoch_begin(void *ctx, const fri_epoch *e, int64_t *skip) {
    fri_run *r = ((real *)ctx)->r;
    int64_t done = r->at.step - r->at.epoch * fri_steps_per_epoch(r->config);
    (void)e, (void)skip;
    if (done == 0) r->numbers.epoch_loss = r->numbers.epoch_correct = r->numbers.epoch_targets = 0;
    return fr_loader_position_set(r->data.loader, r->at.epoch, done * r->config->opts.memory.accumulate);
}

static fr_status real_epoch_over(void *ctx) {
    const real *x = ctx;
    x->r->at.seconds = fri_seconds_now() - x->began;
    return fri_run_emit(x->r, FR_RUN_EPOCH);
}

fr_status fri_train_begin(fri_run *r) {
    FRI_TRY(fri_data_loader(r->config, FR_SPLIT_TRAIN, r->data.train, &r->data.loader));
    r->net.schedule = fri_schedule(r->config);
    FRI_TRY(fri_run_emit(r, FR_RUN_BEGIN));
    FRI_TRY(fri_resume(r));
    r->numbers.known = r->at.first_step;
    for (int i = 0; i < FR_METRICS_MAX; i++) r->tested.metric[i] = NAN;
    r->numbers.scale = fr_grad_scaler_value(r->net.scaler);
    return fri_run_emit(r, FR_RUN_POSITION);
}

fr_status fri_train_loop(fri_run *r) {
    static const fri_execution on_device = {real_epoch_begin,
                                            real_step,
                                            step_over,
                                            real_save,
                                            real_prefetch,
                                            steps_over,
                                            real_evaluation_begin,
                                            real_evaluate,
                                            real_evaluation_over,
                                            real_epoch_over,
                                            real_epoch_over};
    real x = {.r = r, .began = fri_seconds_now() - r->at.seconds};
    fr_largest_op *largest = NULL;
    fr_status s = fr_largest_op_begin(r->config->opts.device, &largest);
    if (s == FR_OK) s = fri_drive(r, &on_device, &x);
    if (fr_largest_op_bytes(largest) > r->memory.largest_op) r->memory.largest_op = fr_largest_op_bytes(largest);
    fr_largest_op_end(&largest);
    return s;
}
