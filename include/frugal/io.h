/* io.h - files: weights and training states.
 *
 * A file appears under its name complete and on disk, or not at all: the library writes a temporary file in the
 * folder, syncs and renames the file, and syncs the folder. A failed write leaves the older file unchanged. A failed
 * read changes nothing in the program. docs/io.md has the formats. */
#ifndef FRUGAL_IO_H
#define FRUGAL_IO_H

#include <frugal/data.h>
#include <frugal/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights: safetensors ----------------------------------------------------------------------------------- */

/* Layout of tensors in a file. Both layouts use equal names. */
typedef enum fr_weights_layout {
    FR_WEIGHTS_AUTO,   /* load: as in the file (metadata "frugal.layout"), else TORCH; save: TORCH */
    FR_WEIGHTS_TORCH,  /* PyTorch, torchvision: every tensor of rank 4 is [K, C, R, S], and the columns of a Linear
                        * after a Flatten come in C, H, W order */
    FR_WEIGHTS_FRUGAL, /* as in memory: [K, R, S, C], columns in H, W, C order */
} fr_weights_layout;

/* Description of a network in a file of weights, sufficient for a prediction: metadata "frugal.network", one JSON
 * object, also in a file of the network (.onnx). Zeroed: empty. */
enum { FR_WEIGHTS_NAME_BYTES = 64 };
typedef struct fr_weights_info {
    char model[FR_WEIGHTS_NAME_BYTES]; /* for fr_model (models.h): "resnet18_small" */
    char head[FR_WEIGHTS_NAME_BYTES];  /* "", "global" or "torchvision": fr_head */
    int64_t classes, channels, height, width;
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* [channels], of values 0..1 */
    char **class_name;                                  /* [classes]; NULL: they have none */
} fr_weights_info;

/* *out gets the file's description, and may hold an earlier one; clear frees the members. FR_EFORMAT: no description,
 * or a wrong one; the sentence names the key. Else as fr_weights_load. */
FR_API fr_status fr_weights_info_read(const char *path, fr_weights_info *out);
FR_API void fr_weights_info_clear(fr_weights_info *info);

/* Options of weights files. The height and width before the Flatten of a Linear come from the module: an
 * AdaptiveAvgPool2d fixes the size; ReLU, Dropout, Identity and BatchNorm2d keep the size; all further layers hide
 * the size. With a hidden size, flatten_height and flatten_width are required: FR_EINVAL names the Linear. */
typedef struct fr_weights_opts {
    fr_weights_layout layout FR_DEFAULT(FR_WEIGHTS_AUTO);
    bool strict FR_DEFAULT(true); /* load: the file has exactly the module's names */
    int64_t flatten_height FR_DEFAULT(0), flatten_width FR_DEFAULT(0); /* 0: as the module tells */
    /* load: a dotted prefix ("fc"); the module's tensors below the prefix stay unchanged. NULL or "": none */
    const char *skip FR_DEFAULT(NULL);
    const fr_weights_info *info FR_DEFAULT(NULL); /* save: is written too; NULL: nothing is said */
} fr_weights_opts;
#define FR_WEIGHTS_DEFAULTS  .strict = true
#define FR_WEIGHTS_OPTS(...) FR_OPTS(fr_weights_opts, FR_WEIGHTS_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_weights_opts, FR_WEIGHTS_OPTS())

/* Writes parameters and buffers under their paths, without conversion. opts NULL: defaults. Holds a single tensor on
 * the host at a time. errors: FR_EIO (disk full, read-only folder: the older file stays), FR_EUNSUPPORTED on meta,
 * FR_ENOMEM. */
FR_API fr_status fr_weights_save(fr_module *m, const char *path, const fr_weights_opts *opts);

/* Fills the module. Float types are converted to the module's, "num_batches_tracked" from any type; other types must be
 * equal. A file without "num_batches_tracked" (older PyTorch) fits: the module's value stays. FR_EINVAL lists missing
 * and unexpected names, FR_ESHAPE and FR_EDTYPE wrong tensors. The whole file is read to the host and checked before
 * the module's first byte changes. On FR_META only names, shapes and types are checked. */
FR_API fr_status fr_weights_load(fr_module *m, const char *path, const fr_weights_opts *opts);

/* ---- training state ----------------------------------------------------------------------------------------- */

/* A setting of a run: "batch_size" "64", "switches" "rebuild". With must_match, a state with a different value is
 * refused; without, fr_state.changed gets the difference. may_lack: a state of an older program, without the setting,
 * is accepted. if_missing: the value to assume then, or NULL. */
typedef struct fr_state_setting {
    const char *name, *value; /* UTF-8 */
    bool must_match, may_lack;
    const char *if_missing;
} fr_state_setting;

/* A setting with a value different from the saved state's. */
typedef void fr_state_changed_fn(void *ctx, const fr_state_setting *now, const char *saved);

/* A number of the program's own; NaN and infinities are kept too. */
typedef struct fr_state_number {
    const char *name;
    double *value;
    bool may_lack; /* load: unchanged if the state lacks the number */
} fr_state_number;

/* Parts of a training state. Save reads the parts, load fills the same parts. The thread's random generator belongs to
 * every state. */
typedef struct fr_state {
    fr_module *model;          /* all parameters and buffers */
    fr_optimizer *optimizer;   /* NULL: not saved, not restored */
    fr_grad_scaler *scaler;    /* scale and growth tracker; NULL also for a disabled scaler. A state without a scale
                                * leaves the scaler unchanged */
    fr_loader *loader;         /* the position; NULL */
    const fr_dataset *dataset; /* only compared: size, classes, labels, first image; NULL */
    const char *model_name;    /* only compared: "vgg16_bn"; NULL */
    int64_t step, epoch;
    fr_schedule schedule;
    const fr_state_setting *settings;
    size_t n_settings;
    const fr_state_number *numbers; /* load: each must be in the state, or may lack */
    size_t n_numbers;
    uint64_t run; /* the training's number in all states; 0: none. Save counts and removes only states with this
                   * number; load reads the number */
    fr_state_changed_fn *changed; /* load: called for each changed setting; NULL */
    void *changed_ctx;
} fr_state;

enum { FR_STATE_PATH_BYTES = 4096 };

/* Writes <dir>/state-<serial>-step-<step>.safetensors, serial: the highest in the folder plus 1. Then removes all but
 * the `keep` newest states of the run (0: keeps all), and incomplete files of killed runs. Makes dir if the parent
 * exists. path: FR_STATE_PATH_BYTES, or NULL. errors: as fr_weights_save; older states stay valid. A folder belongs
 * to a single run at a time. */
FR_API fr_status fr_state_save(const char *dir, const fr_state *state, int64_t keep, char *path);

/* Called for a skipped file, with the reason. */
typedef void fr_state_skipped_fn(void *ctx, const char *path, const char *reason);

/* Finds the newest state in dir with a right checksum; path: FR_STATE_PATH_BYTES. Damaged states are skipped and
 * reported to fn (or NULL). FR_EIO if the folder cannot be read or holds no state; FR_EFORMAT if all are damaged:
 * names the newest. */
FR_API fr_status fr_state_find_latest(const char *dir, char *path, fr_state_skipped_fn *fn, void *ctx);

/* Restores a state: the training continues at the saved step with equal numbers. Memory switches, device and number
 * of threads may differ. FR_EFORMAT: damaged, or no state. FR_EDATA: of another dataset, so start anew. FR_EINVAL: a
 * different model, optimizer or setting. Sentences have both sides. A failure changes nothing, except that a failing
 * copy to the device leaves the model undefined. */
FR_API fr_status fr_state_load(const char *path, fr_state *state);

/* ---- other formats ------------------------------------------------------------------------------------------ */

/* A file format for networks with weights: a row of fr_addon.files. A NULL ending ends the rows. */
typedef struct fr_network_file {
    const char *ending; /* ".onnx" */
    /* path NULL: only checks whether the network can be written, also on meta. info is written, too; NULL: nothing */
    fr_status (*save)(fr_module *m, const char *path, const fr_weights_info *info);
    /* The file's network for images of a size, with its weights, which meta does not keep. NULL: cannot be read. */
    fr_status (*load)(const char *path, fr_device device, int64_t height, int64_t width, fr_module **out);
    /* *text, freed by the caller, is the description in the file (weights.h); NULL stays without one. */
    fr_status (*info)(const char *path, char **text);
} fr_network_file;

/* ---- logs --------------------------------------------------------------------------------------------------- */

/* A step of training. */
typedef struct fr_log_step {
    int64_t step, epoch;
    double loss, lr;
    double scale; /* of the loss; 1 without a scaler */
    bool skipped; /* the optimizer's step, because of inf or NaN */
    double images_per_second;
    uint64_t allocated, peak; /* bytes after the step, and at most so far */
} fr_log_step;

#ifdef __cplusplus
}
#endif
#endif
