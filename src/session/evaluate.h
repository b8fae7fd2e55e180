/* evaluate.h - an evaluation: its sums, the counts of classes, and the best one so far. */
#ifndef FRI_SESSION_EVALUATE_H
#define FRI_SESSION_EVALUATE_H

#include "session/data.h"

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
fri_evaluation_scope fri_evaluation_begin(const fri_session *r);
void fri_evaluation_end(const fri_session *r, fri_evaluation_scope was);
/* True if no step follows: all are done, or train.optim.patience is exhausted. */
bool fri_run_finished(const fri_session *r);
/* Exchanges parameters and EMA averages (train.optim.ema). With several ranks, all must call. */
fr_status fri_swap_averages(const fri_session *r);
/* Returns the part of a batch from image `first` on, and the part's number of targets. */
typedef fr_status fri_evaluation_part_fn(void *ctx, int64_t first, fr_tensor **images, fr_tensor **targets,
                                         int64_t *count);
/* Queues a batch and adds the numbers of the batch before. The model runs on one part at a time (fri_evaluation_part);
 * loss and metrics cover the whole batch. shorter: the batch has fri_batch_rest images. settle adds the rest;
 * drop discards. */
fr_status fri_evaluate_batch(const fri_session *r, bool shorter, fri_evaluation_part_fn *next, void *ctx,
                             fri_sums *sum);
fr_status fri_sums_settle(fri_sums *sum);
void fri_sums_drop(fri_sums *sum);
/* *total: sums over all batches of all ranks, in order; loss is weighted by targets, metrics by images. */
fr_status fri_sums_total(const fri_session *r, const fri_sums *sum, fri_batch_numbers *total);

/* classes.c. counts: do evaluations count classes? begin: clears; add: counts a batch on the device, y in f32; total:
 * sums over ranks. */
bool fri_counts_classes(const fri_config *c);
fr_status fri_confusion_begin(fri_session *r);
fr_status fri_confusion_add(const fri_session *r, fr_tensor *y, fr_tensor *targets);
fr_status fri_confusion_total(fri_session *r);
typedef struct fri_class_numbers {
    const char *name; /* borrowed; NULL: none */
    int64_t targets;
    double accuracy, iou; /* correct / targets; correct / union; NAN if the class is unused */
} fri_class_numbers;
fri_class_numbers fri_class_numbers_of(const fri_session *r, int64_t class);
double fri_mean_iou(const fri_session *r); /* mean over classes with an IoU */

/* best.c: the best evaluation, --keep-best and train.optim.patience.
 * compare: compares the evaluation of the current step with the best so far, and writes the weights of a better one.
 * is_in_file: the file of --export holds the best weights of the training. */
fr_status fri_best_compare(fri_session *r);
bool fri_best_is_in_file(const fri_session *r);
bool fri_patience_is_over(const fri_session *r);

#endif
