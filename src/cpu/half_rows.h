/* half_rows.h - half data to and from f32 in parallel, for the kernels that compute stored f16 and bf16 in f32. */
#ifndef FRI_CPU_HALF_ROWS_H
#define FRI_CPU_HALF_ROWS_H

#include "cpu/cpu.h"

/* rows x n elements; element (i, j) of the half matrix is at i * pitch + j, the f32 one is dense. */
void fri_cpu_widen_rows(fr_dtype t, int64_t rows, int64_t n, const void *x, int64_t pitch, float *y);
void fri_cpu_narrow_rows(fr_dtype t, int64_t rows, int64_t n, const float *x, void *y, int64_t pitch);

/* y[i] += x[i] */
void fri_cpu_add_rows(int64_t n, const float *x, float *y);

/* out[j] = sum over rows of x[i][j], in an order that depends on the shape only. x of type t, out of type out_t. */
void fri_cpu_sum_rows(fr_dtype t, int64_t rows, int64_t n, const void *x, fr_dtype out_t, void *out);

#endif
