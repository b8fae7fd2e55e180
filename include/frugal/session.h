/* session.h - a training run as an object, for applications: without terminal and signals, inside a memory budget, with
 * progress callbacks; any thread can stop the run, and the run can continue.
 *
 *     fr_session_opts o = fr_session_opts_default();
 *     o.train.memory.budget = 64 << 20;
 *     o.train.optim.epochs = 5;
 *     o.model = network;                  makes the network on a device
 *     o.on_step = progress;               FR_END stops
 *     o.ctx = app;
 *     FR_TRY(s, fr_session_create(&o, frames, NULL, &session));
 *     FR_TRY(s, fr_session_run(session));
 *
 * Call a session only from the thread of fr_session_create, except fr_session_cancel. A session has separate memory
 * pool, random numbers, switches and thread count, and restores the thread's at the end of each call, except the
 * offload file (train.memory.offload), which stays until release. create reads up to 1,024 training images for mean and
 * deviation; planning runs the network on meta, without dataset and callbacks. */
#ifndef FRUGAL_SESSION_H
#define FRUGAL_SESSION_H

#include <frugal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_session fr_session;

/* Position and measurements of a session. Losses and accuracies are NAN before the first measurement. */
typedef struct fr_session_info {
    int64_t step, steps;   /* optimizer steps done, and of the whole training */
    int64_t epoch, epochs; /* current epoch, from 0; number of epochs */
    bool finished;         /* no step is left */
    double loss;           /* of the last known step */
    double epoch_loss, epoch_accuracy;
    double test_loss, test_accuracy;                    /* of the last evaluation */
    double seconds;                                     /* of training, without pauses */
    size_t peak_reserved, peak_allocated;               /* of the session's pool so far */
    size_t planned;                                     /* bytes of the arena; 0: no arena */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* normalization of images (fr_loader_opts) */
    double metrics[FR_METRICS_MAX];                     /* the program's own, of the last evaluation */
} fr_session_info;

typedef struct fr_session_opts {
    /* Options of the trainers' flags. Flags of the trainers' networks, --dataset and its files, --plan,
     * --summary, --predict and the measured ones (--calibrate) are not for a session: FR_EINVAL. lr AUTO: for
     * SGD 0.1 from batches of 64 on, less in proportion for smaller ones. */
    fr_train_opts train;

    /* Makes the network, for the dataset's channels and with a single result: several times on FR_META, to plan, and
     * once on the run's device. Training starts from weights loaded on the run's device. */
    fr_network_fn *model;
    const char *name; /* of the network, for sentences and files; NULL: "network" */

    /* Callbacks between steps, on the session's thread, with the module in training mode; or NULL. FR_END stops as
     * fr_session_cancel does, a failure ends fr_session_run. on_epoch follows the epoch's evaluation. A
     * resumed run makes the evaluation that its state lacks, and then calls on_epoch a second time with the same loss
     * and accuracy. */
    fr_status (*on_step)(void *ctx, const fr_session_info *now);
    fr_status (*on_epoch)(void *ctx, const fr_session_info *now);
    void *ctx;

    fr_loss_fn *loss;       /* as in fr_train_program, with ctx above */
    fr_metrics_fn *metrics; /* as in fr_train_program, with ctx above */
    const char *const *metric_names;
    int64_t n_metrics;

    /* Mean and deviation of the images per channel, on a scale of 0..1 (f32 images unscaled). std[0] = 0: from the file
     * train.files.weights, else from the training images. */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX];

    FILE *out;               /* notes and warnings of the run, whatever train.quiet says; NULL: no output */
    size_t *smallest_budget; /* set if create returns FR_ENOMEM for a memory_budget; or NULL */
    /* Receives each sentence that goes to `out`, without "note: " and the network's name, during create, run and
     * export, on their thread; `sentence` is valid during the call. NULL: none. */
    void (*on_note)(void *ctx, const char *sentence);
} fr_session_opts;
FR_API fr_session_opts fr_session_opts_default(void);

/* Checks the options, chooses how to fit into the budget, takes the memory and makes the network. test NULL: no
 * evaluation. Both datasets are retained. FR_EINVAL names the field ("train.optim.momentum"): out of range, in
 * contradiction to another, or a network with more than one result, or other results than the loss needs. FR_EDATA: the
 * state to resume is of other data. */
FR_API fr_status fr_session_create(const fr_session_opts *opts, fr_dataset *train, fr_dataset *test, fr_session **out);
FR_API void fr_session_release(fr_session **session);

/* Trains to the end, or until stopped: FR_OK in both cases; see fr_session_info.finished. A further call continues,
 * with the numbers of an undisturbed run. */
FR_API fr_status fr_session_run(fr_session *session);
/* Runs the session for at most `steps` steps. */
FR_API fr_status fr_session_run_steps(fr_session *session, int64_t steps);
/* Cancels a run; any thread and a signal handler may call. The running or next fr_session_run returns after a step; at
 * an epoch's end after the evaluation. */
FR_API void fr_session_cancel(fr_session *session);

FR_API fr_status fr_session_info_get(const fr_session *session, fr_session_info *out);
/* The trained network; borrowed. With ema, the module has the training weights between calls, and the averages after
 * the end. */
FR_API fr_module *fr_session_module(const fr_session *session);

/* Writes the current network (with ema: the averages), with classes, size, mean and deviation, for
 * fr_classifier_load_own. An ending of an add-on (".onnx") writes that format. Also from on_step and on_epoch.
 * FR_EINVAL: weights alone of a network from a file; inf or NaN in the training. Else as fr_weights_save. */
FR_API fr_status fr_session_export(fr_session *session, const char *path);
/* *out: defaults, and the size, channels, mean and deviation of the session's images, for fr_predict. */
FR_API fr_status fr_session_input(const fr_session *session, fr_loader_opts *out);

/* ---- memory switches side by side -------------------------------------------------------------------------------- */

enum { FR_PLAN_SWITCH_ROWS = 23 };

/* A training under one choice of memory switches. */
typedef struct fr_plan_switch_row {
    const char *name;                  /* "encodings: 1 bit per relu" */
    char flag[96];                     /* of a trainer, in place of its memory flags; "": the defaults */
    const char *field;                 /* "memory.switches.encode" of fr_train_opts; NULL: several, or none */
    size_t planned;                    /* requested bytes at a step's peak, as --plan with `flag` plans */
    size_t at_peak[FR_CATEGORY_COUNT]; /* by category; `planned` is the sum */
    size_t step_memory;                /* planned, without parameters and optimizer state */
    double ratio;                      /* of the first row's step memory */
    double seconds;                    /* of a step, measured; NAN: not measured */
    char reason[256];                  /* why the row cannot be; "": it can */
} fr_plan_switch_row;

typedef struct fr_plan_switches_opts {
    int64_t rounds FR_DEFAULT(0);      /* steps that measure a row's time, after one that does not; not on FR_META */
    const char *only FR_DEFAULT(NULL); /* name of a row that is planned beside the first; NULL: all */
} fr_plan_switches_opts;
#define FR_PLAN_SWITCHES_DEFAULTS  .rounds = 0
#define FR_PLAN_SWITCHES_OPTS(...) FR_OPTS(fr_plan_switches_opts, FR_PLAN_SWITCHES_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_plan_switches_opts, FR_PLAN_SWITCHES_OPTS())

/* Plans the training of a session with all memory switches off (row 0), with each switch alone, with checkpoints, a
 * divided batch and mixed precision, with the defaults, and in the smallest budget. Other options stay; those of memory
 * are replaced. rows: room for FR_PLAN_SWITCH_ROWS is enough; *n: rows written. opts NULL: the defaults. FR_EINVAL: the
 * training itself is wrong, or opts->only names no row; the sentence lists the rows. FR_EUSAGE: too little room. */
FR_API fr_status fr_plan_switches(const fr_session_opts *o, fr_dataset *train, const fr_plan_switches_opts *opts,
                                  fr_plan_switch_row *rows, int64_t room, int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
