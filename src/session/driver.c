/* driver.c - see driver.h. */
#include "session/driver.h"

/* Index of this rank's batch in a round; -1: none. */
static int64_t batch_of(const fri_run *r, int64_t round) {
    return r->net.share != NULL ? r->config->rank_calls->micro_batch(r->net.share, round) : round;
}

/* Runs the rounds of a step. In each round a rank processes at most one of the step's batches. */
static fr_status drive_rounds(const fri_run *r, const fri_stepping *how, void *ctx) {
    const fr_rank_calls *of = r->config->rank_calls;
    const int64_t all = r->net.share != NULL ? of->rounds(r->net.share) : r->config->opts.memory.accumulate;
    for (int64_t i = 0; i < all; i++) {
        const int64_t v = batch_of(r, i);
        if (r->net.share != NULL) FRI_TRY(of->round_begin(r->net.share, i));
        if (v >= 0 && i > 0) FRI_TRY(how->batch(ctx, v));
        if (v >= 0) FRI_TRY(how->train(ctx, v));
        if (r->net.share != NULL) FRI_TRY(of->round_end(r->net.share, i));
    }
    return FR_OK;
}

/* The optimizer is fused inside steps only: a backward pass of the program between steps leaves gradients. */
static fr_status fuse(const fri_run *r, bool on) {
    return fri_fused_step(r->config) == FR_TRAIN_FUSED_ON ? fr_optimizer_fuse(r->net.optimizer, on) : FR_OK;
}

fr_status fri_drive_step(fri_run *r, const fri_stepping *how, void *ctx, fri_step_values *v) {
    fr_step_scope scope;
    const int64_t v0 = batch_of(r, 0);
    fr_status s = v0 >= 0 ? how->batch(ctx, v0) : FR_OK;
    if (s == FR_OK) s = fr_step_begin(&scope);
    if (s != FR_OK) return s;
    fri_step_values_forget(v);
    v->number = r->at.step + 1;
    fr_optimizer_set_lr(r->net.optimizer, fr_schedule_lr(&r->net.schedule, r->at.step));
    FR_TRY(s, fuse(r, true));
    FR_TRY(s, drive_rounds(r, how, ctx));
    FR_TRY(s, how->update(ctx));
    if (r->net.share != NULL) FR_TRY(s, r->config->rank_calls->step_end(r->net.share));
    if (r->net.share != NULL && r->config->opts.check_replicas) FR_TRY(s, r->config->rank_calls->check(r->net.share));
done:
    if (s == FR_OK) s = fuse(r, false);
    return fr_step_end(&scope) < 0 && s == FR_OK ? FR_EINTERNAL : s;
}

typedef struct drive {
    fri_run *r;
    const fri_execution *how;
    void *ctx;
    int64_t epochs, per_epoch, steps; /* epochs of the run, steps per epoch, steps of the run */
} drive;

/* True if a signal asked the run to end. */
static bool is_stopped(const drive *d) {
    d->r->at.signal = fri_run_interrupted(d->r);
    return d->r->at.signal != 0;
}

static fr_status call_hook(const drive *d, fr_status (*hook)(void *ctx)) {
    return hook != NULL ? hook(d->ctx) : FR_OK;
}

static int64_t min_number(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static fr_status save_if_due(const drive *d, bool last) {
    return d->how->save != NULL && fri_save_is_due(d->r, last) ? d->how->save(d->ctx, last) : FR_OK;
}

/* Runs the steps of an epoch from step i on; a resumed run begins in the middle. Batches that do not fill a step
 * (--accumulate) are left out. *more: the run continues after these steps. */
static fr_status drive_steps(const drive *d, int64_t i, bool *more) {
    fri_run *r = d->r;
    int64_t full = d->per_epoch - (fri_batch_rest(r->config, FR_SPLIT_TRAIN) > 0);
    int64_t done = 1;
    for (; *more && i < d->per_epoch; i += done) {
        const bool first = r->at.step == r->at.first_step;
        fri_section part = first ? FRI_PART_FIRST_STEP : i >= full ? FRI_PART_SHORT_STEP : FRI_PART_STEP;
        int64_t alike = part == FRI_PART_STEP ? min_number(full - i, d->steps - r->at.step) : 1;
        done = 1;
        FRI_TRY(fri_ranks_timeout(r, part != FRI_PART_FIRST_STEP));
        FRI_TRY(d->how->step(d->ctx, part, alike, &done));
        r->at.step += done;
        FRI_TRY(call_hook(d, d->how->step_over));
        *more = !is_stopped(d) && r->at.step < d->steps;
        if (fri_save_is_due(r, !*more)) FRI_TRY(fri_ranks_timeout(r, false));
        FRI_TRY(save_if_due(d, !*more));
        if (*more && i + done < d->per_epoch) FRI_TRY(call_hook(d, d->how->prefetch));
    }
    return fri_ranks_timeout(r, false); /* long timeout again; between steps a device may still be in a step */
}

static fr_status drive_evaluation(const drive *d) {
    const fri_config *c = d->r->config;
    const int64_t whole = c->test_count / fri_batch_size(c, FR_SPLIT_TEST), every = c->target == FR_META ? 1 : c->ranks;
    int64_t batches = fri_test_share(c), done = 1;
    const int64_t full = whole > c->rank ? (whole - c->rank + every - 1) / every : 0; /* full batches of this rank */
    fri_evaluation_scope was = fri_evaluation_begin(d->r);
    fr_status s = d->how->evaluation_begin(d->ctx);
    if (s == FR_OK) s = fri_swap_averages(d->r);
    for (int64_t i = 0; s == FR_OK && i < batches && !is_stopped(d); i += done) {
        fri_section part = i == 0     ? FRI_PART_EVALUATION
                           : i < full ? FRI_PART_EVALUATION_BATCH
                                      : FRI_PART_EVALUATION_SHORT;
        done = 1;
        s = d->how->evaluate(d->ctx, part, part == FRI_PART_EVALUATION_BATCH ? full - i : 1, &done);
    }
    s = d->how->evaluation_over(d->ctx, s);
    if (s == FR_OK) s = fri_swap_averages(d->r);
    fri_evaluation_end(d->r, was);
    return s;
}

static fri_epoch describe_epoch(const drive *d) {
    const fri_config *c = d->r->config;
    bool rest = fri_batch_rest(c, FR_SPLIT_TRAIN) > 0, last = d->r->at.epoch == d->epochs - 1;
    int64_t left = d->steps - d->r->at.epoch * d->per_epoch;
    return (fri_epoch){.full = min_number(left, d->per_epoch - rest),
                       .shorter = rest && left >= d->per_epoch,
                       .evaluation = fri_evaluation_due(c, d->r->at.epoch, last),
                       .to_last = d->epochs - 1 - d->r->at.epoch};
}

/* Runs one epoch, or reports in *skip how many epochs need not run. */
static fr_status drive_epoch(const drive *d, int64_t *skip, bool *more) {
    fri_run *r = d->r;
    fri_epoch e = describe_epoch(d);
    *skip = 0;
    if (d->how->epoch_begin != NULL) FRI_TRY(d->how->epoch_begin(d->ctx, &e, skip));
    if (*skip > 0) return FR_OK;
    *more = r->at.step < d->steps;
    FRI_TRY(drive_steps(d, r->at.step - r->at.epoch * d->per_epoch, more));
    FRI_TRY(call_hook(d, d->how->steps_over));
    if (e.evaluation && !is_stopped(d)) FRI_TRY(drive_evaluation(d));
    FRI_TRY(call_hook(d, d->how->epoch_over));
    if (!is_stopped(d) && !fri_run_finished(r)) return FR_OK;
    *more = false;
    return save_if_due(d, true); /* the last state knows the last evaluation */
}

/* Makes the evaluation at the beginning of a resumed run. */
static fr_status drive_first_evaluation(const drive *d) {
    fri_run *r = d->r;
    FRI_TRY(call_hook(d, d->how->steps_over));
    FRI_TRY(drive_evaluation(d));
    const bool counts = r->at.first_evaluation == FRI_FIRST_EVALUATION;
    if (!is_stopped(d)) FRI_TRY(call_hook(d, d->how->first_evaluation_over));
    r->at.first_evaluation = FRI_FIRST_STEP;
    return counts && !is_stopped(d) && fri_run_finished(r) ? save_if_due(d, true) : FR_OK;
}

fr_status fri_drive(fri_run *r, const fri_execution *how, void *ctx) {
    const drive d = {.r = r,
                     .how = how,
                     .ctx = ctx,
                     .epochs = fri_epochs_total(r->config),
                     .per_epoch = fri_steps_per_epoch(r->config),
                     .steps = fri_steps_total(r->config)};
    int64_t skip = 0;
    fr_status s = FR_OK;
    r->at.epoch = r->at.step > 0 ? (r->at.step - 1) / d.per_epoch : 0; /* the epoch that ended, at an epoch's end */
    if (r->at.first_evaluation != FRI_FIRST_STEP) s = drive_first_evaluation(&d);
    bool more = r->at.signal == 0 && !fri_run_finished(r);
    r->at.epoch = more ? r->at.step / d.per_epoch : r->at.epoch + 1;
    while (s == FR_OK && more && r->at.epoch < d.epochs) {
        s = drive_epoch(&d, &skip, &more);
        r->at.step += skip * d.per_epoch;
        r->at.epoch += skip > 0 ? skip : 1;
    }
    /* A finished run with EMA keeps the averaged weights, not the raw ones. */
    return s == FR_OK && r->at.signal == 0 && fri_run_finished(r) ? fri_swap_averages(r) : s;
}
