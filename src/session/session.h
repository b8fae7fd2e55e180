/* session.h - one training run: its data, model, optimizer, position and statistics; then functions in call order.
 *
 * FR_EINVAL before training begins is a usage error (exit status 2). All other failures have exit status 1. */
#ifndef FRI_SESSION_SESSION_H
#define FRI_SESSION_SESSION_H

#include "autograd/run.h"
#include "data/input.h"
#include "session/arena.h"
#include "session/config.h"
#include "tensor/readback.h"

#include <frugal/fit.h>
#include <frugal/io.h>
#include <frugal/memory.h>
#include <frugal/train.h>
#include <frugal/tools.h>
#include <stdio.h>

/* Receives the events of a run. A negative status ends the run. */
typedef struct fri_run_watcher {
    fr_status (*event)(void *ctx, fr_run_event e); /* NULL: no watcher */
    void *ctx;
} fri_run_watcher;

/* Numbers of one step. Readbacks may still be in flight. */
typedef struct fri_step_part {
    fri_readback loss, correct; /* of a batch, or of a part of a split batch */
    double targets;
    bool empty; /* no target counts, so the loss (0 / 0) is taken as 0 */
} fri_step_part;
typedef struct fri_step_values {
    int64_t number; /* step number, from 1 */
    double began;   /* start time in seconds */
    double targets;
    fri_step_part *part;
    int64_t n, capacity;
    bool device_decided; /* the device decides whether to skip the step; `scaler` receives the decision */
    fri_readback scaler;
    fr_anomaly anomaly; /* anomaly found in this step, if the step was searched */
} fri_step_values;

/* Statistics of one rank. */
typedef struct fri_rank_numbers {
    char host[64];
    uint64_t peak_requested, peak_reserved; /* larger of training and evaluation */
    uint64_t planned;                       /* bytes of the arena; 0: no arena */
    int64_t departures;                     /* requests that differed from the plan */
    uint64_t links;                         /* device memory used by connections to other ranks */
    uint64_t step_bytes;                    /* bytes sent per step */
    double exchanged, waited;               /* seconds of communication; without those hidden by compute */
} fri_rank_numbers;

/* Datasets and batches (data.c, batch.c). */
typedef struct fri_run_data {
    fr_dataset *train, *test;
    fr_loader *loader; /* loader of the training images */
    fri_input *input;
    float *pixels; /* scratch for segmentation targets */
    int64_t *pixel_classes;
    size_t pixels_capacity;
} fri_run_data;

/* Network, optimizer and what else a step needs (model.c). */
typedef struct fri_run_net {
    fr_module *model;
    fr_optimizer *optimizer;
    fr_schedule schedule;
    fr_grad_scaler *scaler;      /* without loss scaling, passes values through unchanged */
    fr_tensor *class_weights;    /* f32 [classes]; NULL: none */
    struct fr_share *share;      /* NULL: single process */
    size_t *unit_weight;         /* segments.c; NULL: equal weights */
    fri_scratch_limits *scratch; /* scratch of convolutions; NULL: the switches' limit holds */
    int64_t parameters, trained; /* elements; `trained`: elements that are not frozen */
} fri_run_net;

/* Beginning of a resumed run. The state of an epoch's last step is saved before the epoch's evaluation. */
typedef enum fri_first {
    FRI_FIRST_STEP,        /* the next step */
    FRI_FIRST_EVALUATION,  /* an evaluation missing in the state */
    FRI_FIRST_MEASUREMENT, /* no step is left: an evaluation for the numbers of the end alone */
} fri_first;

/* Position in the training (real.c). */
typedef struct fri_run_position {
    int64_t step, epoch;   /* steps done; current epoch, from 0 */
    int64_t first_step;    /* first step of this process; start of `losses` */
    int64_t saved_step;    /* step of the newest state saved by this process, or -1 */
    int64_t saved_counted; /* tested.counted at that save */
    fri_first first_evaluation;
    uint64_t run_number; /* number of the training in its states; 0: none is saved */
    double seconds;      /* time since training began */
    int signal;          /* signal that ended the run, or 0 */
    int common_signal;   /* signal that all ranks know of, or 0 */
} fri_run_position;

/* Numbers of the steps (step.c). */
typedef struct fri_run_numbers {
    fri_step_values values[2];                       /* values of the last two steps, by turns */
    int64_t known;                                   /* steps read back; an asynchronous device is 1 step ahead */
    double known_at;                                 /* time of the last readback, in seconds */
    double *losses, *step_ms;                        /* per step; losses are NAN on meta */
    int64_t capacity;                                /* elements allocated in both arrays */
    bool step_skipped;                               /* the last known step was skipped for inf or NaN in a gradient */
    double scale;                                    /* loss scale after the last known step */
    int64_t skipped;                                 /* skipped steps up to the last known one */
    int64_t overflow_step;                           /* last skipped step, from 1; 0: none */
    const char *overflow_path, *overflow_op;         /* first gradient with inf or NaN in that step; NULL: not known */
    double overflow_loss;                            /* loss of that step */
    fr_anomaly anomaly, overflow_first;              /* found in the last known step, and in the last skipped step */
    double loss;                                     /* of the last known step, also of an earlier process; NAN: none */
    double epoch_loss, epoch_correct, epoch_targets; /* sums over the steps of this epoch */
} fri_run_numbers;

/* Numbers of the last evaluation (evaluate.c); NAN or 0 before the first. */
typedef struct fri_run_tested {
    double accuracy, loss;
    int64_t correct, targets;
    double metric[FR_METRICS_MAX]; /* the program's own metrics */
    int64_t *confusion;            /* [classes, classes], one row per true class; NULL: none */
    double best;                   /* best accuracy, or lowest loss if there is no accuracy */
    double since_best;             /* evaluations since the best one */
    int64_t counted;               /* step of the last evaluation compared with the best; -1: none */
    bool may_be_known;             /* the best of a 0.2.0 state may come from the next evaluation already */
    bool given_up;                 /* train.optim.patience is exhausted: the run ends */
    double best_file;              /* fingerprint of the file with the best weights; 0: none; below 0: not known */
    bool written;                  /* the process wrote the file of --export */
} fri_run_tested;

#define FRI_NOT_TESTED ((fri_run_tested){.accuracy = NAN, .loss = NAN, .best = NAN, .counted = -1})

/* Choice made by the device's free memory (room.c). */
typedef struct fri_room {
    size_t bytes;          /* for the run; 0: nothing was to be decided */
    const char *choice;    /* "kept", "rebuilt" or "fitted" */
    char reason[160];      /* of the choice */
    bool fits;             /* the chosen plan fits `bytes` */
    fr_train_memory asked; /* options before the choice */
} fri_room;

/* Memory of the run: peaks of training steps and of evaluations, each with a snapshot by category. */
typedef struct fri_run_memory {
    fr_memory_stats training, evaluation;
    size_t largest_op; /* allocated bytes */
    fri_train_arena arena;
    fri_room room;
    fr_fit fit; /* opts.memory.unit_plan points to the plan in here, if set */
} fri_run_memory;

typedef struct fri_session {
    const fri_config *config;
    fr_pool *pool; /* memory pool of the run on its device; NULL: not created yet */
    fr_pool_state no_pool;
    fri_run_data data;
    fri_run_net net;
    fri_run_position at;
    fri_run_numbers numbers;
    fri_run_tested tested;
    fri_run_memory memory;
    fri_rank_numbers *rank; /* statistics of each rank at the end of the run; NULL: single process */
    bool planned;           /* the numbers come from a plan; nothing ran */
    fri_run_watcher watcher;
    int (*interrupted)(void *ctx); /* returns a signal that asks the run to end, or 0; NULL: no signals */
    void *interrupted_ctx;
} fri_session;

/* Signal received by this process. */
static inline int fri_signal_here(const fri_session *r) {
    return r->interrupted != NULL ? r->interrupted(r->interrupted_ctx) : 0;
}
/* Signal received by any rank as of the last step. All ranks end after the same step. */
static inline int fri_run_interrupted(const fri_session *r) {
    return r->config->ranks > 1 ? r->at.common_signal : fri_signal_here(r);
}

static inline fr_status fri_run_emit(const fri_session *r, fr_run_event e) {
    return r->watcher.event != NULL ? r->watcher.event(r->watcher.ctx, e) : FR_OK;
}

/* ranks.c. Numbers of a batch, which ranks exchange in the order of the batches. */
typedef struct fri_batch_numbers {
    double loss, correct, targets, images;
    double metric[FR_METRICS_MAX]; /* the program's own metrics, in an evaluation */
} fri_batch_numbers;
/* Gathers the numbers of all ranks' batches. mine: n batches of this rank (0 <= n <= most). *all: malloced [most *
 * ranks]; batch b is number b / ranks of rank b % ranks, and missing batches have 0 targets. */
fr_status fri_ranks_numbers(const fri_session *r, const fri_batch_numbers *mine, int64_t n, int64_t most,
                            fri_batch_numbers **all);
/* Sets the timeout for other ranks: FRUGAL_PEER_TIMEOUT during a step, else FRI_LONG_TIMEOUT times as long. */
enum { FRI_LONG_TIMEOUT = 5 };
fr_status fri_ranks_timeout(const fri_session *r, bool step);
/* Checks that all ranks are at `step`, and spreads a signal received by any of them. */
fr_status fri_ranks_check_step(fri_session *r, int64_t step);
/* FR_EPEER: another rank has different flags or data, or an environment with different results. */
fr_status fri_ranks_compare(const fri_session *r);
/* *n becomes the smallest n of all ranks. */
fr_status fri_ranks_least(const fri_config *c, size_t *n);
/* Fills in r->rank. */
fr_status fri_ranks_report(fri_session *r);
/* Copies rank 0's data, of `bytes`, to all ranks. */
fr_status fri_ranks_from_first(const fri_config *c, void *data, size_t bytes);

/* session.c: releases all members, at any stage of setup. */
void fri_session_end(fri_session *r);
/* Prints the last error, which does not end the training. */
void fri_session_warn(const fri_session *r);
/* Prints a note: in a session to opts.out, in words of its fields; in a trainer unless --quiet. */
__attribute__((format(printf, 2, 3))) void fri_session_note(const fri_config *c, const char *format, ...);

/* data.c: opens both splits and determines counts, classes and normalization. */
fr_status fri_data_open(fri_config *c, fr_dataset **train, fr_dataset **test);
void fri_data_loader_opts(const fri_config *c, int split, fr_loader_opts *l);
fr_status fri_data_loader(const fri_config *c, int split, fr_dataset *data, fr_loader **out);

/* model.c. fri_model_check tests on meta that network, images, batches and segments fit each other. fri_model_build
 * makes the model, its optimizer and all other tensors of a step. */
bool fri_weights_are_network(const fri_config *c, const fr_network_file **out); /* --weights FILE.onnx */
fr_status fri_model_check(fri_config *c);                                       /* also sets c->model_name */
/* Runs fn on meta with a session that holds only the model, frozen as in training, under the flags' switches. A
 * private pool and event log keep the trial invisible to the run and to plans. */
fr_status fri_on_meta(const fri_config *c, fr_status (*fn)(const fri_session *trial, void *ctx), void *ctx);
fr_status fri_model_units(const fri_config *c, int *out); /* number of units */
/* trained.c: --train-only and --freeze. Layers with parameters are numbered in the order of the network. */
fr_status fri_freeze_parts(fri_session *r); /* freezes layers of a new model */
int64_t fri_layers(fr_module *m);
/* True if `path` belongs to a new layer, whose name then replaces `layer` ("" at first). Tensors of a layer are
 * consecutive. */
enum { FRI_LAYER_BYTES = 512 };
bool fri_layer_next(char layer[FRI_LAYER_BYTES], const char *path);
fr_status fri_model_build(fri_session *r);
void fri_model_release(fri_session *r);
/* Dtype of the network's images: --half, or --amp if all readers of the images cast. */
fr_dtype fri_model_dtype(const fri_session *r);
/* Normalizes u8 images. */
fr_status fri_model_images(const fri_session *r, fr_tensor **images);
fr_status fri_model_forward(const fri_session *r, fr_tensor *x, fr_tensor **y);

fr_status fri_groups_build(fri_session *r); /* groups.c: parameter groups and EMA */

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

/* segments.c. *weight: bytes that each unit saves, measured on meta, malloced; NULL without --checkpoint-segments. */
fr_status fri_segment_weights(const fri_config *c, size_t **weight);
fr_status fri_segments_check(const fri_session *r);
fr_status fri_segments_forward(const fri_session *r, fr_tensor *x, fr_tensor **y);

/* batch.c: creates r->input for the batches of this run. */
fr_status fri_session_input(fri_session *r);

/* best.c: the best evaluation, --keep-best and train.optim.patience.
 * compare: compares the evaluation of the current step with the best so far, and writes the weights of a better one.
 * is_in_file: the file of --export holds the best weights of the training. */
fr_status fri_best_compare(fri_session *r);
bool fri_best_is_in_file(const fri_session *r);
bool fri_patience_is_over(const fri_session *r);

/* real.c: trains on the device. begin: loader, position, saved state. go_on: trains to the end or to an interruption,
 * and can be called again to continue. */
fr_status fri_train_begin(fri_session *r);
fr_status fri_train_go_on(fri_session *r);

/* loss.c: mean loss of a batch, a scalar with a graph: the program's own loss, mean squared error for vectors, else
 * --loss. Label smoothing and class weights apply to training only. */
fr_status fri_loss_of_batch(const fri_session *r, fr_tensor *y, fr_tensor *targets, bool training, fr_tensor **loss);
fr_status fri_loss_check(const fri_config *c);     /* checks the flags once the targets are known */
fr_status fri_class_weights_begin(fri_session *r); /* creates r->class_weights if requested */

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

/* state.c: --save, --resume, --weights, --export. Before training, fri_saving_check tests that all paths can be
 * written and fri_resume_find looks for a state. fri_resume needs the loader and sets r->step. fri_resume_dry
 * allocates on meta as resuming does. */
fr_status fri_saving_check(fri_session *r);
fr_status fri_resume_find(fri_config *c); /* sets c->resume.path */
fr_status fri_resume(fri_session *r);
fr_status fri_resume_dry(fri_session *r);
/* A save that fails for lack of disk space or memory is only reported, except after the last step. */
bool fri_save_is_due(const fri_session *r, bool last);
fr_status fri_save(fri_session *r, bool last);
fr_status fri_weights_begin(fri_session *r);
fr_status fri_weights_end(fri_session *r);
fr_status fri_weights_write(fri_session *r, const char *path); /* writes the current model */

#endif
