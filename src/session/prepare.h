/* prepare.h - prepares a run from its options, for fr_train_run and for fr_session. */
#ifndef FRI_SESSION_PREPARE_H
#define FRI_SESSION_PREPARE_H

#include "plan/calibration.h"
#include "session/session.h"
#include "session/views.h"

/* Runs all checks before training, cheap ones first, and reserves the arena. Afterwards the thread is in the run's
 * pool, unless the options ask for a plan or a summary. */
fr_status fri_run_prepare(fri_config *c, fri_run *r, fri_views **views);

/* Creates model, optimizer, weights and loader and loads a saved state; fri_train_loop trains next.
 * *calibration is set if --calibrate was given. */
fr_status fri_run_setup(fri_run *r, fri_calibration **calibration);

/* Releases all members, at any stage of setup. */
void fri_run_end(fri_run *r);

#endif
