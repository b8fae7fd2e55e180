/* optimizer.h - the optimizer struct. */
#ifndef FRI_OPTIM_OPTIMIZER_H
#define FRI_OPTIM_OPTIMIZER_H

#include "autograd/node.h"
#include "base/status.h"

#include <frugal/optim.h>

typedef enum fri_optimizer_kind { FRI_SGD, FRI_RMSPROP, FRI_ADAM } fri_optimizer_kind;

enum {
    FRI_STATE_SLOTS = 6,
    FRI_GROUPS_MAX = 32,
    FRI_8_BITS_MIN = 4096, /* smaller parameters keep f32 moments, as bitsandbytes' min_8bit_size */
    FRI_MAP_VALUES = 256
};

/* Settings of a group of parameters. */
typedef struct fri_group {
    double lr_factor, weight_decay;
    double lr; /* fr_optimizer.lr * lr_factor */
} fri_group;

typedef struct fri_parameter {
    char *path;
    bool norm;                         /* parameter of a norm */
    int group;                         /* in fr_optimizer.group */
    fr_tensor *parameter;              /* retained */
    int64_t first, count;              /* the process's elements: all, or a share */
    fr_tensor *sum;                    /* shared: the elements' gradient, summed over the ranks; NULL without
                                        * elements */
    bool summed;                       /* shared: the sums are complete on all ranks */
    fr_tensor *state[FRI_STATE_SLOTS]; /* state of the elements (fri_optimizer_slots); NULL until the first step */
    bool made;                         /* the state exists, maybe on other ranks only */
    bool unused;                       /* a skipped step made the state; the first real step is still to come */
    bool averaged;                     /* the average has a value */
    int64_t steps;                     /* Adam: the restored count; later count.c's is newer */
    fr_tensor *step;                   /* a view of the count, for each_state; or NULL */
    uint64_t fused_step;               /* the training step of the last counted fused update */
} fri_parameter;

/* Key of a kernel call: shared by all parameters of a call. */
typedef struct fri_update_key {
    fr_dtype dtype, grad_dtype;
    int group;
    bool first; /* SGD: the momentum is written, not read */
    bool eight; /* moments in 8 bits */
} fri_update_key;

typedef struct fri_update_room {
    fri_step_item *items, *list;
    fri_update_key *keys;
    fri_array *arrays;
} fri_update_room;

/* Calls of a shared optimizer: each rank holds gradients and state of a part of each parameter. All ranks make each
 * call. */
typedef struct fri_sharing {
    fr_status (*any)(void *ctx, fr_tensor *found); /* f32 [1]: becomes nonzero if nonzero on any rank */
    /* The parts of state k of parameter i come together in `whole`, host memory of rank 0. */
    fr_status (*collect)(void *ctx, int i, int k, void *whole);
    void *ctx;
} fri_sharing;

struct fr_optimizer {
    fri_optimizer_kind kind;
    fr_sgd_opts sgd;
    fr_rmsprop_opts rmsprop;
    fr_adam_opts adam;
    bool decoupled; /* AdamW, adam8 */
    bool eight;     /* adam8 */
    bool masters;   /* fr_optimizer_master_weights */
    double lr;
    fri_group group[FRI_GROUPS_MAX]; /* group 0: parameters without a rule */
    int groups;
    double ema;             /* decay; 0: no averages */
    bool swapped;           /* parameters and averages are exchanged */
    fr_tensor *swap_buffer; /* scratch for the exchange */
    int64_t steps;
    fri_parameter *parameters;
    int n;
    fr_tensor *counts;  /* of steps, on the device: see count.c; NULL until the first step */
    bool device_counts; /* `steps` is older than counts[0], because only the device knows the skipped steps */
    fr_tensor *maps;    /* 8 bits: f32 [2, FRI_MAP_VALUES] on the device, of the first and the second moment */
    bool fused;
    uint64_t fused_step;        /* the training step counted by the fused update */
    fri_update_room room;       /* update.c: for n parameters; NULL until the first step */
    fr_grad_scaler *scaler;     /* scaler of the two-pass fused step: borrowed, from the first check on; NULL: none */
    const fri_sharing *sharing; /* borrowed; NULL: a single process */
};

/* The gradient of the process's elements; NULL: none. */
static inline const fr_tensor *fri_parameter_gradient(const fr_optimizer *o, const fri_parameter *p) {
    return o->sharing != NULL ? p->sum : fr_tensor_get_grad(p->parameter);
}
/* True if the parameter has a gradient in the step, on any rank. */
static inline bool fri_parameter_moves(const fr_optimizer *o, const fri_parameter *p) {
    return o->sharing != NULL ? p->summed : fr_tensor_get_grad(p->parameter) != NULL;
}

/* One state tensor of a parameter: name in training states, type, shape. */
typedef struct fri_state_slot {
    const char *name;
    fr_dtype dtype;
    fr_shape shape;
} fri_state_slot;

/* The state tensors of a parameter; returns the number. SGD's momentum has the updated tensor's type, as in PyTorch.
 * Adam has two moments and RMSprop up to three, f32 for half parameters. adam8 has codes (u8) and an f32 scale per
 * block for each moment, and Adam's moments for small or f64 parameters. Then master and average. */
int fri_optimizer_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]);
/* Slots of the process's elements: vectors, unless the process updates all elements. */
int fri_optimizer_part_slots(const fr_optimizer *o, const fri_parameter *p, fri_state_slot slots[FRI_STATE_SLOTS]);
/* First element, in the whole tensor, of the part of a state tensor. */
int64_t fri_optimizer_part_first(const fri_parameter *p, const fri_state_slot *whole);

/* True if the parameter has an f32 master, updated in place of the parameter. */
bool fri_optimizer_has_master(const fr_optimizer *o, const fr_tensor *w);

/* True if the parameter's moments have 8 bits. */
bool fri_optimizer_in_8_bits(const fr_optimizer *o, const fr_tensor *w);

/* Index of the master among n slots, and of the average; -1: none. */
int fri_optimizer_master_slot(const fr_optimizer *o, const fr_tensor *w, int n);
int fri_optimizer_ema_slot(const fr_optimizer *o, int n);

/* n elements, from[first_from ..] to to[first_to ..]; of any two types. */
fr_status fri_optimizer_convert(int64_t n, const fr_tensor *from, int64_t first_from, const fr_tensor *to,
                                int64_t first_to);
/* Calls fn for the first n of o->room's items, with a list for each key. */
typedef fr_status fri_list_fn(void *ctx, const fri_update_key *key, int count, const fri_step_item *items);
fr_status fri_optimizer_lists(fr_optimizer *o, int n, fri_list_fn *fn, void *ctx);

/* ema.c: updates the averages of the moved ones of n parameters. found: as in the update. */
fr_status fri_optimizer_average(fr_optimizer *o, int n, fri_parameter *parameters, const fr_tensor *found);
fr_status fri_optimizer_make_swap_buffer(fr_optimizer *o);
void fri_optimizer_follow_lr(fr_optimizer *o); /* groups.c */

void fri_dynamic_map(bool is_signed, float map[FRI_MAP_VALUES]);

/* Creates missing state of a parameter: zeros, and a master with the parameter's values. */
fr_status fri_optimizer_make_state(const fr_optimizer *o, fri_parameter *p);

/* Calls fn with a list of gradients for each element type. */
typedef fr_status fri_gradients_fn(void *ctx, const fr_tensor *like, int count, const fri_array *gradients);
fr_status fri_optimizer_gradients(fr_optimizer *o, fri_gradients_fn *fn, void *ctx);

/* Counts and updates n of the optimizer's parameters, if they have a gradient. new_step: increments the optimizer's
 * count, too. inv_scale, found: device f32 scalars or NULL (kernels.h). If state cannot be allocated, no parameter is
 * updated. */
fr_status fri_optimizer_update(fr_optimizer *o, bool new_step, int n, fri_parameter *parameters,
                               const fr_tensor *inv_scale, const fr_tensor *found);

/* count.c. Makes o->counts if needed: always for Adam, else if the device counts. */
fr_status fri_optimizer_make_counts(fr_optimizer *o, fr_device device, bool device_counts);
/* Reads o->steps from the device; waits. */
fr_status fri_optimizer_learn_steps(fr_optimizer *o);
fr_status fri_optimizer_read_counts(const fr_optimizer *o, float **host); /* all of o->counts; free it */
/* The steps of each parameter, malloced; o->steps is known, too. Waits. */
fr_status fri_optimizer_learn_counts(fr_optimizer *o, int64_t **of_parameter);
fr_status fri_optimizer_set_counts(fr_optimizer *o, int64_t steps, const int64_t *of_parameter);
/* Address from which kernels read a parameter's count; NULL for SGD. */
const float *fri_optimizer_count_of(const fr_optimizer *o, const fri_parameter *p);
/* Counts a new step, and n parameters with a gradient; nothing if found is not 0. */
fr_status fri_optimizer_count(fr_optimizer *o, bool new_step, int n, const fri_parameter *parameters,
                              const fr_tensor *found);

/* Checks a complete gradient of a fused step under a loss scale. *update false: check only; true: update the parameter
 * with *inv_scale, and *found unless NULL. */
fr_status fri_grad_scaler_complete(fr_grad_scaler *g, fr_optimizer *o, fri_parameter *p, bool *update,
                                   const fr_tensor **inv_scale, const fr_tensor **found);

/* True if the kernels can skip a step by themselves. False for a dampened momentum, where the first step differs and
 * the host must know whether the step happened. */
bool fri_optimizer_can_skip(const fr_optimizer *o);

/* Makes a parameter's state as a skipped step would. */
fr_status fri_optimizer_skip_one(fr_optimizer *o, fri_parameter *p);

/* The fused step of a parameter with complete gradient: once in a training step, and in a training step only. */
fr_status fri_optimizer_complete(fr_optimizer *o, fri_parameter *p);

/* FR_EUSAGE, naming the call, if the fused step has updated the parameter in this training step. */
fr_status fri_optimizer_kept(const fr_optimizer *o, const fri_parameter *p, const char *call);
fr_status fri_gradient_kept(const fr_tensor *t, const char *call); /* of the optimizer that t's hook belongs to */

/* The whole step. With `found` the device decides about the step, and counts. */
fr_status fri_optimizer_step(fr_optimizer *o, const fr_tensor *inv_scale, const fr_tensor *found);

/* A step skipped by overflow still makes the state, so the memory of a run does not depend on overflows; parameters,
 * moments and counts stay. */
fr_status fri_optimizer_skip(fr_optimizer *o);

/* Visits the state that exists: per parameter "<path>.momentum_buffer", or "<path>.exp_avg" and "<path>.exp_avg_sq", or
 * "<path>.square_avg", "<path>.momentum_buffer" and "<path>.grad_avg"; 8-bit moments are codes (u8), and
 * "<path>.exp_avg_absmax" and so on the scales (f32 [blocks]). "<path>.master" (f32) is the master of a half parameter.
 * "<path>.step" (f32 []) is Adam's count for a parameter with fewer steps than fr_optimizer_steps. */
typedef fr_status fri_optimizer_state_fn(void *ctx, const char *name, fr_tensor *t);
fr_status fri_optimizer_each_state(fr_optimizer *o, fri_optimizer_state_fn *fn, void *ctx);
/* Replaces the whole state by the state after `steps` steps: fn fills each tensor t, or returns FR_END for a missing
 * tensor; a "<path>.step" that did not is `steps`. FR_EINVAL: one is not in 0..steps. A failure changes nothing. SGD
 * without momentum and frozen parameters have no state. */
fr_status fri_optimizer_set_state(fr_optimizer *o, int64_t steps, fri_optimizer_state_fn *fn, void *ctx);

/* Copies the values of a visited tensor, except "<path>.step", to host memory. For a shared optimizer (ranks.h) the
 * visited tensors are on FR_META, and rank 0 collects the values from all ranks. */
fr_status fri_optimizer_state_to_host(fr_optimizer *o, const char *name, void *data);

#endif
