/* fake_kernels.h - the kernels of the fake runtime's device: the CPU's, each run in turn in its stream. A waiting
 * call keeps its arguments as CUDA does: descriptions and lists by value, device pointers unchanged. */
#ifndef TESTS_CUDA_FAKE_KERNELS_H
#define TESTS_CUDA_FAKE_KERNELS_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out has real's kernels, in streams. real must stay in place. */
void fake_kernels_wrap(const fri_kernels *real, const fri_kernels *real_f64, fri_kernels *out, fri_kernels *out_f64);

/* The fake runtime's functions: the stream for kernels; the begin of a kernel in a stream (NULL: the compute stream);
 * a guard for calls of several threads. */
int fake_compute_stream(void);
void fake_kernel_begins(void *stream);
bool fake_defers(void *stream); /* an unfinished item is ahead in the stream */
void fake_queue_call(struct CUstream_st *stream, bool (*over)(void *ctx), void *ctx);
int fake_enter(void);
void fake_leave(const int *entered);

#ifdef __cplusplus
}
#endif
#endif
