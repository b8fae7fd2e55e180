/* conv2d.h - plans for convolutions, with or without a GPU.
 *
 * A plan is a cuDNN engine with its settings, chosen for a device description: heuristics first, then the fallback
 * list; pre-compiled engines only (a run-time compiled one costs up to a second of CPU), deterministic ones only unless
 * fr_cudnn_deterministic_set(false), and for f32 none that rounds to TF32 under fr_exact_convolutions_set(true). Among
 * those that are not slow, or if all are among those, the first whose workspace is within the limit, else the one with
 * the smallest workspace. Its bytes are known before any device is touched, so a dry run counts them.
 *
 * A pass may be a fused one: with the bias, or with the sums that batch norm needs (fr_cudnn_fuse_statistics_set).
 * Such a plan is taken under the same limit, or if it needs no more than the plain pass.
 *
 * With fr_cudnn_benchmark_set(true) and a device, all plans within the limit are timed and the fastest is taken; it is
 * kept in the file of plans, where a dry run finds it too. Without a device and without such a plan the heuristics'
 * choice stands in. */
#ifndef FRI_CUDA_CONV2D_H
#define FRI_CUDA_CONV2D_H

#include "backend/kernels.h"

typedef enum fri_cuda_conv2d_pass {
    FRI_CUDA_CONV2D_FORWARD,
    FRI_CUDA_CONV2D_BACKWARD_INPUT,
    FRI_CUDA_CONV2D_BACKWARD_WEIGHT,
    /* Fused passes: not every convolution has a plan. */
    FRI_CUDA_CONV2D_FORWARD_BIAS,  /* y = conv(x, w) + b in one kernel; b of x's type */
    FRI_CUDA_CONV2D_FORWARD_STATS, /* y = conv(x, w), and per channel the sums of y and y * y, in f32 */
    /* Planned only, to know what cuDNN has engines for. */
    FRI_CUDA_CONV2D_NORM_FORWARD,         /* y = conv(max(x * scale + shift, 0), w), of x's type, [c] */
    FRI_CUDA_CONV2D_NORM_FORWARD_STATS,   /* likewise, and the sums */
    FRI_CUDA_CONV2D_NORM_BACKWARD_WEIGHT, /* dw of both */
} fri_cuda_conv2d_pass;
enum { FRI_CUDA_CONV2D_PASSES = 8 };

typedef struct fri_cuda_conv2d_choice {
    size_t workspace;    /* bytes that the kernel must be handed */
    int64_t engine;      /* cuDNN's global index of the engine */
    int64_t nanoseconds; /* of the fastest execution; 0: not timed */
    int configurations;  /* looked at, of the lists that were asked for */
    bool fallback;       /* from the fallback list */
    bool tensor_core;
    bool slow; /* an engine of last resort, or one for half types without tensor cores */
} fri_cuda_conv2d_choice;

/* The passes that are executed. */
static inline bool fri_cuda_conv2d_runs(fri_cuda_conv2d_pass pass) {
    return pass < FRI_CUDA_CONV2D_NORM_FORWARD;
}

/* What would run. FR_EUNSUPPORTED names the convolution if no engine will do; FR_ELIBRARY without cuDNN. Also behind
 * the backend's conv2d_*_workspace slots. */
fr_status fri_cuda_conv2d_choose(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_choice *out);

/* Under fr_cudnn_benchmark_set(true): plans of this thread that were timed, now or for the file, and those that were
 * not. Always: those of the file that cuDNN did not read any more, so that others took their place. */
void fri_cuda_conv2d_timed(int64_t *timed, int64_t *guessed, int64_t *replaced);

#endif
