/* config.h - what a run is asked for, and what follows from that.
 *
 * A config is const once prepare.c has checked it. A trial (a plan, a fit, a line of advice) is a copy of it with
 * other options. What can be computed from the options has one function here and is stored nowhere. */
#ifndef FRI_SESSION_CONFIG_H
#define FRI_SESSION_CONFIG_H

#include <frugal/unstable/try.h>

#include <frugal/extend.h>
#include <frugal/io.h>
#include <frugal/train.h>
#include <stdio.h>

enum { FRI_TRAIN_ONLY_WORDS = 3, FRI_TRAIN_ONLY_BYTES = 96 };

typedef struct fri_config {
    const fr_train_program *program;
    fr_train_opts opts; /* resolved: device, image_size, classes and lr hold values */
    fr_device target;   /* of the command: opts.device, or what that, meta, stands for in a dry run */
    int argc;
    char *const *argv;               /* the command, for what was asked for by name */
    FILE *out, *err;                 /* what was asked for, and what went wrong without ending the run */
    const struct fri_view *progress; /* the terminal's view of the run (views.h); NULL: none */
    /* A session's network and data in place of the program's; NULL: there is no session. */
    fr_network_fn *model;
    void *model_ctx;
    fr_dataset *given[2]; /* by fr_split; no test set: NULL */
    const char *no_gpu;   /* why --device auto is the CPU in a build with CUDA; NULL: no question */

    /* ranks.c */
    const fr_rank_calls *rank_calls; /* of the add-on that has them; NULL: it was not built */
    struct fr_comm *comm;            /* borrowed; NULL: one process */
    int rank, ranks;
    double peer_timeout; /* seconds that a rank is waited for in a step */
    size_t link_bytes;   /* of the device's memory, taken by what connects it to the other ranks' */
    uint64_t streams;    /* of random numbers that a batch draws (model.c) */

    /* data.c: of the data sets */
    int64_t train_count, test_count;
    int64_t outputs;                                    /* classes of the model's output, or numbers of a vector */
    int64_t channels;                                   /* of the model's input */
    fr_target targets;                                  /* of a step */
    bool from_labels;                                   /* the program makes them from images and labels (batch.c) */
    bool bytes;                                         /* images reach the device as u8, and are normalized there */
    fr_augmentation augmentation;                       /* of training images, beside the loader's own */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* what images are normalized with */

    bool fit_batch;                             /* the batch is the largest that fits into the budget */
    bool workspace_auto;                        /* the run's plan decides what scratch kernels take (workspace.c) */
    char model_name[FR_TRAIN_NAME_BYTES];       /* model.c */
    bool accuracy;                              /* the model's results are classes, which can be counted */
    char resume_path[FR_STATE_PATH_BYTES];      /* state.c: of the state that the run goes on from; "": from none */
    char train_only_text[FRI_TRAIN_ONLY_BYTES]; /* what --train-only auto became */
    const char *train_only[FRI_TRAIN_ONLY_WORDS];
} fri_config;

/* Images of a full batch, and of the short batch that the run trains or evaluates on after them (0: there is none). */
int64_t fri_batch_size(const fri_config *c, int split);
int64_t fri_batch_rest(const fri_config *c, int split);
/* Batches of an evaluation. On meta one tells all that there is. */
int64_t fri_test_batches(const fri_config *c);

/* How many of them this rank evaluates. */
int64_t fri_test_share(const fri_config *c);

/* Training's targets are shares of classes. */
static inline bool fri_mixes(const fri_config *c) {
    return c->augmentation.batch != NULL;
}
/* Right answers of training steps are counted: where targets are classes. */
static inline bool fri_counts_steps(const fri_config *c) {
    return c->accuracy && !fri_mixes(c);
}
/* Type of the loader's images, and of n targets of a step, as tensors. */
fr_dtype fri_image_dtype(const fri_config *c);
fr_shape fri_image_shape(const fri_config *c, int64_t n);
fr_dtype fri_target_dtype(const fri_config *c);
fr_shape fri_target_shape(const fri_config *c, int64_t n);

/* Optimizer steps, without the batches that do not fill one (--accumulate). */
int64_t fri_steps_per_epoch(const fri_config *c);
int64_t fri_steps_total(const fri_config *c);
int64_t fri_epochs_total(const fri_config *c);
int64_t fri_save_every(const fri_config *c);
/* An evaluation follows the epoch (from 0). */
bool fri_evaluation_due(const fri_config *c, int64_t epoch, bool last);
fr_schedule fri_schedule(const fri_config *c);

/* The element type that --amp or --half asks for; f32 without. */
fr_dtype fri_compute_dtype(const fr_train_opts *o);
bool fri_loss_scaled(const fr_train_opts *o);
bool fri_fused_step_possible(const fri_config *c); /* do the other flags allow --fused-step? */
bool fri_without_data(const fr_train_opts *o);     /* no image is read: on meta, and for a plan */

bool fri_trains_auto(const fr_train_opts *o); /* --train-only auto: not yet chosen */
/* Words in place of "auto", at most FRI_TRAIN_ONLY_WORDS; the options point into *c from then on. */
void fri_train_only_set(fri_config *c, const char *words);

/* data.c */
fr_status fri_nothing_read(void *ctx, int64_t index, void *pixels, void *target); /* of a dataset without data */
const char *fri_dataset_name(fr_train_dataset d);
bool fri_dataset_reads_files(fr_train_dataset d);
bool fri_dataset_in_folders(fr_train_dataset d); /* image files of any size */

/* Replaces AUTO by values, where these need no data set; opts.device holds one already. */
void fri_config_resolve(fri_config *c);

/* checks.c: FR_EINVAL for flags that contradict each other or lack another one, with the sentence; the second, for
 * options that the data sets cannot serve; source: of the training images. */
fr_status fri_check_flags(const fri_config *c);
fr_status fri_check_counts(const fri_config *c, const char *source);

#endif
