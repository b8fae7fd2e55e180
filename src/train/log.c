/* log.c - --log, --csv, --tensorboard. */
#include "train/run.h"

#include <math.h>

fr_status fri_log_begin(fri_run *r) {
    const fr_train_opts *o = &r->opts;
    if (o->log == NULL && o->csv == NULL && o->tensorboard == NULL) return FR_OK;
    return fr_log_open(FR_LOG_OPTS(.jsonl = o->log, .csv = o->csv, .tensorboard = o->tensorboard,
                                   .resume = r->step > 0 ? r->step : -1),
                       &r->log);
}

fr_status fri_log_step(fri_run *r, double loss) {
    fr_memory_stats m;
    if (r->log == NULL) return FR_OK;
    fr_status s = fr_memory_stats_get(r->opts.device, &m);
    if (s < 0) return s;
    double images = (double)(r->opts.batch_size * r->opts.accumulate);
    double ms = r->step_ms[r->step - r->first_step - 1];
    size_t peak = m.peak_allocated > r->training.peak_allocated ? m.peak_allocated : r->training.peak_allocated;
    return fr_log_write(r->log,
                        &(fr_log_step){.step = r->step,
                                       .epoch = r->epoch,
                                       .loss = loss,
                                       .lr = fr_optimizer_get_lr(r->optimizer),
                                       .scale = fri_run_scaled(&r->opts) ? fr_grad_scaler_scale_of(r->scaler) : 1,
                                       .skipped = r->step_skipped,
                                       .images_per_second = 1000 * images / ms,
                                       .allocated = m.allocated,
                                       .peak = peak});
}

fr_status fri_log_evaluation(fri_run *r) {
    if (r->log == NULL || !isfinite(r->test_accuracy)) return FR_OK;
    fr_status s = fr_log_scalar(r->log, "test/accuracy", r->step, r->test_accuracy);
    return s < 0 ? s : fr_log_scalar(r->log, "test/loss", r->step, r->test_loss);
}
