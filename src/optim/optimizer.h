/* optimizer.h - the optimizer struct. */
#ifndef FRI_OPTIM_OPTIMIZER_H
#define FRI_OPTIM_OPTIMIZER_H

#include "autograd/node.h"
#include "base/status.h"

#include <frugal/optim.h>

typedef enum fri_optimizer_kind { FRI_SGD, FRI_RMSPROP, FRI_ADAM } fri_optimizer_kind;

enum {
    FRI_STATE_SLOTS = 6,
    FRI_GROUPS_MOST = 32,
    FRI_8_BITS_LEAST = 4096, /* smaller parameters keep f32 moments, as bitsandbytes' min_8bit_size */
    FRI_MAP_VALUES = 256
};

/* Settings of a group of parameters. */
typedef struct fri_group {
    double lr_factor, weight_decay;
    double lr; /* fr_optimizer.lr * lr_factor */
} fri_group;

typedef struct fri_parameter {
    char *path;
    bool norm;                         /* of a layer that normalizes */
    int group;                         /* in fr_optimizer.group */
    fr_tensor *parameter;              /* retained */
    int64_t first, count;              /* the elements that this process updates: all, or its share of them */
    fr_tensor *sum;                    /* shared: their gradient, summed over the ranks; NULL without elements */
    bool summed;                       /* shared: the sum is complete, and the other ranks have theirs */
    fr_tensor *state[FRI_STATE_SLOTS]; /* of these elements, what fri_optimizer_slots says; NULL until the first step */
    bool made;                         /* the state is there, if only on other ranks */
    bool unused;                       /* the state was made by a skipped step: the first one is still to come */
    bool averaged;                     /* the average is one, not only its place */
    int64_t steps;                     /* Adam: its count as it was restored; from then on count.c's is newer */
    fr_tensor *step;                   /* a view of that, for each_state; or NULL */
    uint64_t fused_step;               /* the training step whose fused update counted it */
} fri_parameter;

/* Key of a kernel call: all its parameters share these values. */
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

/* The ranks that share the work of an optimizer: each has gradients and state of its part of a parameter.
 * Each call is one of all ranks. */
typedef struct fri_sharing {
    fr_status (*any)(void *ctx, fr_tensor *found); /* f32 [1]: becomes nonzero if it is so on any rank */
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
    fri_group group[FRI_GROUPS_MOST]; /* the first: what nothing else was said of */
    int groups;
    double ema;         /* decay; 0: no averages */
    bool swapped;       /* the parameters hold their averages */
    fr_tensor *between; /* what is on its way while they change places */
    int64_t steps;
    fri_parameter *parameters;
    int n;
    fr_tensor *counts;  /* of steps, on the device: see count.c; NULL until the first step */
    bool device_counts; /* `steps` is older than counts[0]: only the device knows which steps were skipped */
    fr_tensor *maps;    /* 8 bits: f32 [2, FRI_MAP_VALUES] on the device, of the first and the second moment */
    bool fused;
    uint64_t fused_step;        /* the training step that the fused update counted */
    fri_update_room room;       /* update.c: for n parameters; NULL until the first step */
    fr_grad_scaler *scaler;     /* of the two-pass fused step: borrowed, from its first check on; NULL: none */
    const fri_sharing *sharing; /* borrowed; NULL: this process does it all */
};

/* The gradient of the elements that this process updates; NULL: none. */
static inline const fr_tensor *fri_parameter_gradient(const fr_optimizer *o, const fri_parameter *p) {
    return o->sharing != NULL ? p->sum : fr_tensor_get_grad(p->parameter);
}
/* Has the parameter a gradient in this step, if only on other ranks? */
static inline bool fri_parameter_moves(const fr_optimizer *o, const fri_parameter *p) {
    return o->sharing != NULL ? p->summed : fr_tensor_get_grad(p->parameter) != NULL;
}

/* One state tensor of a parameter: name in training states, type, shape. */
typedef struct fri_state_slot {
    const char *name;
    fr_dtype dtype;
    fr_shape shape;
} fri_state_slot;

/* The state a parameter has; returns how many tensors. SGD's momentum has the type of what is updated, as in PyTorch.
 * Adam has two moments and RMSprop up to three, f32 for half parameters. adam8 has codes (u8) and one f32 scale per
 * block for each, but Adam's for parameters that are small or f64. Then come the master and
 * the average. */
int fri_optimizer_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]);
/* Slots of the elements that this process updates: vectors, unless the process updates all elements. */
int fri_optimizer_part_slots(const fr_optimizer *o, const fri_parameter *p, fri_state_slot slots[FRI_STATE_SLOTS]);
/* First element, in the whole tensor, of the part of a state tensor. */
int64_t fri_optimizer_part_first(const fri_parameter *p, const fri_state_slot *whole);

/* Has this parameter a master in f32, which is updated in its place? */
bool fri_optimizer_has_master(const fr_optimizer *o, const fr_tensor *w);

/* Are this parameter's moments kept in 8 bits? */
bool fri_optimizer_in_8_bits(const fr_optimizer *o, const fr_tensor *w);

/* Index of the master among n slots, and of the average; -1: none. */
int fri_optimizer_master_slot(const fr_optimizer *o, const fr_tensor *w, int n);
int fri_optimizer_ema_slot(const fr_optimizer *o, int n);

/* n elements, from[first_from ..] to to[first_to ..]; of any two types. */
fr_status fri_optimizer_convert(int64_t n, const fr_tensor *from, int64_t first_from, const fr_tensor *to,
                                int64_t first_to);
/* Calls fn for the first n of o->room's items, a list for each key that they have. */
typedef fr_status fri_list_fn(void *ctx, const fri_update_key *key, int count, const fri_step_item *items);
fr_status fri_optimizer_lists(fr_optimizer *o, int n, fri_list_fn *fn, void *ctx);

/* ema.c: the averages of those of n parameters that have moved. found: as of the update. */
fr_status fri_optimizer_average(fr_optimizer *o, int n, fri_parameter *parameters, const fr_tensor *found);
fr_status fri_optimizer_make_between(fr_optimizer *o);
void fri_optimizer_follow_lr(fr_optimizer *o); /* groups.c */

void fri_dynamic_map(bool is_signed, float map[FRI_MAP_VALUES]);

/* The state that a parameter lacks: zeros, and a master with the parameter's values. */
fr_status fri_optimizer_make_state(const fr_optimizer *o, fri_parameter *p);

/* Calls fn for the gradients of each element type, as one list. */
typedef fr_status fri_gradients_fn(void *ctx, const fr_tensor *like, int count, const fri_array *gradients);
fr_status fri_optimizer_gradients(fr_optimizer *o, fri_gradients_fn *fn, void *ctx);

/* Counts and updates n of the optimizer's parameters, those that have a gradient. new_step: the optimizer's count
 * moves, too. inv_scale, found: device f32 scalars or NULL (kernels.h). Where state cannot be made none is updated. */
fr_status fri_optimizer_update(fr_optimizer *o, bool new_step, int n, fri_parameter *parameters,
                               const fr_tensor *inv_scale, const fr_tensor *found);

/* count.c. Makes o->counts where it is needed: always for Adam, else where the device counts. */
fr_status fri_optimizer_make_counts(fr_optimizer *o, fr_device device, bool device_counts);
/* o->steps becomes what the device knows; waits. */
fr_status fri_optimizer_learn_steps(fr_optimizer *o);
fr_status fri_optimizer_read_counts(const fr_optimizer *o, float **host); /* all of o->counts; free it */
/* The steps of each parameter, malloced; o->steps is known, too. Waits. */
fr_status fri_optimizer_learn_counts(fr_optimizer *o, int64_t **of_parameter);
fr_status fri_optimizer_set_counts(fr_optimizer *o, int64_t steps, const int64_t *of_parameter);
/* Address from which kernels read a parameter's count; NULL for SGD. */
const float *fri_optimizer_count_of(const fr_optimizer *o, const fri_parameter *p);
/* Counts a step, if it is a new one, and those of n parameters that have a gradient; where found is not 0 none. */
fr_status fri_optimizer_count(fr_optimizer *o, bool new_step, int n, const fri_parameter *parameters,
                              const fr_tensor *found);

/* Checks a complete gradient of a fused step under a loss scale. *update false: the gradient was only checked; true:
 * the parameter is to be updated with *inv_scale, and *found unless that is NULL. */
fr_status fri_grad_scaler_complete(fr_grad_scaler *g, fr_optimizer *o, fri_parameter *p, bool *update,
                                   const fr_tensor **inv_scale, const fr_tensor **found);

/* Can its kernels skip a step by themselves? Not where the first step differs from the others (a dampened momentum) and
 * the host must know whether it took place. */
bool fri_optimizer_can_skip(const fr_optimizer *o);

/* The state of one parameter, made as by a step that is skipped. */
fr_status fri_optimizer_skip_one(fr_optimizer *o, fri_parameter *p);

/* The fused step of one parameter, whose gradient is complete. In a training step only. */
fr_status fri_optimizer_complete(fr_optimizer *o, fri_parameter *p);

/* The whole step. With `found` it is the device that decides whether it takes place, and that counts it. */
fr_status fri_optimizer_step(fr_optimizer *o, const fr_tensor *inv_scale, const fr_tensor *found);

/* A step that overflow skips: the state is made all the same, so that a run needs the same memory whenever its first
 * step overflows or not; parameters, moments and the count of steps stay. */
fr_status fri_optimizer_skip(fr_optimizer *o);

#endif
