/* emulated.h - the CUDA kernels, compiled for the CPU: linear, which is a library call, is missing, and
 * convolutions are depthwise. */
#ifndef TESTS_CUDA_EMULATOR_EMULATED_H
#define TESTS_CUDA_EMULATOR_EMULATED_H

#include "backend/backend.h"

extern const fri_kernels fri_emulated_kernels;

/* The two kernels shared by the library calls. */
fr_status fri_emulated_bias_add(const fri_exec *e, fr_dtype dtype, fr_dtype bias_dtype, int64_t rows, int64_t c,
                                const void *b, void *y);
fr_status fri_emulated_column_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t rows, int64_t c,
                                  const void *x, fr_dtype out_dtype, void *out);

#endif
