/* io.h - files: weights, training states, logs.
 *
 * A file that this library writes appears under its name complete and on disk, or not at all: it is written under a
 * temporary name in the same folder, synced, renamed, and the folder is synced. A failed write leaves the older file as
 * it was. A failed read changes nothing in the program. docs/io.md has the formats. */
#ifndef FRUGAL_IO_H
#define FRUGAL_IO_H

#include <frugal/data.h>
#include <frugal/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights: safetensors ----------------------------------------------------------------------------------- */

/* How tensors lie in the file. Names are the same in both. */
typedef enum fr_weights_layout {
    FR_WEIGHTS_AUTO,   /* load: what the file says (metadata "frugal.layout"), else TORCH; save: TORCH */
    FR_WEIGHTS_TORCH,  /* PyTorch, torchvision: every tensor of rank 4 is [K, C, R, S], and the columns of a Linear
                        * behind  a Flatten come in C, H, W order */
    FR_WEIGHTS_FRUGAL, /* as in memory: [K, R, S, C], columns in H, W, C order */
} fr_weights_layout;

/* Description of a network in a file of weights, complete enough for a prediction: metadata "frugal.network", one JSON
 * object. Zeroed it says nothing. */
enum { FR_WEIGHTS_NAME_BYTES = 64 };
typedef struct fr_weights_info {
    char model[FR_WEIGHTS_NAME_BYTES]; /* for fr_model (models.h): "resnet18_small" */
    char head[FR_WEIGHTS_NAME_BYTES];  /* "", "global" or "torchvision": fr_head */
    int64_t classes, channels, height, width;
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* [channels], of values 0..1 */
    char **class_name;                                  /* [classes]; NULL: they have none */
} fr_weights_info;

/* *out, which an earlier read may have filled, is the file's; clear frees what it holds. FR_EFORMAT: the file says
 * nothing of its network, or nonsense; the sentence names the key. Else as fr_weights_load. */
FR_API fr_status fr_weights_info_read(const char *path, fr_weights_info *out);
FR_API void fr_weights_info_clear(fr_weights_info *info);

/* Options of weights files. The height and width before the Flatten of a Linear are read off the module, layers in the
 * order of the tree: an AdaptiveAvgPool2d fixes the size, ReLU, Dropout, Identity and BatchNorm2d keep it, everything
 * else hides it. Where it is hidden, flatten_height and flatten_width must say it: FR_EINVAL names the Linear. */
typedef struct fr_weights_opts {
    fr_weights_layout layout FR_DEFAULT(FR_WEIGHTS_AUTO);
    bool strict FR_DEFAULT(true); /* load: the file has all of the module's names and no others */
    int64_t flatten_height FR_DEFAULT(0), flatten_width FR_DEFAULT(0); /* 0: as the module tells */
    /* load: a dotted prefix ("fc"); the module's tensors below it stay as they are, whatever the file has there. NULL
     * or "": none */
    const char *skip FR_DEFAULT(NULL);
    const fr_weights_info *info FR_DEFAULT(NULL); /* save: is written too; NULL: nothing is said */
} fr_weights_opts;
#define FR_WEIGHTS_DEFAULTS  .strict = true
#define FR_WEIGHTS_OPTS(...) FR_OPTS(fr_weights_opts, FR_WEIGHTS_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_weights_opts, FR_WEIGHTS_OPTS())

/* Parameters and buffers under their paths, each in its type. opts NULL: defaults. Holds one tensor on the host at a
 * time. errors: FR_EIO (disk full, read-only folder: the older file stays), FR_EUNSUPPORTED on meta, FR_ENOMEM. */
FR_API fr_status fr_weights_save(fr_module *m, const char *path, const fr_weights_opts *opts);

/* Fills the module. Float types are converted to the module's; other
 * types must be equal. A file without "num_batches_tracked" (older PyTorch) fits: the module's stays.
 * FR_EINVAL lists the missing and the unexpected names, FR_ESHAPE and FR_EDTYPE the tensors that do not fit. Everything
 * is read and checked before the first byte of the module changes; the file's content is on the host meanwhile. */
FR_API fr_status fr_weights_load(fr_module *m, const char *path, const fr_weights_opts *opts);

/* ---- training state ----------------------------------------------------------------------------------------- */

/* Something a run is asked for: "batch_size" "64", "switches" "rebuild". With must_match, a state saved under another
 * value is refused; other differences are told to fr_state's changed. may_lack: a state without the setting, of a
 * program that did not have it yet, is taken all the same. lacking: what such a state is told to have, or NULL. */
typedef struct fr_state_setting {
    const char *name, *value; /* UTF-8 */
    bool must_match, may_lack;
    const char *lacking;
} fr_state_setting;

/* A setting that has another value now than when the state was saved. */
typedef void fr_state_changed_fn(void *ctx, const fr_state_setting *now, const char *saved);

/* A number of the program's own; NaN and infinities are kept too. */
typedef struct fr_state_number {
    const char *name;
    double *value;
    bool may_lack; /* load: in a state without it the value stays */
} fr_state_number;

/* Parts of a training state. Save reads the parts, load fills the same parts. The thread's random generator belongs to
 * every state. */
typedef struct fr_state {
    fr_module *model;          /* all parameters and buffers */
    fr_optimizer *optimizer;   /* NULL: not saved, not restored */
    fr_grad_scaler *scaler;    /* scale and growth tracker; NULL also for a scaler that is switched off. A state without
                                * one leaves the scaler as it is */
    fr_loader *loader;         /* the position; NULL */
    const fr_dataset *dataset; /* only compared: size, classes, labels, first image; NULL */
    const char *model_name;    /* only compared: "vgg16_bn"; NULL */
    int64_t step, epoch;
    fr_schedule schedule;
    const fr_state_setting *settings;
    size_t n_settings;
    const fr_state_number *numbers; /* load: each must be in the state, or may lack */
    size_t n_numbers;
    uint64_t run; /* a number that all states of one training have; 0: none. Save then counts and removes states of this
                   * training only; load takes the state's */
    fr_state_changed_fn *changed; /* load: called for each setting that changed; NULL */
    void *changed_ctx;
} fr_state;

enum { FR_STATE_PATH_BYTES = 4096 };

/* Writes <dir>/state-<serial>-step-<step>.safetensors, serial one above the highest in the folder, and then removes all
 * but the `keep` newest of this run (0: keeps all) and what killed runs left half written. dir is made if its parent
 * exists. path: FR_STATE_PATH_BYTES, or NULL. errors: as fr_weights_save; the states that were there stay, and can be
 * loaded. A folder belongs to one run at a time. */
FR_API fr_status fr_state_save(const char *dir, const fr_state *state, int64_t keep, char *path);

/* Called for a file that is passed over, with the sentence that says why. */
typedef void fr_state_skipped_fn(void *ctx, const char *path, const char *reason);

/* The newest state in dir whose checksum is right, in path (FR_STATE_PATH_BYTES). Damaged and half-written ones are
 * passed over and told to fn (or NULL). FR_EIO if the folder cannot be read or holds no state; FR_EFORMAT if all are
 * damaged, naming the newest. */
FR_API fr_status fr_state_find_latest(const char *dir, char *path, fr_state_skipped_fn *fn, void *ctx);

/* The value of a setting (fr_state.settings) that the state was saved with; "" if it has none of that name, or it does
 * not fit into `bytes`. Reads the header alone. FR_EIO, FR_EFORMAT. */
FR_API fr_status fr_state_setting_read(const char *path, const char *name, char *value, size_t bytes);

/* Two datasets with the same text are taken for the same: "1347 images of 8 x 8 x 1, 10 classes, labels 1a2b3c4d, first
 * image 5e6f7a8b". Reads one image. errors: what reading it says. */
enum { FR_FINGERPRINT_BYTES = 200 };
FR_API fr_status fr_dataset_fingerprint(const fr_dataset *d, char text[FR_FINGERPRINT_BYTES]);

/* Makes dir, unless it is there, and makes that durable. FR_EIO. */
FR_API fr_status fr_state_folder_make(const char *dir);

typedef struct fr_state_folder {
    size_t states;
    char newest_model[80]; /* what the newest says of itself; "" if it cannot be read */
    int64_t newest_step;
} fr_state_folder;
/* Lists the states in dir. Reads the names of files and one header. FR_EIO. */
FR_API fr_status fr_state_folder_get(const char *dir, fr_state_folder *out);

/* A number for fr_state.run from the model's name and the settings that must match, never 0: trainings that differ in
 * one have others, and the same training has the same again, so that its states are the same bytes. */
FR_API uint64_t fr_state_run_of(const fr_state *state);

/* Continues where the state was saved: at the same step with the same numbers. Memory switches, device and number of
 * threads may differ. FR_EFORMAT: damaged, or no state. FR_EINVAL: of another model, dataset, optimizer or setting; the
 * sentence has both. On failure nothing has changed (but a device that fails while the model is copied to it leaves the
 * model undefined). */
FR_API fr_status fr_state_load(const char *path, fr_state *state);

/* ---- other formats ------------------------------------------------------------------------------------------ */

/* A format of files that hold a network with its weights: a row of fr_addon.files, which ends with a NULL ending. */
typedef struct fr_network_file {
    const char *ending; /* ".onnx" */
    /* path NULL: nothing is written, only looked whether it could be, of a network on meta, too. */
    fr_status (*save)(fr_module *m, const char *path);
} fr_network_file;
/* *out = the format by a path's ending; NULL: none. FR_EUNSUPPORTED: it is of an add-on that was not built. */
FR_API fr_status fr_network_file_of(const char *path, const fr_network_file **out);

/* ---- logs --------------------------------------------------------------------------------------------------- */

/* One step of training. */
typedef struct fr_log_step {
    int64_t step, epoch;
    double loss, lr;
    double scale; /* of the loss; 1 without a scaler */
    bool skipped; /* the optimizer's step, because of inf or NaN */
    double images_per_second;
    uint64_t allocated, peak; /* bytes after the step, and at most so far */
} fr_log_step;

typedef struct fr_log_opts {
    const char *jsonl FR_DEFAULT(NULL); /* file: one JSON object per line; NULL: none */
    const char *csv FR_DEFAULT(NULL);   /* file: a line of names, then one line per step; NULL: none */
    int64_t resume FR_DEFAULT(-1); /* the step a run continues from: later lines are cut off the files; -1: new files */
} fr_log_opts;
#define FR_LOG_DEFAULTS  .resume = -1
#define FR_LOG_OPTS(...) FR_OPTS(fr_log_opts, FR_LOG_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_log_opts, FR_LOG_OPTS())

typedef struct fr_log fr_log;

/* errors: FR_EIO names the file. */
FR_API fr_status fr_log_open(const fr_log_opts *opts, fr_log **out);
FR_API void fr_log_close(fr_log **log);

/* A line in each file, complete when the call returns. After FR_EIO (disk full) the files end with the last complete
 * line, and later calls may succeed. */
FR_API fr_status fr_log_write(fr_log *log, const fr_log_step *step);

/* A number of another kind, for JSONL: "test/accuracy". */
FR_API fr_status fr_log_scalar(fr_log *log, const char *tag, int64_t step, double value);

#ifdef __cplusplus
}
#endif
#endif
