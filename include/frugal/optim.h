/* optim.h - optimizers, learning-rate schedules, gradient clipping and loss scaling, with PyTorch's formulas and
 * defaults. */
#ifndef FRUGAL_OPTIM_H
#define FRUGAL_OPTIM_H

#include <frugal/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers ------------------------------------------------------------------------------------------------- */

typedef struct fr_optimizer fr_optimizer;

typedef struct fr_sgd_opts {
    double lr FR_DEFAULT(1e-3), momentum FR_DEFAULT(0), dampening FR_DEFAULT(0), weight_decay FR_DEFAULT(0);
    bool nesterov FR_DEFAULT(false), maximize FR_DEFAULT(false);
} fr_sgd_opts;
#define FR_SGD_DEFAULTS  .lr = 1e-3
#define FR_SGD_OPTS(...) FR_OPTS(fr_sgd_opts, FR_SGD_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_sgd_opts, FR_SGD_OPTS())

typedef struct fr_adam_opts {
    double lr FR_DEFAULT(1e-3), beta1 FR_DEFAULT(0.9), beta2 FR_DEFAULT(0.999), eps FR_DEFAULT(1e-8);
    double weight_decay FR_DEFAULT(0);
    bool maximize FR_DEFAULT(false);
} fr_adam_opts;
#define FR_ADAM_DEFAULTS  .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
#define FR_ADAM_OPTS(...) FR_OPTS(fr_adam_opts, FR_ADAM_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_adam_opts, FR_ADAM_OPTS())

/* Options of AdamW: the fields of fr_adam_opts; weight decay is on by default. */
typedef struct fr_adamw_opts {
    double lr FR_DEFAULT(1e-3), beta1 FR_DEFAULT(0.9), beta2 FR_DEFAULT(0.999), eps FR_DEFAULT(1e-8);
    double weight_decay FR_DEFAULT(1e-2);
    bool maximize FR_DEFAULT(false);
} fr_adamw_opts;
#define FR_ADAMW_DEFAULTS  FR_ADAM_DEFAULTS, .weight_decay = 1e-2
#define FR_ADAMW_OPTS(...) FR_OPTS(fr_adamw_opts, FR_ADAMW_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_adamw_opts, FR_ADAMW_OPTS())

typedef struct fr_rmsprop_opts {
    double lr FR_DEFAULT(1e-2), alpha FR_DEFAULT(0.99), eps FR_DEFAULT(1e-8), momentum FR_DEFAULT(0);
    double weight_decay FR_DEFAULT(0);
    bool centered FR_DEFAULT(false), maximize FR_DEFAULT(false);
} fr_rmsprop_opts;
#define FR_RMSPROP_DEFAULTS  .lr = 1e-2, .alpha = 0.99, .eps = 1e-8
#define FR_RMSPROP_OPTS(...) FR_OPTS(fr_rmsprop_opts, FR_RMSPROP_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_rmsprop_opts, FR_RMSPROP_OPTS())

/* Creates an optimizer of all parameters of a module (retained). One pass per parameter, no temporaries; state
 * (momentum; two moments) is made at the first step. opts NULL: defaults. *out is NULL or an optimizer: on success the
 * old optimizer is released and replaced, on failure *out is untouched. FR_EINVAL names an option out of range. */
FR_API fr_status fr_sgd(fr_module *m, const fr_sgd_opts *opts, fr_optimizer **out);
FR_API fr_status fr_adam(fr_module *m, const fr_adam_opts *opts, fr_optimizer **out);
FR_API fr_status fr_adamw(fr_module *m, const fr_adamw_opts *opts, fr_optimizer **out);
/* Adam with moments of 8 bits, the formula and the dynamic map of bitsandbytes' Adam8bit (Dettmers et al. 2021, arXiv
 * 2110.02861): a parameter of n elements has 2 n bytes of codes and 8 bytes of scales per block of 256, and the
 * optimizer 2 KiB of maps. Parameters below 4,096 elements, and of f64, keep Adam's moments. Weight decay is decoupled
 * as in AdamW. A block shares the scale, so an inf gradient spoils the whole block. */
FR_API fr_status fr_adam8(fr_module *m, const fr_adam_opts *opts, fr_optimizer **out);
/* torch.optim.RMSprop (Hinton's lecture 6e; centered: Graves 2013, arXiv 1308.0850), with g' = g + weight_decay p:
 *     v = alpha v + (1 - alpha) g'^2     a = a + (1 - alpha) (g' - a)     u = g' / (sqrt(v - a^2) + eps)
 *     b = momentum b + u                 p = p - lr b
 * where a is 0 unless centered, and b is u without momentum. v, a and b are f32 for half parameters. A v - a^2 below 0
 * by rounding counts as 0; in PyTorch the parameter becomes NaN. */
FR_API fr_status fr_rmsprop(fr_module *m, const fr_rmsprop_opts *opts, fr_optimizer **out);
FR_API void fr_optimizer_release(fr_optimizer **o);

/* Mixed precision with half parameters (Micikevicius et al. 2018, arXiv 1710.03740; APEX's O2, `master_weights=True`):
 * each f16 or bf16 parameter of n elements has a master of 4 n bytes in the optimizer's state, copied at the first
 * step. An update reads the half gradient, moves the master and SGD's momentum in f32, and rounds the result into the
 * parameter, so small updates add up. f32 parameters do not change. Load weights before the first step; later the
 * masters count. FR_EUSAGE: the optimizer has state. */
FR_API fr_status fr_optimizer_master_weights(fr_optimizer *o, bool on);

/* A parameter group (torch.optim's param_groups): the parameters of `select` learn with lr * lr_factor and
 * weight_decay. A negative field changes nothing, so groups may overlap. */
typedef struct fr_param_group_opts {
    double lr_factor FR_DEFAULT(-1), weight_decay FR_DEFAULT(-1);
} fr_param_group_opts;
#define FR_PARAM_GROUP_DEFAULTS  .lr_factor = -1, .weight_decay = -1
#define FR_PARAM_GROUP_OPTS(...) FR_OPTS(fr_param_group_opts, FR_PARAM_GROUP_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_param_group_opts, FR_PARAM_GROUP_OPTS())
/* select: "bias" all biases, "norm" the parameters of all norms, else a parameter's or layer's path. Between steps.
 * FR_EINVAL: nothing has that name, a field is inf or NaN, or more than 32 different pairs. */
FR_API fr_status fr_optimizer_group(fr_optimizer *o, const char *select, const fr_param_group_opts *opts);

/* Exponential moving average of the parameters (torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn): after
 * each step that moves a parameter p, ema += (1 - decay) (p - ema), and ema = p after the first one. Stored as
 * "<path>.ema" in the optimizer's state, 4 bytes per element (f64: 8), plus at most 256 KiB in total. For half
 * parameters, the average is of the f32 master. Buffers, such as running statistics, are not averaged. 0 < decay < 1,
 * or 0: none. FR_EUSAGE: the optimizer has state. */
FR_API fr_status fr_optimizer_ema(fr_optimizer *o, double decay);
/* Exchanges parameters and averages; a second call exchanges back. Between steps. FR_EUSAGE: a step in
 * between, or a half parameter without a master, because the exchange would round. */
FR_API fr_status fr_optimizer_ema_swap(fr_optimizer *o);

/* Updates every parameter that has a gradient; frees the state of frozen parameters (fr_module_freeze), so an unfrozen
 * parameter starts with momentum, moments and step count 0. Adam's bias correction counts steps per parameter, as
 * PyTorch does. */
FR_API fr_status fr_optimizer_step(fr_optimizer *o);
FR_API void fr_optimizer_zero_grad(fr_optimizer *o);         /* gradients are released (set_to_none) */
FR_API void fr_optimizer_set_lr(fr_optimizer *o, double lr); /* inf or NaN: the next step is FR_EINVAL */
FR_API int64_t fr_optimizer_steps(const fr_optimizer *o);    /* steps with an update */

FR_API const char *fr_optimizer_name(const fr_optimizer *o); /* "sgd", "rmsprop", "adam", "adamw", "adam8" */

/* Updates each parameter in backward, as soon as the gradient is complete, and frees the gradient. A step begins with
 * the first update between fr_step_begin and fr_step_end; without fr_step_begin, fr_backward returns FR_EUSAGE, as for
 * a parameter's second update in a step (accumulation). Behind an update fr_clip_grad_norm and fr_grad_scaler_unscale
 * return FR_EUSAGE. A hook of the program that keeps a gradient keeps it from the fused update. A loss scale takes two
 * passes: a session makes them (fr_train_opts.memory.fused_step). */
FR_API fr_status fr_optimizer_fuse(fr_optimizer *o, bool on);

/* torch.nn.utils.clip_grad_norm_: all gradients times min(1, max_norm / (norm + 1e-6)); *norm is the norm before, or
 * NULL. Where the norm is NaN all gradients become NaN. */
FR_API fr_status fr_clip_grad_norm(fr_module *m, double max_norm, double *norm);

/* ---- schedules: lr as a function of the step -------------------------------------------------------------------- */

typedef enum fr_schedule_kind { FR_SCHEDULE_CONSTANT, FR_SCHEDULE_STEP, FR_SCHEDULE_COSINE } fr_schedule_kind;

typedef struct fr_schedule {
    fr_schedule_kind kind;
    double lr;         /* base */
    int64_t warmup;    /* first steps: lr * (step + 1) / warmup */
    int64_t total;     /* cosine: from lr to 0 over the steps after the warm-up */
    int64_t step_size; /* step: lr * gamma^(step / step_size) */
    double gamma;
} fr_schedule;

/* The learning rate of step 0, 1, ... A pure function: resuming needs the step number only. */
FR_API double fr_schedule_lr(const fr_schedule *s, int64_t step);

/* ---- loss scaling (torch.amp.GradScaler) ------------------------------------------------------------------------- */

typedef struct fr_grad_scaler fr_grad_scaler;

typedef struct fr_grad_scaler_opts {
    double init_scale FR_DEFAULT(65536), growth_factor FR_DEFAULT(2), backoff_factor FR_DEFAULT(0.5);
    int64_t growth_interval FR_DEFAULT(2000);
    double min_scale FR_DEFAULT(0); /* floor; 0: none, as PyTorch */
    bool enabled FR_DEFAULT(true);  /* false: every call passes through */
    bool dynamic FR_DEFAULT(true);  /* false: the scale stays; steps with inf or NaN are still skipped */
} fr_grad_scaler_opts;
#define FR_GRAD_SCALER_DEFAULTS                                                                               \
    .init_scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2000, .enabled = true, \
    .dynamic = true
#define FR_GRAD_SCALER_OPTS(...) FR_OPTS(fr_grad_scaler_opts, FR_GRAD_SCALER_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_grad_scaler_opts, FR_GRAD_SCALER_OPTS())

/* *out as of fr_sgd. */
FR_API fr_status fr_grad_scaler_create(const fr_grad_scaler_opts *opts, fr_device device, fr_grad_scaler **out);
FR_API void fr_grad_scaler_release(fr_grad_scaler **g);
/* Getters of the scaler. On CUDA, where the device decides about overflow, each call waits for the device. */
FR_API double fr_grad_scaler_value(const fr_grad_scaler *g);
FR_API int64_t fr_grad_scaler_skipped(const fr_grad_scaler *g); /* steps skipped so far */
/* *scaled = loss * scale. */
FR_API fr_status fr_grad_scaler_scale(fr_grad_scaler *g, fr_tensor *loss, fr_tensor **scaled);
/* Gradients of o's parameters times 1 / scale, looking for inf and NaN. FR_EUSAGE: twice, or after step. FR_EDTYPE: f16
 * gradients ("Attempting to unscale FP16 gradients"). */
FR_API fr_status fr_grad_scaler_unscale(fr_grad_scaler *g, fr_optimizer *o);
/* Unscales if not done before, then steps. After an inf or NaN parameters and state stay unchanged. Check and update
 * are two passes over gradients; unscaling joins the update. FR_EUSAGE: twice before update. */
FR_API fr_status fr_grad_scaler_step(fr_grad_scaler *g, fr_optimizer *o);
/* Updates the scale after the optimizer's step. *skipped (or NULL) says whether the step was skipped; with NULL a CUDA
 * device is not waited for. FR_EUSAGE without a check before. */
FR_API fr_status fr_grad_scaler_update(fr_grad_scaler *g, bool *skipped);

#ifdef __cplusplus
}
#endif
#endif
