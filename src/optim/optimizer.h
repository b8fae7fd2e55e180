/* optimizer.h - the optimizer struct. */
#ifndef FRI_OPTIM_OPTIMIZER_H
#define FRI_OPTIM_OPTIMIZER_H

#include "autograd/node.h"
#include "base/status.h"

#include <frugal/optim.h>

typedef enum fri_optimizer_kind { FRI_SGD, FRI_ADAM } fri_optimizer_kind;

typedef struct fri_parameter {
    char *path;
    fr_tensor *parameter; /* retained */
    fr_tensor *state[2];  /* momentum; or first and second moment. NULL until the first step */
} fri_parameter;

struct fr_optimizer {
    fri_optimizer_kind kind;
    fr_sgd_opts sgd;
    fr_adam_opts adam;
    bool decoupled; /* AdamW */
    double lr;
    int64_t steps;
    fri_parameter *parameters;
    int n, capacity;
    fr_tensor *step; /* Adam: f32 [] on the device, the count after this step */
    bool fused, fused_counted;
};

/* The type of a parameter's state. Half parameters have f32 moments under Adam; SGD's momentum has the parameter's
 * type, as in PyTorch. */
fr_dtype fri_optimizer_state_dtype(const fr_optimizer *o, const fr_tensor *w);

/* One parameter's update. inv_scale, found: device f32 scalars or NULL (kernels.h). */
fr_status fri_optimizer_update(fr_optimizer *o, fri_parameter *p, const fr_tensor *inv_scale, const fr_tensor *found);

/* The whole step. State is created and counted before the overflow decision; a skipped step is taken back by the
 * scaler. */
fr_status fri_optimizer_step(fr_optimizer *o, const fr_tensor *inv_scale, const fr_tensor *found);

#endif
