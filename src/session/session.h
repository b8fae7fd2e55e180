/* session.h - one run of a trainer: its data, model, optimizer, position and numbers, and its parts in the order in
 * which they are called.
 *
 * Until training begins FR_EINVAL from any part is a usage error (exit status 2); every other failure, and every one
 * later, has exit status 1. */
#ifndef FRI_SESSION_SESSION_H
#define FRI_SESSION_SESSION_H

#include "session/arena.h"
#include "session/config.h"

#include <frugal/fit.h>
#include <frugal/io.h>
#include <frugal/memory.h>
#include <frugal/train.h>
#include <frugal/unstable.h>
#include <stdio.h>

/* A negative status ends the run. */
typedef struct fri_run_watcher {
    fr_status (*event)(void *ctx, fr_run_event e); /* NULL: nobody watches */
    void *ctx;
} fri_run_watcher;

/* The numbers of one step, some of them readbacks that are not done yet. */
typedef struct fri_step_part {
    fr_readback loss, correct; /* of one batch, or part of a batch */
    double targets;
    bool empty; /* its loss divides by 0: it counts as 0 */
} fri_step_part;
typedef struct fri_step_values {
    int64_t number; /* of the step, from 1 */
    double began;   /* seconds */
    double targets;
    fri_step_part *part;
    int64_t n, capacity;
    bool device_decided; /* the device decided whether the step is skipped; `scaler` holds its answer */
    fr_readback scaler;
    fr_anomaly anomaly; /* found in this step, if it was searched */
} fri_step_values;

/* Numbers of one rank of a run. */
typedef struct fri_rank_numbers {
    char host[64];
    uint64_t peak_requested, peak_reserved; /* of training and evaluation */
    uint64_t planned;                       /* the arena's bytes; 0: there is none */
    int64_t departures;                     /* from it */
    uint64_t links;                         /* of the device's memory, taken by what connects it to the others */
    uint64_t step_bytes;                    /* that a step sent */
    double exchanged, waited;               /* seconds that bytes travelled, and that nothing else was done meanwhile */
} fri_rank_numbers;

typedef struct fri_session {
    const fri_config *config;
    fr_pool *pool; /* its memory on the device; NULL: none yet */
    fr_pool_state no_pool;

    /* data.c */
    fr_dataset *train, *test;

    /* model.c */
    fr_module *model;
    fr_optimizer *optimizer;
    size_t *unit_weight;      /* segments.c; NULL: all the same */
    fr_scratch *scratch;      /* of convolutions; NULL: the switches' limit */
    fr_grad_scaler *scaler;   /* passes everything through where nothing is to be scaled */
    fr_tensor *class_weights; /* f32 [classes]; NULL: none */
    struct fr_share *share;   /* NULL: one process */
    fri_rank_numbers *rank;   /* of each, at the run's end; NULL: one process */
    fr_schedule schedule;
    int64_t parameters, trained; /* elements; those that are not frozen */

    /* batch.c: scratch for segmentation targets */
    float *pixels;
    int64_t *pixel_classes;
    size_t pixels_capacity;
    fr_input *input;

    /* real.c */
    fr_loader *loader;
    int64_t step, epoch;                             /* done so far, and the one that runs, from 0 */
    uint64_t run_number;                             /* of the training, in all its states; 0: they have none */
    int64_t first_step;                              /* that this process ran; losses and times count from it */
    int64_t saved_step;                              /* of the newest state that this process saved, or -1 */
    fri_step_values values[2];                       /* step.c; of the last steps, in turn */
    int64_t known;                                   /* steps whose values are; step or, on an asynchronous device,
                                                        one less until the end of the epoch */
    double known_at;                                 /* seconds */
    double *losses, *step_ms;                        /* per step; losses are NAN on meta */
    int64_t capacity;                                /* of both */
    bool step_skipped;                               /* the last known step, for inf or NaN in its gradients */
    double scale;                                    /* of the loss, after that step */
    int64_t skipped;                                 /* steps, up to that one */
    int64_t overflow_step;                           /* the last one skipped, from 1; 0: none */
    const char *overflow_path, *overflow_op;         /* its first gradient with inf or NaN; NULL: not known */
    double overflow_loss;                            /* its loss */
    fr_anomaly anomaly, overflow_first;              /* found in the last known step, and in the last one skipped */
    double epoch_loss, epoch_correct, epoch_targets; /* sums over the steps of this epoch */
    double seconds;                                  /* since training began */
    int signal;                                      /* that ended the run, or 0 */
    int heard;                                       /* a signal that all ranks know of, or 0 */

    /* evaluate.c; NAN and 0 before the first evaluation */
    double test_accuracy, test_loss;
    int64_t test_correct, test_targets;
    double metric[FR_METRICS_MAX]; /* the program's own, of the last evaluation; NAN before */
    int64_t *confusion;            /* [classes, classes] of the last evaluation, a row per true class; NULL: none */
    double best;                   /* accuracy, or else loss, of the best evaluation so far; NAN before */
    double since_best;             /* evaluations that were no better */
    bool given_up;                 /* as many as train.patience has: the run ends */

    /* Peaks of the training steps and of the evaluations, each with its own snapshot by category. */
    fr_memory_stats training, evaluation;
    size_t largest_op; /* bytes, allocated */
    fri_train_arena arena;

    /* fit.c */
    fr_fit fit; /* the plan that opts.unit_plan shows, if there is one */

    bool planned; /* the numbers are a plan's, nothing ran */
    fri_run_watcher watcher;
    int (*interrupted)(void *ctx); /* the number of a signal that asks the run to end, or 0; NULL: none does */
    void *interrupted_ctx;
} fri_session;

/* Signal that this process received. */
static inline int fri_signal_here(const fri_session *r) {
    return r->interrupted != NULL ? r->interrupted(r->interrupted_ctx) : 0;
}
/* Signal that any rank received, as of the last step: all ranks end after the same step. */
static inline int fri_run_interrupted(const fri_session *r) {
    return r->config->ranks > 1 ? r->heard : fri_signal_here(r);
}

static inline fr_status fri_run_emit(const fri_session *r, fr_run_event e) {
    return r->watcher.event != NULL ? r->watcher.event(r->watcher.ctx, e) : FR_OK;
}

/* ranks.c */
/* Numbers that the ranks of a step exchange, in the order of its batches: loss, right answers, targets. */
typedef struct fri_batch_numbers {
    double loss, correct, targets, images;
    double metric[FR_METRICS_MAX]; /* the program's own, of an evaluation */
} fri_batch_numbers;
/* The numbers of this rank's batches (0 <= n <= most) become those of all: batch b of *all is rank b % ranks's
 * b / ranks-th. all: malloced, [most * ranks]; those that a rank has not got have no targets. */
fr_status fri_ranks_numbers(const fri_session *r, const fri_batch_numbers *mine, int64_t n, int64_t most,
                            fri_batch_numbers **all);
/* Sets how long the other ranks are waited for: FRUGAL_PEER_TIMEOUT in a step, else FRI_PATIENCE times as long. */
enum { FRI_PATIENCE = 5 };
fr_status fri_ranks_patience(const fri_session *r, bool step);
/* All ranks are at this step, and hear of a signal that one of them got. */
fr_status fri_ranks_meet(fri_session *r, int64_t step);
/* FR_EPEER: another rank has other flags, data, or an environment in which numbers come out differently. */
fr_status fri_ranks_compare(const fri_session *r);
/* Fills in r->rank. */
fr_status fri_ranks_report(fri_session *r);
/* Copies rank 0's data, of `bytes`, to all ranks. */
fr_status fri_ranks_from_first(const fri_config *c, void *data, size_t bytes);

/* session.c: releases what it holds, at any point of its life. */
void fri_session_end(fri_session *r);
/* Says the last error, which does not end the training. */
void fri_session_goes_on(const fri_session *r);

/* data.c: opens both splits, and finds counts, classes and what to normalize with. */
fr_status fri_data_open(fri_config *c, fr_dataset **train, fr_dataset **test);
void fri_data_loader_opts(const fri_config *c, int split, fr_loader_opts *l);
fr_status fri_data_loader(const fri_config *c, int split, fr_dataset *data, fr_loader **out);

/* model.c: check finds on meta a network that does not exist, images or batches that it cannot take, and segments that
 * it does not have; build makes the model, its optimizer and what else a step needs of the device. */
fr_status fri_model_check(fri_config *c); /* fills in its name */
/* Runs fn on a session that has nothing but the model, as it trains at last, on meta, under the flags' switches; in a
 * pool and with an event log of its own, so nobody who watches a run or a plan sees it. */
fr_status fri_on_meta(const fri_config *c, fr_status (*fn)(const fri_session *trial, void *ctx), void *ctx);
fr_status fri_model_units(const fri_config *c, int *out); /* how many it has */
/* trained.c: --train-only and --freeze. Layers with parameters are counted in the order of the network. */
fr_status fri_freeze_parts(fri_session *r); /* of a new model */
int64_t fri_layers(fr_module *m);
/* The layer that a parameter's path is of goes to `layer`, "" at first; was it another one before? Tensors of a layer
 * come in a row. */
enum { FRI_LAYER_BYTES = 512 };
bool fri_layer_next(char layer[FRI_LAYER_BYTES], const char *path);
fr_status fri_model_build(fri_session *r);
void fri_model_release(fri_session *r);
/* Type in which the network takes images: the low type of --half, that of --amp if all that read them convert them to
 * it. */
fr_dtype fri_model_dtype(const fri_session *r);
/* Images that are bytes become normalized. */
fr_status fri_model_images(const fri_session *r, fr_tensor **images);
fr_status fri_model_forward(const fri_session *r, fr_tensor *x, fr_tensor **y);

fr_status fri_groups_build(fri_session *r); /* groups.c: of the optimizer, and its averages */

/* classes.c: train.per_class. begin: a new evaluation; add: a batch on the device, y in f32; total: of all ranks. */
fr_status fri_confusion_begin(fri_session *r);
fr_status fri_confusion_add(const fri_session *r, fr_tensor *y, fr_tensor *targets);
fr_status fri_confusion_total(fri_session *r);
typedef struct fri_class_numbers {
    const char *name; /* NULL: none. Borrowed */
    int64_t targets;
    double accuracy, iou; /* right / targets; right / (targets or said to be); NAN of none */
} fri_class_numbers;
fri_class_numbers fri_class_numbers_of(const fri_session *r, int64_t class);
double fri_mean_iou(const fri_session *r); /* over the classes that have one */

/* segments.c: what --checkpoint-segments cuts. Bytes that each unit saves for backward on meta, malloced; *weight stays
 * NULL where the flags do not ask for them. Leaves no trace. */
fr_status fri_segment_weights(const fri_config *c, size_t **weight);
fr_status fri_segments_check(const fri_session *r);
fr_status fri_segments_forward(const fri_session *r, fr_tensor *x, fr_tensor **y);

/* batch.c: *r->input for batches of this run. */
fr_status fri_session_input(fri_session *r);

/* real.c: trains on the device. begin: loader, position, saved state; go_on: to the end or until it is interrupted, and
 * on from there when it is called again. */
fr_status fri_train_begin(fri_session *r);
fr_status fri_train_go_on(fri_session *r);

/* loss.c: what is minimized. The mean of a batch, a scalar with a graph: the program's own loss, mean squared error of
 * vectors, else --loss. Label smoothing and weights of classes are of training alone. */
fr_status fri_loss_of_batch(const fri_session *r, fr_tensor *y, fr_tensor *targets, bool training, fr_tensor **loss);
fr_status fri_loss_check(const fri_config *c);     /* of the flags, when the targets are known */
fr_status fri_class_weights_begin(fri_session *r); /* makes r->class_weights, if the flags ask for them */

/* step.c: a step that runs. train and update are of an fri_stepping (driver.h) whose ctx begins with this; train
 * releases the batch as early as possible. */
typedef struct fri_step_work {
    fri_session *r;
    fri_step_values *v;
    fr_tensor *images, *targets; /* of the batch that was laid out */
    int64_t count;               /* of its targets that are not ignored */
} fri_step_work;
fr_status fri_step_train(void *work, int64_t i);
fr_status fri_step_update(void *work);
void fri_step_work_end(fri_step_work *w);
/* Waits for them and counts them. *loss is the mean over the step's batches. */
fr_status fri_step_settle(fri_session *r, fri_step_values *v, double *loss);
void fri_step_values_forget(fri_step_values *v);
void fri_step_values_free(fri_step_values *v);

/* Makes ops between begin and end run in the type of --amp. */
fr_status fri_precision_begin(const fr_train_opts *o, fr_autocast_state *was);
void fri_precision_end(const fr_train_opts *o, fr_autocast_state was);

/* evaluate.c: of an evaluation. The last batches' numbers may still be on their way from the device. */
typedef struct fri_sums {
    fri_batch_numbers *batch; /* of this process, in their order */
    int64_t batches;
    fri_step_part part[2];
    int64_t n[2], of[2]; /* targets of that part, 0: nothing is on its way; its batch */
    int turn;
} fri_sums;
typedef struct fri_evaluation_scope {
    bool no_grad;
    fr_phase phase;
} fri_evaluation_scope;
fri_evaluation_scope fri_evaluation_begin(const fri_session *r);
void fri_evaluation_end(const fri_session *r, fri_evaluation_scope was);
/* No step follows: all are done, or train.patience is at its end. */
bool fri_run_finished(const fri_session *r);
/* Exchanges parameters and their averages, with train.ema. On several ranks all call it. */
fr_status fri_swap_averages(const fri_session *r);
/* Counts the batch before the one that it queues, of n targets; settle counts what is left, drop forgets it. */
fr_status fri_evaluate_batch(const fri_session *r, fr_tensor **images, fr_tensor **targets, int64_t n, fri_sums *sum);
fr_status fri_sums_settle(fri_sums *sum);
void fri_sums_drop(fri_sums *sum);
/* *total: of all batches of all ranks, in their order; loss and metrics times targets and images. */
fr_status fri_sums_total(const fri_session *r, const fri_sums *sum, fri_batch_numbers *total);

/* numbers.c. *kept = the larger of the two peaks, each part with its snapshot. */
void fri_peak_fold(const fr_memory_stats *now, fr_memory_stats *kept);
/* Keeps the device's peaks, which then start again. */
fr_status fri_peak_keep(fr_device d, fr_memory_stats *kept);

double fri_seconds_now(void);
/* Median of the step times without the first step (unless it is the only one), in milliseconds; NAN without any. */
double fri_median_step_ms(const fri_session *r);
double fri_images_per_second(const fri_session *r);
/* Loss and time of the step after the last known one. */
fr_status fri_step_remember(fri_session *r, double loss, double milliseconds);

/* anomaly.c: gradients that overflow, the first op that makes inf or NaN. */
/* Names the gradient that will make the step be skipped, or none. Call between unscaling and update. */
fr_status fri_watch_overflow(fri_session *r);
/* begin and end stand around a step and search it for the first op that makes inf or NaN, if --detect-anomaly asks for
 * that or the last known step overflowed; end stores what was found in v. */
bool fri_watch_enabled(const fri_session *r);
void fri_watch_begin(const fri_session *r);
void fri_watch_end(fri_step_values *v);
/* FR_EINVAL: the loss is no number, and no loss scale made it so. */
fr_status fri_watch_loss(const fri_session *r, double loss);
/* "inf or NaN first in the result of op conv2d in module features.0"; "" if the step was not searched. */
enum { FRI_ANOMALY_TEXT = 256 };
const char *fri_anomaly_text(const fr_anomaly *a, char text[FRI_ANOMALY_TEXT]);
double fri_unsigned_nan(double x); /* prints as "nan", whatever its sign */

/* state.c: --save, --resume, --weights, --export. check finds out before training whether the places can be written to,
 * and find whether there is a state to go on from; resume needs the loader and the planned steps; it sets r->step. dry:
 * what resuming allocates, in a dry run. */
fr_status fri_saving_check(fri_session *r);
fr_status fri_resume_find(fri_config *c); /* fills in resume_path */
fr_status fri_resume(fri_session *r);
fr_status fri_resume_dry(fri_session *r);
/* If saving fails for want of space or memory, it is said and the training goes on; after the last step it is a
 * failure. */
bool fri_save_is_due(const fri_session *r, bool last);
fr_status fri_save(fri_session *r, bool last);
fr_status fri_weights_begin(fri_session *r);
fr_status fri_weights_end(fri_session *r);
fr_status fri_weights_write(fri_session *r, const char *path); /* the model as it is now */

#endif
