/* prepare.h - a run from its options to its steps, for the trainers' shell (cli/) and for fr_session. */
#ifndef FRI_SESSION_PREPARE_H
#define FRI_SESSION_PREPARE_H

#include "session/session.h"
#include "session/views.h"

/* Everything that can be found out before training, cheap things first. The thread is in the run's pool after it,
 * unless the options ask for a plan or a summary. */
fr_status fri_run_prepare(fri_config *c, fri_session *r, fri_views **views);

/* Arena, model, optimizer, weights, loader, saved state: then fri_train_go_on trains. *calibration as --calibrate asks
 * for it. */
fr_status fri_run_setup(fri_session *r, fr_calibration **calibration);

#endif
