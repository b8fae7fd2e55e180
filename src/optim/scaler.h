/* scaler.h - loss scaling for a session: steps of two passes, and decisions of the device (grad_scaler.c). */
#ifndef FRI_OPTIM_SCALER_H
#define FRI_OPTIM_SCALER_H

#include "autograd/run.h"
#include "tensor/readback.h"

#include <frugal/optim.h>

int64_t fri_grad_scaler_growth_tracker(const fr_grad_scaler *g);
fr_status fri_grad_scaler_set(fr_grad_scaler *g, double scale, int64_t growth_tracker);
/* Finds the earliest gradient with an inf or NaN: *path names the parameter, *op the op whose backward made the
 * gradient; both are borrowed from o, and NULL if all are finite. Call while the gradients exist: between unscale and
 * clipping (returns at once if unscale found no inf or NaN), or after a skipped update. */
fr_status fri_grad_scaler_find_overflow(fr_grad_scaler *g, fr_optimizer *o, const char **path, const char **op);
/* A fused optimizer under a loss scale: only all gradients together decide whether to skip the step, so a batch runs
 * twice. Between check_begin and check_end each complete gradient is checked and freed; *found: a gradient had inf or
 * NaN. If not, a second forward and backward of the batch, with equal random numbers and fri_statistics_freeze, updates
 * each parameter as fr_grad_scaler_step would. In both cases fr_grad_scaler_update follows. On CUDA *found is always
 * false: the second pass runs, and the device leaves the parameters as they are. FR_EUSAGE: o is not fused, or the
 * calls are out of order. */
fr_status fri_grad_scaler_check_begin(fr_grad_scaler *g, fr_optimizer *o);
fr_status fri_grad_scaler_check_end(fr_grad_scaler *g, fr_optimizer *o, bool *found);
/* Calls for a loop without waits. True if the device decides whether to skip a step. Then outcome, after update, begins
 * to read back the decision, and learn waits for the scale and the number of skipped steps. */
bool fri_grad_scaler_device_decides(const fr_grad_scaler *g);
fr_status fri_grad_scaler_outcome(const fr_grad_scaler *g, fri_readback *r);
fr_status fri_grad_scaler_learn(fri_readback *r, double *scale, int64_t *skipped);

#endif
