/* fake_kernels.h - the kernels of the fake runtime's device: the CPU's, each at its turn in its stream. A call that
 * has to wait keeps its arguments as CUDA keeps them: descriptions and lists by value, device pointers as they are. */
#ifndef TESTS_CUDA_FAKE_KERNELS_H
#define TESTS_CUDA_FAKE_KERNELS_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out has real's kernels, in streams. real stays where it is. */
void fake_kernels_wrap(const fri_kernels *real, const fri_kernels *real_f64, fri_kernels *out, fri_kernels *out_f64);

/* The fake runtime's: which stream runs kernels; one begins in this stream (NULL: that one); around what several
 * threads may do. */
int fake_compute_stream(void);
void fake_kernel_begins(void *stream);
bool fake_defers(void *stream); /* something that is not over is before it */
void fake_queue_call(struct CUstream_st *stream, bool (*over)(void *ctx), void *ctx);
int fake_enter(void);
void fake_leave(const int *entered);

#ifdef __cplusplus
}
#endif
#endif
