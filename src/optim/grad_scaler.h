/* grad_scaler.h - the outcome of a step that only the device knows, for a trainer that does not wait for it. */
#ifndef FRI_OPTIM_GRAD_SCALER_H
#define FRI_OPTIM_GRAD_SCALER_H

#include "tensor/readback.h"

#include <frugal/optim.h>

/* Then fr_grad_scaler_update(g, NULL) waits for nothing. */
bool fri_grad_scaler_decides_there(const fr_grad_scaler *g);
/* After update: what the scaler is now, is on its way; learn waits for it. */
fr_status fri_grad_scaler_outcome(const fr_grad_scaler *g, fri_readback *r);
fr_status fri_grad_scaler_learn(fri_readback *r, fri_loss_scale *now);

#endif
