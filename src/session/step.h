/* step.h - a step: its work, its numbers, and the search for inf and NaN. */
#ifndef FRI_SESSION_STEP_H
#define FRI_SESSION_STEP_H

#include "session/session.h"

/* step.c: a step in progress. fri_step_train and fri_step_update are members of an fri_stepping (driver.h) whose ctx
 * begins with this struct; fri_step_train releases the batch as early as possible. */
typedef struct fri_step_work {
    fri_session *r;
    fri_step_values *v;
    fr_tensor *images, *targets; /* current batch */
    int64_t count;               /* targets of the batch that are not ignored */
} fri_step_work;
fr_status fri_step_train(void *work, int64_t i);
fr_status fri_step_update(void *work);
void fri_step_work_end(fri_step_work *w);
/* Waits for the readbacks of a step and adds them to the run's sums. *loss: mean over the step's batches. */
fr_status fri_step_settle(fri_session *r, fri_step_values *v, double *loss);
void fri_step_values_forget(fri_step_values *v);
void fri_step_values_free(fri_step_values *v);

/* Ops between begin and end run in the dtype of --amp. */
fr_status fri_precision_begin(const fr_train_opts *o, fr_autocast_state *was);
void fri_precision_end(const fr_train_opts *o, fr_autocast_state was);

/* numbers.c. *kept becomes the larger peak, each part with its snapshot. */
void fri_peak_fold(const fr_memory_stats *now, fr_memory_stats *kept);
/* Folds the device's peaks into *kept and resets them. */
fr_status fri_peak_keep(fr_device d, fr_memory_stats *kept);

double fri_seconds_now(void);
/* Median step time in milliseconds without the first step (unless the first is the only one); NAN without steps. */
double fri_median_step_ms(const fri_session *r);
double fri_images_per_second(const fri_session *r);
/* Means over the current epoch; NAN before the first target and, of accuracy, where none is counted. */
double fri_epoch_loss(const fri_session *r);
double fri_epoch_accuracy(const fri_session *r);
/* Stores loss and time of the step after the last known one. */
fr_status fri_step_remember(fri_session *r, double loss, double milliseconds);

/* anomaly.c: overflowing gradients and the first op that produces inf or NaN. */
/* Names the gradient with inf or NaN that causes a skipped step, if any. Call between unscaling and update. */
fr_status fri_watch_overflow(fri_session *r);
/* begin and end enclose a step that is searched for the first op with inf or NaN, if --detect-anomaly is on or the
 * last known step overflowed. The result is stored in v. */
bool fri_watch_enabled(const fri_session *r);
void fri_watch_begin(const fri_session *r);
void fri_watch_end(fri_step_values *v);
/* FR_EINVAL: the loss is inf or NaN and the step was not skipped for its loss scale. */
fr_status fri_watch_loss(const fri_session *r, double loss);
/* "inf or NaN first in the result of op conv2d in module features.0"; "" if the step was not searched. */
enum { FRI_ANOMALY_TEXT = 256 };
const char *fri_anomaly_text(const fr_anomaly *a, char text[FRI_ANOMALY_TEXT]);
double fri_unsigned_nan(double x); /* prints as "nan" even if the sign bit is set */

#endif
