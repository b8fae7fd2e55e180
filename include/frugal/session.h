/* session.h - a training run as an object, for programs that are not a trainer: it has no terminal and handles no
 * signals, trains inside a memory budget, tells of its progress, and can be stopped from another thread and gone on
 * with.
 *
 *     fr_session_opts o = fr_session_opts_default();
 *     o.train.memory_budget = 64 << 20;
 *     o.train.epochs = 5;
 *     o.model = network;                  makes the network, on any device
 *     o.on_step = progress;               FR_END stops
 *     o.ctx = app;
 *     FR_TRY(s, fr_session_create(&o, frames, NULL, &session));
 *     FR_TRY(s, fr_session_run(session));
 *
 * Of library frugal-cli, as train.h. A session belongs to the thread that created it, but for fr_session_cancel. It
 * has a memory pool, random numbers, switches and a number of threads of its own: between its calls the thread has what
 * it had before, but for the offload file (train.offload), which stays the thread's until release. create reads up to
 * 1,024 training images for their mean and deviation; planning runs the network on meta and calls neither the dataset
 * nor on_step and on_epoch. */
#ifndef FRUGAL_SESSION_H
#define FRUGAL_SESSION_H

#include <frugal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_session fr_session;

/* Position of a session, and its measurements. Losses and accuracies are NAN before there are any. */
typedef struct fr_session_info {
    int64_t step, steps;   /* optimizer steps done, and of the whole training */
    int64_t epoch, epochs; /* the one that runs, from 0; of all */
    bool finished;         /* no step is left */
    double loss;           /* of the last known step */
    double epoch_loss, epoch_accuracy;
    double test_loss, test_accuracy;                    /* of the last evaluation */
    double seconds;                                     /* of training, without pauses */
    size_t peak_reserved, peak_allocated;               /* of its pool so far */
    size_t planned;                                     /* bytes that its arena reserves; 0: it runs without one */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* what images are normalized with (fr_loader_opts) */
    double metrics[FR_METRICS_MAX];                     /* the program's own, of the last evaluation */
} fr_session_info;

typedef struct fr_session_opts {
    /* Options as the trainers' flags set them. Flags of the trainers' networks, --dataset and its files, --plan,
     * --summary, --predict and the measured ones (--calibrate) are not for a session: FR_EINVAL. lr AUTO: 0.1 for
     * SGD. */
    fr_train_opts train;

    /* Makes the network, which reads the dataset's channels and has one result: several times on FR_META, to plan, and
     * once on the run's device. Weights that it loads or copies there are where training starts (on FR_META there is
     * nothing to write to). */
    fr_network_fn *model;
    const char *name; /* of the network, for sentences and files; NULL: "network" */

    /* Each may be NULL. Called between steps, on the session's thread, with the module in training mode; FR_END stops
     * as fr_session_cancel does, a failure ends the call that runs. on_epoch is told behind the epoch's evaluation. */
    fr_status (*on_step)(void *ctx, const fr_session_info *now);
    fr_status (*on_epoch)(void *ctx, const fr_session_info *now);
    void *ctx;

    fr_loss_fn *loss;       /* as in fr_train_program, with ctx above */
    fr_metrics_fn *metrics; /* so, too */
    const char *const *metric_names;
    int64_t n_metrics;

    /* Mean and deviation of the images per channel, on a scale of 0..1 (f32 images on their own). std[0] = 0: what the
     * file train.weights says of its network, else those of the training images. */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX];

    FILE *out;               /* notes and warnings of the run; NULL: nothing */
    size_t *smallest_budget; /* written where create returns FR_ENOMEM for a memory_budget: what would do. Or NULL */
} fr_session_opts;
FR_API fr_session_opts fr_session_opts_default(void);

/* Checks the options, chooses how to fit into the budget, takes the memory and makes the network. test: NULL, then
 * nothing is evaluated. Both are retained. FR_EINVAL names the field ("train.momentum"): out of
 * range, in contradiction to another, or a network with more than one result, whose others no loss would see. */
FR_API fr_status fr_session_create(const fr_session_opts *opts, fr_dataset *train, fr_dataset *test, fr_session **out);
FR_API void fr_session_release(fr_session **session);

/* Trains to the end, or until it is stopped: FR_OK in both cases, fr_session_info.finished tells. Called again it goes
 * on, with the same numbers as if it had not been stopped. */
FR_API fr_status fr_session_run(fr_session *session);
/* Runs the session for at most `steps` steps. */
FR_API fr_status fr_session_run_steps(fr_session *session, int64_t steps);
/* Cancels a run; any thread and a signal handler may call. The call that runs, or the next one, returns after its step;
 * at an epoch's end after the evaluation. */
FR_API void fr_session_cancel(fr_session *session);

FR_API fr_status fr_session_info_get(const fr_session *session, fr_session_info *out);
/* The network that is trained; borrowed. Between the calls of a training with ema it has the weights that train; after
 * the end, the averages. */
FR_API fr_module *fr_session_module(const fr_session *session);

/* Writes the network as it is now (with ema: the averages), with its classes, size, mean and deviation:
 * fr_classifier_load_own reads it. An ending of an add-on (".onnx") writes that format. Also from on_step and
 * on_epoch. errors: as fr_weights_save. */
FR_API fr_status fr_session_export(fr_session *session, const char *path);
/* *out: defaults, and the size, channels, mean and deviation of the session's images, as fr_predict wants them. */
FR_API fr_status fr_session_input(const fr_session *session, fr_loader_opts *out);

#ifdef __cplusplus
}
#endif
#endif
