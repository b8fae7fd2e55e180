/* log.c - --log. After a failed write the training goes on. */
#include "io/session_files.h"
#include "session/views.h"

#include <inttypes.h>
#include <math.h>

/* The state of the view: NULL, no log. */
typedef fri_log *logs;

static fr_status open_log(logs *l, const fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    if (o->files.log == NULL) return FR_OK;
    const bool evaluated = r->tested.counted == r->at.step && r->at.first_evaluation == FRI_FIRST_STEP;
    return fri_log_open(o->files.log, r->at.step > 0 ? r->at.step : -1, evaluated, l);
}

fr_status fri_log_step_of(const fri_run *r, fr_log_step *out) {
    fr_memory_stats m;
    FRI_TRY(fr_memory_stats_get(r->config->opts.device, &m));
    int64_t i = r->numbers.known - r->at.first_step - 1;
    double images = (double)(r->config->opts.optim.batch_size * r->config->opts.memory.accumulate);
    size_t peak =
        m.peak_allocated > r->memory.training.peak_allocated ? m.peak_allocated : r->memory.training.peak_allocated;
    *out = (fr_log_step){.step = r->numbers.known,
                         .epoch = r->at.epoch,
                         .loss = r->numbers.losses[i],
                         .lr = fr_schedule_lr(&r->net.schedule, r->numbers.known - 1),
                         .scale = fri_loss_scaled(&r->config->opts) ? r->numbers.scale : 1,
                         .skipped = r->numbers.step_skipped,
                         .images_per_second = 1000 * images / r->numbers.step_ms[i],
                         .allocated = m.allocated,
                         .peak = peak};
    return FR_OK;
}

static fr_status write_evaluation(fri_log *log, const fri_run *r) {
    const fr_train_program *p = r->config->program;
    char tag[FR_TRAIN_NAME_BYTES];
    if (isfinite(r->tested.accuracy)) FRI_TRY(fri_log_scalar(log, "test/accuracy", r->at.step, r->tested.accuracy));
    if (isfinite(r->tested.loss)) FRI_TRY(fri_log_scalar(log, "test/loss", r->at.step, r->tested.loss));
    for (int64_t i = 0; i < p->n_metrics; i++) {
        snprintf(tag, sizeof tag, "test/%s", p->metric_names[i]);
        FRI_TRY(fri_log_scalar(log, tag, r->at.step, r->tested.metric[i]));
    }
    return FR_OK;
}

static fr_status log_event(void *state, const fri_run *r, fr_run_event e) {
    logs *l = state;
    fr_log_step step;
    if (e == FR_RUN_POSITION) return open_log(l, r);
    if (*l == NULL) return FR_OK;
    if (e == FR_RUN_EVALUATION) return write_evaluation(*l, r);
    if (e != FR_RUN_STEP) return FR_OK;
    FRI_TRY(fri_log_step_of(r, &step));
    return fri_log_write(*l, &step);
}

static void log_end(void *state) {
    fri_log_close(state);
}

const fri_view fri_log_view = {sizeof(logs), NULL, log_event, log_end, .survives_errors = true};
