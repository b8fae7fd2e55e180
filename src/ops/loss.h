/* loss.h - shared by the losses of classes: targets and the call. */
#ifndef FRI_OPS_LOSS_H
#define FRI_OPS_LOSS_H

#include "ops/frame.h"

/* Checks the target and fills sizes, types and kind of target; all else in *d stays. Probabilities as targets are
 * refused unless allowed. */
fr_status fri_loss_describe(const fri_frame *f, bool shares_allowed, fri_loss_desc *d);
/* d has the options; weight NULL: none; factor_per_class: two for each
 * class are kept, else one. */
fr_status fri_loss_call(fr_described *op, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        bool factor_per_class, fri_loss_desc d, fr_tensor **loss);

#endif
