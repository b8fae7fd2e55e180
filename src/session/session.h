/* session.h - one training run: its data, model, optimizer, position and statistics.
 *
 * FR_EINVAL before training begins is a usage error (exit status 2). All other failures have exit status 1. */
#ifndef FRI_SESSION_SESSION_H
#define FRI_SESSION_SESSION_H

#include "ops/casts.h"
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
    fri_casts casts;             /* of weights, by autocast */
    fr_grad_scaler *scaler;      /* without loss scaling, passes values through unchanged */
    fr_tensor *class_weights;    /* f32 [classes]; NULL: none */
    struct fr_share *share;      /* NULL: single process */
    size_t *unit_weight;         /* segments.c; NULL: equal weights */
    fri_scratch_limits *scratch; /* scratch of convolutions; NULL: the switches' limit holds */
    int64_t parameters, trained; /* elements; `trained`: elements that are not frozen */
    int64_t old_head;            /* results of a file's network before its last layer was replaced; 0: was not */
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

typedef struct fri_run {
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
} fri_run;

/* Signal received by this process. */
static inline int fri_signal_here(const fri_run *r) {
    return r->interrupted != NULL ? r->interrupted(r->interrupted_ctx) : 0;
}
/* Signal received by any rank as of the last step. All ranks end after the same step. */
static inline int fri_run_interrupted(const fri_run *r) {
    return r->config->ranks > 1 ? r->at.common_signal : fri_signal_here(r);
}

static inline fr_status fri_run_emit(const fri_run *r, fr_run_event e) {
    return r->watcher.event != NULL ? r->watcher.event(r->watcher.ctx, e) : FR_OK;
}

/* say.c: says that the last error does not end the training. */
void fri_say_goes_on(const fri_run *r);

#endif
