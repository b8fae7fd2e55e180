/* fake_record.h - what the fake runtime's graphs are made of: calls of kernels and copies, kept with their arguments as
 * CUDA keeps them: descriptions and lists by value, device pointers as they are. */
#ifndef TESTS_CUDA_FAKE_RECORD_H
#define TESTS_CUDA_FAKE_RECORD_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out has real's kernels; while something is recorded they are kept instead of run. real stays where it is. */
void fake_record_wrap(const fri_kernels *real, const fri_kernels *real_f64, fri_kernels *out, fri_kernels *out_f64);

/* No kernel is loaded from now on; how many were in a capture since. */
void fake_record_unload(void);
int fake_record_loads(void);

/* The fake runtime's: which stream runs kernels; one begins in this stream (NULL: that one); around what several
 * threads may do. */
int fake_compute_stream(void);
void fake_kernel_begins(void *stream);
bool fake_defers(void *stream); /* something that is not over is before it */
void fake_queue_call(struct CUstream_st *stream, bool (*over)(void *ctx), void *ctx);
int fake_enter(void);
void fake_leave(const int *entered);

bool fake_recording(void);
void fake_record_begin(void);
void fake_record_copy(void *dst, const void *src, size_t bytes);
void fake_record_fill(void *dst, int value, size_t bytes);
/* What was recorded, to be freed. */
void *fake_record_end(void);
/* Returns how many kernels it ran. */
int fake_record_run(const void *record);
void fake_record_free(void *record);

#ifdef __cplusplus
}
#endif
#endif
