/* scratch.h - scratch limits per convolution (fri_scratch_limits).
 *
 * A limit belongs to a convolution and its direction, not to a call: recomputations, first steps and resumed runs
 * have different bytes alive, but must use the same kernel. */
#ifndef FRI_AUTOGRAD_SCRATCH_H
#define FRI_AUTOGRAD_SCRATCH_H

#include "autograd/run.h"
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
    size_t live;  /* largest number of requested bytes alive at a call */
    size_t limit; /* 0: not decided */
    struct fri_scratch_use *next;
} fri_scratch_use;

/* Scratch limit of a convolution: d->workspace_limit, or more if this thread's switches allow. Records the call. */
size_t fri_scratch_limit(const fri_conv2d_desc *d, fri_scratch_pass pass, fr_device device);
/* Hash buckets of uses. */
enum { FRI_SCRATCH_BUCKETS = 64 };
const fri_scratch_use *fri_scratch_uses(const fri_scratch_limits *s, int bucket);

#endif
