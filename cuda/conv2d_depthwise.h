/* conv2d_depthwise.h - depthwise convolutions by own kernels (conv2d_depthwise.cu), chosen by conv2d.c. */
#ifndef FRI_CUDA_CONV2D_DEPTHWISE_H
#define FRI_CUDA_CONV2D_DEPTHWISE_H

#include "backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if the kernels below compute the convolution: groups = C = K, a square filter of 3, 5 or 7. */
bool fri_cuda_conv2d_is_depthwise(const fri_conv2d_desc *d);
fr_status fri_cuda_conv2d_depthwise_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                            const void *b, void *y);
fr_status fri_cuda_conv2d_depthwise_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                          void *dx);
size_t fri_cuda_conv2d_depthwise_weight_workspace(const fri_conv2d_desc *d);
fr_status fri_cuda_conv2d_depthwise_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                           void *dw);

#ifdef __cplusplus
}
#endif

#endif
