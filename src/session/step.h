/* step.h - steps and evaluations: their work and their numbers, the search for inf and NaN, the best evaluation. */
#ifndef FRI_SESSION_STEP_H
#define FRI_SESSION_STEP_H

#include "session/data.h"

/* step.c: a step in progress. fri_step_train and fri_step_update are members of an fri_stepping (driver.h) whose ctx
 * begins with this struct; fri_step_train releases the batch as early as possible. */
typedef struct fri_step_work {
    fri_run *r;
    fri_step_values *v;
    fr_tensor *images, *targets; /* current batch */
    int64_t count;               /* targets of the batch that are not ignored */
} fri_step_work;
fr_status fri_step_train(void *work, int64_t i);
fr_status fri_step_update(void *work);
void fri_step_work_end(fri_step_work *w);
/* Waits for the readbacks of a step and adds them to the run's sums. *loss: mean over the step's batches. */
fr_status fri_step_settle(fri_run *r, fri_step_values *v, double *loss);
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
double fri_median_step_ms(const fri_run *r);
double fri_images_per_second(const fri_run *r);
/* Means over the current epoch; NAN before the first target and, of accuracy, where none is counted. */
double fri_epoch_loss(const fri_run *r);
double fri_epoch_accuracy(const fri_run *r);
/* Stores loss and time of the step after the last known one. */
fr_status fri_step_remember(fri_run *r, double loss, double milliseconds);

/* anomaly.c: overflowing gradients and the first op that produces inf or NaN. */
/* Names the gradient with inf or NaN that causes a skipped step, if any. Call between unscaling and update. */
fr_status fri_watch_overflow(fri_run *r);
/* begin and end enclose a step that is searched for the first op with inf or NaN, if --detect-anomaly is on or the
 * last known step overflowed. The result is stored in v. */
bool fri_watch_enabled(const fri_run *r);
void fri_watch_begin(const fri_run *r);
void fri_watch_end(fri_step_values *v);
/* FR_EINVAL: the loss of a step or of an evaluation is inf or NaN, and no loss scale skipped the step. */
fr_status fri_watch_loss(const fri_run *r, double loss, bool tested);
/* FR_EINVAL names the first parameter, buffer or state of the optimizer with inf or NaN, but for state on further
 * ranks. */
fr_status fri_watch_values(fri_run *r);
/* "inf or NaN first in the result of op conv2d in module features.0"; "" if the step was not searched. */
enum { FRI_ANOMALY_TEXT = 256 };
const char *fri_anomaly_text(const fr_anomaly *a, char text[FRI_ANOMALY_TEXT]);
double fri_unsigned_nan(double x); /* prints as "nan" even if the sign bit is set */

/* evaluate.c: sums of an evaluation. Readbacks of the last two batches may still be in flight. */
typedef struct fri_sums {
    fri_batch_numbers *batch; /* numbers of this process's batches, in order */
    int64_t batches;
    fri_step_part part[2];
    int64_t n[2], of[2]; /* targets of the batch in flight (0: none); index of the batch */
    int turn;
} fri_sums;
typedef struct fri_evaluation_scope {
    bool no_grad;
    fr_phase phase;
} fri_evaluation_scope;
fri_evaluation_scope fri_evaluation_begin(const fri_run *r);
void fri_evaluation_end(const fri_run *r, fri_evaluation_scope was);
/* True if no step follows: all are done, or train.optim.patience is exhausted. */
bool fri_run_finished(const fri_run *r);
/* Exchanges parameters and EMA averages (train.optim.ema). With several ranks, all must call. */
fr_status fri_swap_averages(const fri_run *r);
/* Returns the part of a batch from image `first` on, and the part's number of targets. */
typedef fr_status fri_evaluation_part_fn(void *ctx, int64_t first, fr_tensor **images, fr_tensor **targets,
                                         int64_t *count);
/* Queues a batch and adds the numbers of the batch before. The model runs on one part at a time (fri_evaluation_part);
 * loss and metrics cover the whole batch. shorter: the batch has fri_batch_rest images. settle adds the rest;
 * drop discards. */
fr_status fri_evaluate_batch(const fri_run *r, bool shorter, fri_evaluation_part_fn *next, void *ctx, fri_sums *sum);
fr_status fri_sums_settle(fri_sums *sum);
void fri_sums_drop(fri_sums *sum);
/* *total: sums over all batches of all ranks, in order; loss is weighted by targets, metrics by images. */
fr_status fri_sums_total(const fri_run *r, const fri_sums *sum, fri_batch_numbers *total);

/* classes.c. counts: do evaluations count classes? begin: clears; add: counts a batch on the device, y in f32; total:
 * sums over ranks. */
bool fri_counts_classes(const fri_config *c);
fr_status fri_confusion_begin(fri_run *r);
fr_status fri_confusion_add(const fri_run *r, fr_tensor *y, fr_tensor *targets);
fr_status fri_confusion_total(fri_run *r);
typedef struct fri_class_numbers {
    const char *name; /* borrowed; NULL: none */
    int64_t targets;
    double accuracy, iou; /* correct / targets; correct / union; NAN if the class is unused */
} fri_class_numbers;
fri_class_numbers fri_class_numbers_of(const fri_run *r, int64_t class);
double fri_mean_iou(const fri_run *r); /* mean over classes with an IoU */

/* best.c: the best evaluation, --keep-best and train.optim.patience.
 * compare: compares the evaluation of the current step with the best so far, and writes the weights of a better one.
 * is_in_file: the file of --export holds the best weights of the training. */
fr_status fri_best_compare(fri_run *r);
bool fri_best_is_in_file(const fri_run *r);
bool fri_patience_is_over(const fri_run *r);

#endif
