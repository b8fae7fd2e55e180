/* kernels.h - the kernels of this folder, declared with the types that the CPU's twins have. */
#ifndef FRI_CUDA_KERNELS_H
#define FRI_CUDA_KERNELS_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FRI_CUDA_DECLARE(name) fri_##name##_fn fri_cuda_##name;
FRI_KERNEL_MAP(FRI_CUDA_DECLARE)
#undef FRI_CUDA_DECLARE

fri_conv2d_workspace_fn fri_cuda_conv2d_forward_workspace, fri_cuda_conv2d_backward_input_workspace,
    fri_cuda_conv2d_backward_weight_workspace;
fri_conv2d_fused_workspace_fn fri_cuda_conv2d_forward_stats_workspace, fri_cuda_conv2d_backward_weight_norm_workspace;
fri_conv2d_forward_stats_fn fri_cuda_conv2d_forward_stats;
fri_conv2d_backward_weight_norm_fn fri_cuda_conv2d_backward_weight_norm;
fri_linear_workspace_fn fri_cuda_linear_forward_workspace, fri_cuda_linear_backward_input_workspace,
    fri_cuda_linear_backward_weight_workspace;

/* y [rows, c] += b [c], in place. */
fr_status fri_cuda_bias_add(const fri_exec *e, fr_dtype dtype, fr_dtype bias_dtype, int64_t rows, int64_t c,
                            const void *b, void *y);

/* out [c] = sum over the rows of x [rows, c]; workspace: fri_cuda_bias_workspace bytes. */
fr_status fri_cuda_column_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t rows, int64_t c,
                              const void *x, fr_dtype out_dtype, void *out);

#ifdef __cplusplus
}
#endif
#endif
