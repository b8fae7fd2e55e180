/* calibrate.c - --calibrate: kernel times from the run's second step, for predictions. */
#include "plan/calibrate.h"

#include "base/status.h"
#include "train/fit.h"

#include <stdlib.h>

struct fri_calibration {
    fri_step_log dry, run;
};

fr_status fri_calibration_begin(const fri_run *r, fri_calibration **out) {
    fri_calibration *c = calloc(1, sizeof *c);
    fri_train_plan p = {0};
    fr_status s = FR_OK;
    if (c == NULL) return fri_fail(FR_ENOMEM, "--calibrate: out of host memory");
    FR_TRY(s, fri_step_log_dry(&c->dry));
    s = fri_train_plan_make(r, &r->opts, &p);
    fri_step_log_dry_end(&c->dry);
    FR_TRY(s, s);
    fri_train_plan_release(&p);
    FR_TRY(s, fri_step_log_run(&c->run));
    *out = c;
    return FR_OK;
done:
    fri_step_log_free(&c->dry);
    free(c);
    return s;
}

fr_status fri_calibration_end(const fri_run *r, fri_calibration **p, bool keep) {
    fri_calibration *c = *p;
    fri_cost *cost = NULL;
    fr_status s = FR_OK;
    *p = NULL;
    if (c == NULL) return FR_OK;
    fri_step_log_run_end(&c->run);
    if (!keep) goto done;
    FR_TRY(s, fri_cost_open(r->opts.device, &cost));
    FR_TRY(s, fri_calibrate(cost, &c->dry, &c->run));
    FR_TRY(s, fri_cost_save(cost));
    if (!r->opts.quiet)
        fprintf(r->out, "measured %zu kernels; %zu times in %s\n", c->run.count, fri_cost_count(cost),
                fri_cost_path(cost));
done:
    fri_cost_release(&cost);
    fri_step_log_free(&c->dry);
    fri_step_log_free(&c->run);
    free(c);
    return s;
}
