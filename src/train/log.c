/* log.c - --log, --csv, --tensorboard. */
#include "base/status.h"
#include "train/run.h"

#include <inttypes.h>
#include <math.h>

fr_status fri_log_begin(fri_run *r) {
    const fr_train_opts *o = &r->opts;
    if (o->log == NULL && o->csv == NULL && o->tensorboard == NULL) return FR_OK;
    return fr_log_open(FR_LOG_OPTS(.jsonl = o->log, .csv = o->csv, .tensorboard = o->tensorboard,
                                   .resume = r->step > 0 ? r->step : -1),
                       &r->log);
}

/* A full disk costs lines, not the training; each next line is tried again. */
static fr_status written(fri_run *r, fr_status s) {
    if (s != FR_EIO) return s;
    if (r->log_failures++ == 0)
        fprintf(stderr, "%s: step %" PRId64 ": %s; the training goes on\n", r->program->name, r->step, fr_last_error());
    return FR_OK;
}

fr_status fri_log_step(fri_run *r, double loss) {
    fr_memory_stats m;
    if (r->log == NULL) return FR_OK;
    fr_status s = fr_memory_stats_get(r->opts.device, &m);
    if (s < 0) return s;
    double images = (double)(r->opts.batch_size * r->opts.accumulate);
    double ms = r->step_ms[r->known - r->first_step - 1];
    size_t peak = m.peak_allocated > r->training.peak_allocated ? m.peak_allocated : r->training.peak_allocated;
    s = fr_log_write(r->log, &(fr_log_step){.step = r->known,
                                            .epoch = r->epoch,
                                            .loss = loss,
                                            .lr = fr_schedule_lr(&r->schedule, r->known - 1),
                                            .scale = fri_run_scaled(&r->opts) ? r->scale : 1,
                                            .skipped = r->step_skipped,
                                            .images_per_second = 1000 * images / ms,
                                            .allocated = m.allocated,
                                            .peak = peak});
    return written(r, s);
}

fr_status fri_log_evaluation(fri_run *r) {
    if (r->log == NULL || !isfinite(r->test_accuracy)) return FR_OK;
    fr_status s = fr_log_scalar(r->log, "test/accuracy", r->step, r->test_accuracy);
    if (s == FR_OK) s = fr_log_scalar(r->log, "test/loss", r->step, r->test_loss);
    return written(r, s);
}

fr_status fri_log_end(const fri_run *r) {
    if (r->log_failures == 0) return FR_OK;
    return fri_fail(FR_EIO, "the logs are incomplete: %" PRId64 " of their writes failed", r->log_failures);
}
