/* train.h - options of a training (session.h), and the training program of the example trainers: flags, the loop,
 * progress and reports.
 *
 * fr_train_main and fr_train_run are in the library frugal-cli, which, unlike frugal, writes to the terminal and
 * handles SIGINT and SIGTERM. A program fills in an fr_train_program, and main returns
 * fr_train_main(&program, argc, argv). */
#ifndef FRUGAL_TRAIN_H
#define FRUGAL_TRAIN_H

#include <frugal/autograd.h>
#include <frugal/data.h>
#include <frugal/models.h>
#include <frugal/optim.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fr_train_dataset {
    FR_TRAIN_DIGITS, /* what fr_train_program.digits returns */
    FR_TRAIN_MNIST,
    FR_TRAIN_FASHION_MNIST,
    FR_TRAIN_CIFAR10,
    FR_TRAIN_CIFAR100,
    FR_TRAIN_FOLDER,
    FR_TRAIN_MASKS,
    FR_TRAIN_SYNTHETIC,
    FR_TRAIN_OWN, /* of a session (session.h), which is given its datasets; no flag */
    FR_TRAIN_TAR,
} fr_train_dataset;

typedef enum fr_train_optimizer {
    FR_TRAIN_SGD,
    FR_TRAIN_ADAM,
    FR_TRAIN_ADAMW,
    FR_TRAIN_ADAM8,
    FR_TRAIN_RMSPROP,
} fr_train_optimizer;

/* Losses of classes: softmax cross entropy, a sigmoid per class (fr_bce), focal loss of sigmoids (gamma 2, alpha 0.25),
 * Dice. */
typedef enum fr_train_loss {
    FR_TRAIN_CROSS_ENTROPY,
    FR_TRAIN_BCE,
    FR_TRAIN_FOCAL,
    FR_TRAIN_DICE,
} fr_train_loss;

/* Random changes of training images. LIGHT: shifts and flips that suit the dataset, as PyTorch's recipes do. STRONG
 * adds the add-on augment's, after torchvision's recipe: for classes RandAugment (2 ops of magnitude 9; 8-bit images),
 * random erasing (0.1), mixup (0.2) and cutmix (1); for masks and vectors ColorJitter (0.4 each of brightness, contrast
 * and saturation). */
typedef enum fr_train_augment {
    FR_TRAIN_AUGMENT_NONE,
    FR_TRAIN_AUGMENT_LIGHT,
    FR_TRAIN_AUGMENT_STRONG
} fr_train_augment;

/* Not set. The comment of each field names the value that is used instead. */
enum { FR_TRAIN_AUTO = -1 };

/* Words for checkpoint_segments (see fr_segmentation) and for prefix_parts (the plan chooses): all values differ. */
enum { FR_TRAIN_SQRT = -2, FR_TRAIN_LOG = -3, FR_TRAIN_EACH = -4, FR_TRAIN_PARTS_AUTO = -5 };

/* Parameters are updated inside backward; with a loss scale in a second pass, after one that looks for inf and NaN. */
typedef enum fr_train_fused { FR_TRAIN_FUSED_OFF, FR_TRAIN_FUSED_ON, FR_TRAIN_FUSED_TWO_PASS } fr_train_fused;

/* A dry run instead of a run: its peak, or a table of combinations of switches and of budgets, with the lines that no
 * other beats in both memory and time (ALL), or every one. */
typedef enum fr_train_plan {
    FR_TRAIN_PLAN_OFF,
    FR_TRAIN_PLAN_PEAK,
    FR_TRAIN_PLAN_ALL,
    FR_TRAIN_PLAN_EVERY,
    FR_TRAIN_PLAN_SWITCHES, /* a table of single switches (fr_plan_switches) */
} fr_train_plan;

typedef enum fr_train_amp { FR_TRAIN_AMP_OFF, FR_TRAIN_AMP_FP16, FR_TRAIN_AMP_BF16 } fr_train_amp;

/* Options of a training, in groups. `train_vgg --help all` explains the flags, which set the fields of equal names. A
 * field without a flag says here what it does; a program sets it in fr_train_program.defaults or
 * fr_session_opts.train. Pointers are borrowed. */

/* The network and its trained part. */
typedef struct fr_train_model {
    int64_t depth;
    bool batch_norm;
    bool inplace_abn;          /* batch norm and relu as one in-place op of leaky relu; see fr_model_opts.abn_slope */
    double width;              /* fr_model_opts.width; see fr_train_width_name */
    const char *const *freeze; /* prefixes (fr_module_freeze) */
    int64_t n_freeze;
    const char *const *train_only; /* all but these prefixes are frozen; "head", "bias", "norm": the last layer, all
                                    * biases, all norms; "last=4", "norm=4", "bias=4": of the last 4 layers; "auto", as
                                    * the only one: as much as memory.budget allows */
    int64_t n_train_only;
} fr_train_model;

/* Images and their order. */
typedef struct fr_train_data {
    fr_train_dataset dataset;
    const char *path;    /* --data; NULL: none */
    int64_t image_size;  /* height, and width of squares; AUTO: 224 for an image folder, else 32 */
    int64_t image_width; /* AUTO: image_size. The flag sets both: --image-size 480x640 */
    int64_t classes;     /* of synthetic data; AUTO: 10 */
    fr_train_augment augment;
    const fr_augmentation *augmentation; /* no flag: augmentation used instead of STRONG's; fr_augment makes one.
                                          * NULL: none */
    bool keep_last;         /* no flag: train on the last, smaller batch of an epoch too, instead of dropping it */
    bool balanced_sampling; /* no flag: fr_loader_opts.balanced */
    int64_t workers;
    int64_t prefetch, shuffle_window; /* no flag: fr_loader_opts has both */
    bool exif;            /* turn photos upright; a resumed run keeps the state's choice; states of 0.2.0: false */
    bool pin_memory;      /* without effect on the CPU */
    bool device_prefetch; /* on a GPU, copy the next batch there during a step, into memory of its own */
} fr_train_data;

/* Steps, loss and optimizer. */
typedef struct fr_train_optim {
    int64_t epochs;
    int64_t steps;      /* AUTO: no limit but epochs */
    int64_t batch_size; /* AUTO: the largest that fits into memory.budget */
    fr_train_optimizer optimizer;
    double lr; /* AUTO: fr_train_program.sgd_lr for SGD, 0.001 for the others */
    double momentum, weight_decay;
    bool nesterov; /* no flag: of SGD */
    fr_schedule_kind schedule;
    double warmup;          /* epochs */
    double label_smoothing; /* no flag: share of the target spread evenly over all classes */
    double clip;            /* largest norm of all gradients; AUTO: no limit */
    double head_lr_scale;   /* no flag: factor of the learning rate of the last layer with parameters */
    bool no_norm_decay;     /* no flag: weight_decay is not of norms and biases */
    double ema; /* no flag: fr_optimizer_ema's decay, 4 bytes a parameter; evaluated and exported are the averages; 0:
                 * none */
    fr_train_loss loss;
    const double *class_weights; /* no flag: of cross entropy in training, n_class_weights numbers, one per class, each
                                  * in 0..1e6. NULL: all are 1 */
    int64_t n_class_weights;
    bool balanced_weights; /* no flag: in their place, images / (classes * images of the class) */
    bool per_class; /* no flag: evaluations count for each class what its images or pixels are taken for: accuracy and
                     * intersection over union are printed at the end, the whole matrix is in the report. Pixels of up
                     * to 255 classes are always counted */
    int64_t eval_every; /* epochs; 0: at the end only */
    int64_t patience;   /* no flag: stops after this number of evaluations without improvement of accuracy, or of
                         * loss where there is no accuracy; AUTO: never */
    int64_t seed;
} fr_train_optim;

/* Types of numbers, and their order of addition. */
typedef struct fr_train_precision {
    fr_train_amp amp, half;
    bool master_weights;                 /* with half: fr_optimizer_master_weights */
    double loss_scale;                   /* AUTO: dynamic with --amp=fp16, else none */
    bool deterministic, cudnn_benchmark; /* engines of CUDA convolutions (fr_cudnn_deterministic_set) */
    bool exact_convolutions;             /* fr_exact_convolutions_set */
    bool detect_anomaly;                 /* every step is searched for the first op that made inf or NaN */
} fr_train_precision;

/* Limits of memory, and switches that save it. */
typedef struct fr_train_memory {
    size_t budget;        /* --memory-budget: of reserved bytes, kept to by fitting; SIZE_MAX: none */
    size_t limit;         /* --memory-limit: of reserved bytes; SIZE_MAX: none */
    fr_switches switches; /* workspace_limit SIZE_MAX: the default's; on CUDA, what does not raise the planned peak */
    int64_t accumulate;   /* AUTO: ranks */
    int64_t split_batch;
    bool grad_zero;              /* gradients are kept and cleared between steps instead of released */
    fr_train_fused fused_step;   /* AUTO, as a value of this type: ON on the CPU and on meta where no other option needs
                                  * all gradients at once (accumulate, split_batch, clip, grad_zero, a loss scale) */
    const char *offload;         /* NULL: off; "": a temporary file */
    int64_t checkpoint_segments; /* AUTO: none */
    int64_t prefix_parts;        /* images in a part of the frozen prefix, or FR_TRAIN_PARTS_AUTO; AUTO: all at once */
    bool arena;                  /* reserve exactly the planned peak, at fixed places */
    bool fit_switches;           /* no flag: with budget, choose what each unit saves and recomputes */
    bool calibrate;              /* measure kernel times in the second step */
    const fr_unit_plan *unit_plan; /* how the model's units run; set by fitting, no flag. NULL: none */
} fr_train_memory;

/* Paths of files and folders that a training reads and writes; NULL: none. */
typedef struct fr_train_files {
    const char *weights, *export_weights; /* safetensors files */
    bool keep_best;                       /* export the weights of the best evaluation, not the last ones */
    const char *save, *resume;            /* folders; resume may be "latest": the newest state of `save` */
    int64_t save_every, keep;             /* steps, AUTO: an epoch; states that stay, 0: all */
    const char *const *predict;           /* image files */
    int64_t n_predict;
    const char *report, *log;
    const char *track, *trace; /* of the first steps */
    const char *track_lines;   /* of the run */
    const char *memory_plot;   /* a picture of the step that needs most */
    const char *masks;         /* folder for the masks of `predict` */
} fr_train_files;

typedef struct fr_train_opts {
    fr_train_model model;
    fr_train_data data;
    fr_train_optim optim;
    fr_train_precision precision;
    fr_train_memory memory;
    fr_train_files files;
    fr_device device;     /* (fr_device)FR_TRAIN_AUTO: CUDA if usable, else the CPU */
    int64_t threads;      /* AUTO: as the environment says */
    int64_t ranks;        /* AUTO: number of processes that mpirun started, or 1. 1 ignores mpirun */
    bool check_replicas;  /* no flag: compare the ranks' parameters after each step */
    bool sync_batch_norm; /* fr_share_opts has it */
    fr_train_plan plan;
    bool summary; /* a table of layers instead of a run */
    bool quiet;
} fr_train_opts;

FR_API fr_train_opts fr_train_opts_default(void);

/* ---- flags ------------------------------------------------------------------------------------------------------- */

typedef enum fr_flag_kind {
    FR_FLAG_BOOL,   /* --name and --no-name; a bool */
    FR_FLAG_SET,    /* --name alone; a bool */
    FR_FLAG_INT,    /* int64_t */
    FR_FLAG_SIDES,  /* "480x640", or "224" for a square: int64_t, and an int64_t after it */
    FR_FLAG_REAL,   /* double */
    FR_FLAG_SIZE,   /* size_t */
    FR_FLAG_CHOICE, /* an enum, or any int */
    FR_FLAG_TEXT,   /* const char * */
    FR_FLAG_LIST,   /* all words up to the next flag: const char *const *, and an int64_t after it */
    FR_FLAG_ACT,    /* calls act; stores nothing. Not of a program's own */
} fr_flag_kind;

typedef enum fr_flag_group {
    FR_GROUP_MODEL,
    FR_GROUP_DATA,
    FR_GROUP_TRAINING,
    FR_GROUP_DEVICE,
    FR_GROUP_MEMORY,
    FR_GROUP_FILES,
    FR_GROUP_OUTPUT,
    FR_GROUP_COUNT,
} fr_flag_group;

/* Use of the file or folder that a TEXT names. */
typedef enum fr_flag_file { FR_FILE_NONE, FR_FILE_WRITTEN, FR_FILE_READ } fr_flag_file;

typedef struct fr_flag_choice {
    const char *name; /* NULL ends the list */
    int value;
} fr_flag_choice;

/* A flag of the command line: parsing, --help, the report's "flags" and the comparison at --resume use the rows. An
 * INT, SIDES or REAL of -1, a TEXT of NULL and a SIZE of SIZE_MAX are unset. */
typedef struct fr_flag {
    const char *name; /* without dashes */
    fr_flag_kind kind;
    fr_flag_group group;
    size_t offset;       /* in fr_train_opts; 0 of a program's own */
    const char *value;   /* what stands for the value in --help: "N" */
    const char *help;    /* sentences; the default and the choices are added */
    const char *brief;   /* line in `--help`; NULL: only `--help all` lists the flag */
    const char *unset;   /* the default in words, where the field's is FR_TRAIN_AUTO, NULL or SIZE_MAX */
    const char *implied; /* the value of the flag alone; others are written --name=VALUE. NULL: a value must follow */
    int64_t least, most; /* INT, SIDES */
    double real_least, below;      /* REAL: real_least <= value < below */
    const fr_flag_choice *choices; /* CHOICE; INT and REAL: words beside the numbers */
    void (*act)(fr_train_opts *o); /* FR_FLAG_ACT; of other kinds: called where the flag is given, or NULL */
    fr_flag_file file;             /* a TEXT's file: input, output or none. No output may be another flag's file */
    bool per_run;                  /* the value belongs to the run: a resumed run compares it with the state's */
    const char *if_missing;        /* value assumed for states written before the flag existed (per_run) */
    void *own;                     /* of a program's flag: its variable, which holds the default */
    const char *field;             /* in fr_train_opts, for sentences; NULL: the flag's name with '_' for '-' */
} fr_flag;

/* ---- programs ---------------------------------------------------------------------------------------------------- */

enum { FR_TRAIN_NAME_BYTES = 64, FR_METRICS_MAX = 8 };

/* The mean loss of a batch, a scalar f32 with a graph, from the network's results y and the targets as the loader gives
 * them (fr_loader_next), on the run's device. Made of ops: plans run it on FR_META. */
typedef fr_status fr_loss_fn(void *ctx, fr_tensor *y, fr_tensor *targets, fr_tensor **loss);
/* Writes the means of further measurements of a test batch. y is f32; both are on the run's device, where no tensor is
 * to be made: fr_tensor_data on the CPU, else fr_tensor_to_host. Never called on FR_META. */
typedef fr_status fr_metrics_fn(void *ctx, fr_tensor *y, fr_tensor *targets, double *values);

/* Appends "_w0.5" to the name of a network for width 0.5, nothing for 1: the form that fr_model reads. A program
 * without fr_model builds the network at opts->width and calls this function, too; else --width is refused. */
FR_API void fr_train_width_name(const fr_train_opts *opts, char name[FR_TRAIN_NAME_BYTES]);

/* Description of a training program. */
typedef struct fr_train_program {
    const char *name;            /* "train_vgg" */
    const char *summary;         /* one line without a full stop, for NAME in --help */
    const char *description;     /* sentences for DESCRIPTION in --help */
    const char *const *examples; /* command lines without the program's path and a comment, in pairs; ends with NULL */
    fr_train_opts defaults;
    double sgd_lr;
    const char *depths;       /* values of --depth, for people: "11, 13, 16 and 19"; NULL: not in --help */
    bool batch_norm_optional; /* false: --no-batch-norm is refused */

    /* Opens a split of the digits. NULL: the program has none, and its users name a data set. */
    fr_status (*digits)(fr_split split, fr_dataset **out);
    /* Builds the model on opts->device for `classes` classes of RGB images and writes its name ("vgg16_bn");
     * opts->image_size is resolved. FR_EINVAL: the flags ask for something that does not exist (a usage error). */
    fr_status (*model)(const fr_train_opts *opts, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out);

    /* Segmentation of images without masks: the number of pixel classes of a data set with `classes` image classes; and
     * the classes of an image's pixels from the image (height x width x channels, 0..1) and its label. Both NULL:
     * none. */
    int64_t (*pixel_classes)(int64_t classes);
    void (*pixel_target)(const float *image, int64_t height, int64_t width, int64_t channels, int64_t label,
                         int64_t *target);

    /* NULL: fr_train_opts.optim.loss of classes, mean squared error (fr_mse) of vectors. */
    fr_loss_fn *loss;
    /* The values of an evaluation are the batches' weighted by their images: "test/NAME" in logs, "metrics" in the
     * report. NULL: none. */
    fr_metrics_fn *metrics;
    const char *const *metric_names;
    int64_t n_metrics; /* at most FR_METRICS_MAX */
    void *ctx;         /* of both */

    const fr_flag *flags; /* of its own; ends with a NULL name. NULL: none. Names, helps and `own` are needed */
} fr_train_program;

/* Iterates over the flags of a program (NULL: those of all programs): the trainers', the add-ons', then the program's
 * own. f NULL: the first; NULL after the last. A row without a help has no flag: its field is the API's alone. */
FR_API const fr_flag *fr_flag_next(const fr_train_program *p, const fr_flag *f);
/* The flag with the name name[0..n); *no: `name` is "no-" and the name of a BOOL, or of a CHOICE whose `implied` is
 * "on". NULL: none. */
FR_API const fr_flag *fr_flag_named(const fr_train_program *p, const char *name, size_t n, bool *no);
/* The flag's value in o, as a command line has it; "" if unset. Returns buf. */
enum { FR_FLAG_TEXT_BYTES = 64 };
FR_API const char *fr_flag_text(const fr_flag *f, const fr_train_opts *o, char buf[FR_FLAG_TEXT_BYTES]);
/* FR_EINVAL if the number of an INT, SIDES, REAL or SIZE is out of range. text: the value as the user wrote it. */
FR_API fr_status fr_flag_in_range(const fr_flag *f, const void *number, const char *text);
/* The flag's variable. */
static inline void *fr_flag_place(const fr_flag *f, fr_train_opts *o) {
    return f->own != NULL ? f->own : (char *)o + f->offset;
}

/* ---- tables of add-ons (addon.h) --------------------------------------------------------------------------------- */

/* Images for --dataset NAME, a row of fr_addon.sources: opens a split of what opts->data names. */
typedef struct fr_train_source {
    const char *name;
    fr_status (*open)(const fr_train_opts *opts, fr_split split, fr_dataset **out);
} fr_train_source;

/* Moments of a run. */
typedef enum fr_run_event {
    FR_RUN_SETUP,      /* before the model is made, on the run's device or, for a plan, on meta */
    FR_RUN_BEGIN,      /* after the model is made: steps and epochs are known */
    FR_RUN_POSITION,   /* after loading a state, if there is one: the first step is known */
    FR_RUN_STEP,       /* after each step: its numbers are known */
    FR_RUN_EVALUATION, /* after each evaluation: its numbers are known */
    FR_RUN_EPOCH,      /* after each epoch and its evaluation */
    FR_RUN_STEPS_END,  /* after the last step */
    FR_RUN_END,        /* after everything else: the numbers are final */
} fr_run_event;

/* A run as its views see it. */
typedef struct fr_run {
    const fr_train_opts *opts;       /* resolved: device, image_size, classes and lr hold values */
    const char *model;               /* the network's name */
    bool planned;                    /* the numbers are a plan's, on meta */
    int64_t position;                /* steps done */
    fr_log_step step;                /* the last step whose numbers are known */
    double test_accuracy, test_loss; /* of the last evaluation; NAN: none */
    const double *metric;            /* means of fr_train_program.metrics, valid during the event */
    const char *const *metric_names;
    int64_t n_metrics;
} fr_run;

struct fr_event;

/* A view watches a run and writes what it sees: one of fr_addon.views. */
typedef struct fr_view {
    size_t bytes; /* of its state, which begins as zeroes; 0: none */
    /* Opens its file before anything runs, so that a place that cannot be written is known then. FR_END: the flags do
     * not ask for this view. NULL: there is nothing to open. */
    fr_status (*begin)(void *state, const fr_run *r);
    fr_status (*event)(void *state, const fr_run *r, fr_run_event e); /* a negative status ends the run */
    void (*end)(void *state); /* releases, also after a begin that failed. NULL: nothing to release */
    /* Called at each event of the device's memory (frugal/events.h) between FR_RUN_SETUP and FR_RUN_STEPS_END, which
     * the view then gets even if the run has failed. NULL: the view does not listen. */
    void (*on_memory)(void *state, const struct fr_event *e);
    bool survives_errors; /* an FR_EIO after FR_RUN_POSITION is reported once; the run fails at its end */
} fr_view;

/* The program around a run: where a run prints, and what may end the run. fr_train_main passes the terminal's. */
typedef struct fr_train_shell {
    FILE *out, *err; /* results and progress; failures and advice */
    /* Reads the command line into the defaults. FR_END: there is nothing to run; FR_EINVAL: wrong flags. */
    fr_status (*read)(void *ctx, fr_train_opts *opts);
    void (*training)(void *ctx, bool begins); /* around steps; NULL: nothing to do */
    int (*interrupted)(void *ctx);            /* the signal that ends the run after the step, or 0. NULL: none */
    void *ctx;
} fr_train_shell;
/* Runs the command that the options ask for, on the calling thread: summary, plan, prediction or training. argv: the
 * command line, which says what was given. Returns the exit status of fr_train_main; 2 for NULL, with a sentence. */
FR_API int fr_train_run(const fr_train_program *program, int argc, char *const *argv, const fr_train_shell *shell);

/* Reads the flags, trains, reports. Returns the exit status: 0, 1 after a failure, 2 after a usage error, or 128 plus
 * the signal's number when a signal ended the run early. Sentences go to stderr, everything else to stdout. A command
 * in argv[1] ("plan") is replaced by the flag that asks for the same ("--plan"). */
FR_API int fr_train_main(const fr_train_program *program, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
