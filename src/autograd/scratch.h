/* scratch.h - how much scratch each convolution may take (fr_scratch).
 *
 * A limit belongs to a convolution and its direction, not to a call: recomputations, first steps and resumed runs have
 * other bytes alive, and must run the same kernel. */
#ifndef FRI_AUTOGRAD_SCRATCH_H
#define FRI_AUTOGRAD_SCRATCH_H

#include <frugal/autograd.h>

#include "backend/kernels.h"

typedef enum fri_scratch_pass {
    FRI_SCRATCH_FORWARD,
    FRI_SCRATCH_BACKWARD_INPUT,
    FRI_SCRATCH_BACKWARD_WEIGHT
} fri_scratch_pass;

typedef struct fri_scratch_use {
    fri_scratch_pass pass;
    fri_conv2d_desc d;
    size_t live;  /* most that was alive, as requested, when a call asked */
    size_t limit; /* 0: not settled */
    struct fri_scratch_use *next;
} fri_scratch_use;

/* d->workspace_limit, or more where this thread's switches hold more for it; the call is noted. */
size_t fri_scratch_limit(const fri_conv2d_desc *d, fri_scratch_pass pass, fr_device device);
/* A list for each of them. */
enum { FRI_SCRATCH_BUCKETS = 64 };
const fri_scratch_use *fri_scratch_uses(const fr_scratch *s, int bucket);

#endif
