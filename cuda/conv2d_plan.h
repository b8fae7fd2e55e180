/* conv2d_plan.h - the plan cache behind the convolution kernels. Private to conv2d*.c. */
#ifndef FRI_CUDA_CONV2D_PLAN_H
#define FRI_CUDA_CONV2D_PLAN_H

#include "conv2d.h"
#include "cudnn.h"

/* Tensors of a plan's graph, by the unique ids that an execution names. */
enum { FRI_UID_X = 'x', FRI_UID_W = 'w', FRI_UID_Y = 'y' };

typedef struct fri_cuda_conv2d_plan {
    fri_cuda_conv2d_choice choice;
    char *json; /* the plan as cuDNN writes it: what a handle's own plan is read from */
    int64_t json_bytes;
    cudnnBackendDescriptor_t bound; /* read with a handle, at the first execution; NULL before */
} fri_cuda_conv2d_plan;

/* The plan, from the thread's cache or made now. Borrowed: lives until the thread ends. */
fr_status fri_cuda_conv2d_plan_get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan **out);

extern const char *const fri_cuda_conv2d_pass_name[3];

#endif
