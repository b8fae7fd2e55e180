/* calibrate.c - --calibrate: kernel times from the run's second step, for predictions. */
#include "plan/calibration.h"
#include "session/fit.h"

fr_status fri_calibration_begin(const fri_config *c, fri_calibration **out) {
    fri_train_plan p = {0};
    fr_status s = FR_OK;
    FR_TRY(s, fri_calibration_create(out));
    FR_TRY(s, fri_calibration_dry_begin(*out));
    s = fri_train_plan_make(c, c->opts.memory.limit, &p);
    fri_calibration_dry_end(*out);
    FR_TRY(s, s);
    fri_train_plan_release(&p);
    FR_TRY(s, fri_calibration_run_begin(*out));
    return FR_OK;
done:
    fri_calibration_release(out);
    return s;
}

fr_status fri_calibration_end(const fri_config *c, fri_calibration **p, bool keep) {
    fri_calibration_result r;
    fr_status s = FR_OK;
    if (*p == NULL) return FR_OK;
    fri_calibration_run_end(*p);
    if (keep) s = fri_calibration_save(*p, c->opts.device, &r);
    fri_calibration_release(p);
    if (s == FR_OK && keep)
        fri_say(c, FRI_SAY_CHOICE, "measured %zu kernels; %zu times in %s", r.measured, r.known, r.path);
    return s;
}
