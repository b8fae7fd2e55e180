/* config.h - the options of a run and the values derived from the options.
 *
 * A config is const once prepare.c has checked it. A trial run (a plan, a fit, a line of advice) uses a copy with
 * other options. Each derived value is computed by one function here and stored nowhere. */
#ifndef FRI_SESSION_CONFIG_H
#define FRI_SESSION_CONFIG_H

#include <frugal/try.h>

#include <frugal/extend.h>
#include <frugal/io.h>
#include <frugal/train.h>
#include <stdio.h>

enum { FRI_TRAIN_ONLY_WORDS = 3, FRI_TRAIN_ONLY_BYTES = 96 };

/* Resumed state. The numbers serve plans; the run reads the state again. */
typedef struct fri_resume_point {
    char path[FR_STATE_PATH_BYTES]; /* "": none */
    int64_t step;
    double evaluated;  /* state.c: whether the state knows the step's evaluation */
    double since_best; /* evaluations since the best one */
} fri_resume_point;

/* Words of --train-only, as pointers into the text. */
typedef struct fri_train_only {
    char text[FRI_TRAIN_ONLY_BYTES];
    const char *word[FRI_TRAIN_ONLY_WORDS];
} fri_train_only;

/* Kinds of a run's sentences, for the listener. The session prints nothing (say.c). */
typedef enum fri_saying {
    FRI_SAY_CHOICE,  /* a value that the run has chosen, or where the run begins */
    FRI_SAY_NOTE,    /* a remark about the options */
    FRI_SAY_STEP,    /* a remark about the last step */
    FRI_SAY_WARNING, /* a failure that does not end the run */
} fri_saying;

/* The listening program. */
typedef struct fri_listener {
    const struct fri_view *view; /* a trainer's display (views.h); NULL: none */
    void (*said)(void *ctx, fri_saying how, const char *text);
    void *ctx;
} fri_listener;

typedef struct fri_config {
    const fr_train_program *program;
    fr_train_opts opts; /* resolved: device, image_size, image_width, classes and lr hold values */
    fr_device target;   /* device of the command; in a dry run opts.device is meta and target is the planned device */
    int argc;
    char *const *argv; /* the command line, to see which flags the user gave */
    FILE *out, *err;   /* of a trainer; NULL in a session */
    fri_listener listener;
    /* A session's network and data, used instead of the program's; NULL outside of sessions. */
    fr_network_fn *model;
    void *model_ctx;
    fr_dataset *given[2]; /* data sets by fr_split; NULL: no test set */

    /* ranks.c */
    const fr_rank_calls *rank_calls; /* functions of the add-on `ranks`; NULL: not built */
    struct fr_comm *comm;            /* borrowed; NULL: single process */
    int rank, ranks;
    double peer_timeout; /* seconds that a step waits for an unresponsive rank */
    size_t link_bytes;   /* device memory used by connections to the other ranks */
    uint64_t streams;    /* number of random streams that a batch draws from (model.c) */

    /* data.c: facts about the data sets */
    int64_t train_count, test_count;
    int64_t outputs;                                    /* classes of the model's output, or its vector's length */
    int64_t channels;                                   /* channels of the model's input */
    fr_target targets;                                  /* targets of a training step */
    bool from_labels;                                   /* the program computes the targets (batch.c) */
    bool bytes;                                         /* images are copied as u8 and normalized on the device */
    fr_augmentation augmentation;                       /* of training images, in addition to the loader's own */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* normalization constants per channel */

    int64_t evaluation_images;            /* images of a test batch that run at a time; 0: all */
    struct fri_evaluations *evaluations;  /* what the trials of a search know of evaluations (dry.h); or NULL */
    bool fit_batch;                       /* the batch size is the largest that fits the budget */
    bool workspace_auto;                  /* the plan decides the scratch memory of kernels (workspace.c) */
    char model_name[FR_TRAIN_NAME_BYTES]; /* model.c */
    bool accuracy;                        /* results are class scores, so accuracy can be counted */
    bool other_classes;                   /* --weights names other classes than the data (head.c) */
    fri_resume_point resume;              /* state.c */
    fri_train_only train_only;            /* choice made for --train-only auto */
} fri_config;

/* Images of a full batch, and of the short batch after the full ones (0: none, or left out). */
int64_t fri_batch_size(const fri_config *c, int split);
int64_t fri_batch_rest(const fri_config *c, int split);
/* Number of images of a test batch that run at a time: a divisor of the batch size. */
int64_t fri_evaluation_part(const fri_config *c);
/* Batches of an evaluation. On meta a single batch gives all the numbers. */
int64_t fri_test_batches(const fri_config *c);

/* Batches of an evaluation for this rank. */
int64_t fri_test_share(const fri_config *c);

/* True if training targets are class probabilities (mixup) instead of class numbers. */
static inline bool fri_mixes(const fri_config *c) {
    return c->augmentation.batch != NULL;
}
/* True if correct answers of training steps can be counted, so where targets are class numbers. */
static inline bool fri_counts_steps(const fri_config *c) {
    return c->accuracy && !fri_mixes(c);
}
/* Dtype and shape of a batch of n loaded images, and of its n targets. */
fr_dtype fri_image_dtype(const fri_config *c);
fr_shape fri_image_shape(const fri_config *c, int64_t n);
fr_dtype fri_target_dtype(const fri_config *c);
fr_shape fri_target_shape(const fri_config *c, int64_t n);

/* Optimizer steps. Batches that do not fill a step (--accumulate) are not counted. */
int64_t fri_steps_per_epoch(const fri_config *c);
int64_t fri_steps_total(const fri_config *c);
int64_t fri_epochs_total(const fri_config *c);
int64_t fri_save_every(const fri_config *c);
/* True if an evaluation follows epoch `epoch` (from 0). */
bool fri_evaluation_due(const fri_config *c, int64_t epoch, bool last);
/* True if the evaluation at `step` is compared with the best: it follows a whole epoch at which the training
 * evaluates. */
bool fri_evaluation_counts(const fri_config *c, int64_t step);
fr_schedule fri_schedule(const fri_config *c);

/* Element type requested by --amp or --half, or f32. */
fr_dtype fri_compute_dtype(const fr_train_opts *o);
bool fri_loss_scaled(const fr_train_opts *o);
bool fri_fused_step_possible(const fri_config *c);  /* the other flags allow --fused-step */
fr_train_fused fri_fused_step(const fri_config *c); /* train.memory.fused_step; AUTO has become ON or OFF */
bool fri_without_data(const fr_train_opts *o);      /* no image is read: --device meta, --plan, --summary */

bool fri_trains_auto(const fr_train_opts *o); /* --train-only auto, not yet chosen */
/* Replaces "auto" by at most FRI_TRAIN_ONLY_WORDS words, stored in *c. */
void fri_train_only_set(fri_config *c, const char *words);

/* data.c */
fr_status fri_nothing_read(void *ctx, int64_t index, void *pixels, void *target); /* for data sets without data */
const char *fri_dataset_name(fr_train_dataset d);
bool fri_dataset_reads_files(fr_train_dataset d);
bool fri_dataset_in_folders(fr_train_dataset d); /* image files of any size */

/* Replaces AUTO by values wherever no data set is needed. opts.device must hold a value already. */
void fri_config_resolve(fri_config *c);

/* say.c: says a text of one or more lines, without the last newline. --quiet silences all but warnings, and notes only
 * in trainers. Notes of a session name fields instead of flags. */
__attribute__((format(printf, 3, 4))) void fri_say(const fri_config *c, fri_saying how, const char *format, ...);
/* Prints a text as trainers do: "note: " before a note, the program's name before a warning. */
void fri_said_print(FILE *out, const char *program, fri_saying how, const char *text);

/* checks.c: FR_EINVAL with a sentence for contradicting or incomplete flags (fri_check_flags), and for options that
 * the data sets cannot serve (fri_check_counts; source: name of the training set). */
fr_status fri_check_flags(const fri_config *c);
fr_status fri_check_counts(const fri_config *c, const char *source);

#endif
