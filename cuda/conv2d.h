/* conv2d.h - plans for convolutions, with or without a GPU.
 *
 * A plan is a cuDNN engine with its settings, chosen for a device description: heuristics first, then the fallback
 * list; pre-compiled engines only (a run-time compiled one costs up to a second of CPU), deterministic ones only unless
 * fr_cudnn_deterministic_set(false), and for f32 none that rounds to TF32 under fr_exact_convolutions_set(true). Among
 * those that are not slow, or if all are among those, the first whose workspace is within the limit, else the one with
 * the smallest workspace. Its bytes are known before any device is touched, so a dry run counts them.
 *
 * A pass may be a fused one, with the bias. Such a plan is taken under the same limit, or if it needs no more than the
 * plain pass.
 *
 * With fr_cudnn_benchmark_set(true) and a device, all plans within the limit are timed and the fastest is taken, once
 * per thread and convolution. Without a device the heuristics' choice stands in. */
#ifndef FRI_CUDA_CONV2D_H
#define FRI_CUDA_CONV2D_H

#include "backend/kernels.h"

typedef enum fri_cuda_conv2d_pass {
    FRI_CUDA_CONV2D_FORWARD,
    FRI_CUDA_CONV2D_BACKWARD_INPUT,
    FRI_CUDA_CONV2D_BACKWARD_WEIGHT,
    FRI_CUDA_CONV2D_FORWARD_BIAS, /* y = conv(x, w) + b in a single kernel; b of x's type; may have no plan */
} fri_cuda_conv2d_pass;
enum { FRI_CUDA_CONV2D_PASSES = 4 };

typedef struct fri_cuda_conv2d_choice {
    size_t workspace;    /* workspace of the kernel */
    int64_t engine;      /* cuDNN's global index of the engine */
    int64_t nanoseconds; /* of the fastest execution; 0: not timed */
    int configurations;  /* examined engines of the requested lists */
    bool fallback;       /* from the fallback list */
    bool tensor_core;
    bool slow; /* an engine of last resort, or a half-type engine without tensor cores */
} fri_cuda_conv2d_choice;

/* Finds the engine to run. FR_EUNSUPPORTED names the convolution if no engine will do; FR_ELIBRARY without cuDNN. Also
 * behind the backend's conv2d_*_workspace slots. */
fr_status fri_cuda_conv2d_choose(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_choice *out);

/* Number of the thread's plans with and without timing under fr_cudnn_benchmark_set(true). */
void fri_cuda_conv2d_timed(int64_t *timed, int64_t *guessed);

#endif
