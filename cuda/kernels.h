/* kernels.h - the kernels of the folder, declared with the types of the CPU's twins. */
#ifndef FRI_CUDA_KERNELS_H
#define FRI_CUDA_KERNELS_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FRI_CUDA_DECLARE(name, type, need) type fri_cuda_##name;
FRI_KERNEL_MAP(FRI_CUDA_DECLARE)
#undef FRI_CUDA_DECLARE

/* y [rows, c] += b [c], in place. */
fr_status fri_cuda_bias_add(const fri_exec *e, fr_dtype dtype, fr_dtype bias_dtype, int64_t rows, int64_t c,
                            const void *b, void *y);

/* out [c] = sum over the rows of x [rows, c]; workspace: fri_cuda_bias_workspace bytes. */
fr_status fri_cuda_column_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t rows, int64_t c,
                              const void *x, fr_dtype out_dtype, void *out);

/* sums [n, c] = the sums over the pixels of dy [n, hw, c], or of a * dy, divided by `by`. */
fr_status fri_cuda_image_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t n, int64_t hw, int64_t c,
                             const void *a, const void *dy, float by, void *sums);

/* A kernel of the build. */
const void *fri_cuda_fill_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
