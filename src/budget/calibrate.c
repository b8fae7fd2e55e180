/* calibrate.c - --calibrate: kernel times from the run's second step, for predictions. */
#include "plan/calibrate.h"

#include "base/status.h"
#include "budget/fit.h"

#include <stdlib.h>

struct fri_calibration {
    fri_step_log dry, run;
};

fr_status fri_calibration_begin(const fri_config *c, fri_calibration **out) {
    fri_calibration *k = calloc(1, sizeof *k);
    fri_train_plan p = {0};
    fr_status s = FR_OK;
    if (k == NULL) return fri_fail(FR_ENOMEM, "--calibrate: out of host memory");
    FR_TRY(s, fri_step_log_dry(&k->dry));
    s = fri_train_plan_make(c, c->opts.memory_limit, &p);
    fri_step_log_dry_end(&k->dry);
    FR_TRY(s, s);
    fri_train_plan_release(&p);
    FR_TRY(s, fri_step_log_run(&k->run));
    *out = k;
    return FR_OK;
done:
    fri_step_log_free(&k->dry);
    free(k);
    return s;
}

fr_status fri_calibration_end(const fri_config *c, fri_calibration **p, bool keep) {
    fri_calibration *k = *p;
    fri_cost *cost = NULL;
    fr_status s = FR_OK;
    *p = NULL;
    if (k == NULL) return FR_OK;
    fri_step_log_run_end(&k->run);
    if (!keep) goto done;
    FR_TRY(s, fri_cost_open(c->opts.device, &cost));
    FR_TRY(s, fri_calibrate(cost, &k->dry, &k->run));
    FR_TRY(s, fri_cost_save(cost));
    if (!c->opts.quiet)
        fprintf(c->out, "measured %zu kernels; %zu times in %s\n", k->run.count, fri_cost_count(cost),
                fri_cost_path(cost));
done:
    fri_cost_release(&cost);
    fri_step_log_free(&k->dry);
    fri_step_log_free(&k->run);
    free(k);
    return s;
}
