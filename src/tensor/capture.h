/* capture.h - for those whose work is captured (frugal/unstable/capture.h). */
#ifndef FRI_TENSOR_CAPTURE_H
#define FRI_TENSOR_CAPTURE_H

#include "tensor/readback.h"

#include <frugal/unstable/capture.h>

/* Does this thread capture right now? */
bool fri_capturing(void);
/* *device: a device address that holds *host whenever the step runs, NULL while nothing is captured. host stays where
 * it is as long as the capture lives. */
fr_status fri_capture_number(const double *host, const double **device);
/* A device address that holds how many streams of random numbers were drawn between capture and replay; NULL while
 * nothing is captured. */
const int64_t *fri_capture_draws(void);
/* Called around each replay, `before` may be NULL; the same pair is called once. */
typedef fr_status fri_capture_before(void *ctx);
typedef void fri_capture_after(void *ctx);
fr_status fri_capture_around(fri_capture_before *before, fri_capture_after *after, void *ctx);

/* fr_readback_begin and fri_readback_check of a captured step. */
fr_status fri_capture_value(const fr_tensor *t, fr_readback *r);
fr_status fri_capture_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);

#endif
