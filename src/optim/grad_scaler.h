/* grad_scaler.h - lets a trainer read back the outcome of a step that the device decides, without waiting for it. */
#ifndef FRI_OPTIM_GRAD_SCALER_H
#define FRI_OPTIM_GRAD_SCALER_H

#include "tensor/readback.h"

#include <frugal/optim.h>

/* Does the device decide whether a step is skipped? Then fr_grad_scaler_update(g, NULL) does not wait for it. */
bool fri_grad_scaler_device_decides(const fr_grad_scaler *g);
/* After update: outcome begins to read back the scaler's state, learn waits for it. */
fr_status fri_grad_scaler_outcome(const fr_grad_scaler *g, fri_readback *r);
fr_status fri_grad_scaler_learn(fri_readback *r, fri_loss_scale *now);

#endif
