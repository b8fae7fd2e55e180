/* conv2d_graph.c - see conv2d_graph.h. */
#include "conv2d_graph.h"

#include <string.h>

const char *const fri_cuda_conv2d_pass_name[FRI_CUDA_CONV2D_PASSES] = {
    [FRI_CUDA_CONV2D_FORWARD] = "conv2d_forward",
    [FRI_CUDA_CONV2D_BACKWARD_INPUT] = "conv2d_backward_input",
    [FRI_CUDA_CONV2D_BACKWARD_WEIGHT] = "conv2d_backward_weight",
    [FRI_CUDA_CONV2D_FORWARD_BIAS] = "conv2d_forward_bias",
};

/* Blocks start at multiples of 512 bytes; views with a different start are refused. */
static const int64_t alignment = 16;

/* ---- tensors ----------------------------------------------------------------------------------------------- */

static cudnnDataType_t type_of(fr_dtype t) {
    return t == FR_F32 ? CUDNN_DATA_FLOAT : t == FR_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/* Adds a tensor. cuDNN wants dimensions as (n, c, h, w) and learns the order in memory from the strides. A tensor
 * between two operations of a graph (uid FRI_UID_INNER) is f32 and never in memory. */
static fr_status add_tensor(fri_cuda_conv2d_graph *g, int64_t uid, cudnnDataType_t type, const int64_t dim[4],
                            cudnnBackendDescriptor_t *out) {
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    const bool inner = uid == FRI_UID_INNER;
    const fri_cudnn_call c = g->call;
    cudnnBackendDescriptor_t *t = &g->tensor[g->tensors];
    FRI_TRY(fri_descriptor_make(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR, t));
    g->tensors++;
    FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim));
    FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
    FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (inner) FRI_TRY(fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner));
    FRI_TRY(fri_descriptor_finalize(c, *t));
    *out = *t;
    return FR_OK;
}

/* ---- the convolution --------------------------------------------------------------------------------------- */

static fr_status make_convolution(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d) {
    const int64_t pad[2] = {d->pad_h, d->pad_w}, stride[2] = {d->stride_h, d->stride_w};
    const int64_t dilation[2] = {d->dilation_h, d->dilation_w}, spatial = 2;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const fri_cudnn_call c = g->call;
    FRI_TRY(fri_descriptor_make(c, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &g->convolution));
    cudnnBackendDescriptor_t v = g->convolution;
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
    FRI_TRY(fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    return fri_descriptor_finalize(c, v);
}

/* The attribute names of the three operations, in a fixed order: convolution, x, w, y, alpha, beta. */
typedef struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
} operation_names;

static const operation_names forward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
static const operation_names backward_input = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
static const operation_names backward_weight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

static fr_status add_convolution(fri_cuda_conv2d_graph *g, const operation_names *names, cudnnBackendDescriptor_t x,
                                 cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y) {
    const float one = 1, zero = 0;
    const fri_cudnn_call c = g->call;
    FRI_TRY(fri_descriptor_make(c, names->type, &g->operation[g->operations]));
    cudnnBackendDescriptor_t o = g->operation[g->operations++];
    FRI_TRY(fri_descriptor_set_child(c, o, names->convolution, g->convolution));
    FRI_TRY(fri_descriptor_set_child(c, o, names->x, x));
    FRI_TRY(fri_descriptor_set_child(c, o, names->w, w));
    FRI_TRY(fri_descriptor_set_child(c, o, names->y, y));
    FRI_TRY(fri_descriptor_set(c, o, names->alpha, CUDNN_TYPE_FLOAT, 1, &one));
    FRI_TRY(fri_descriptor_set(c, o, names->beta, CUDNN_TYPE_FLOAT, 1, &zero));
    return fri_descriptor_finalize(c, o);
}

/* ---- the bias after it ------------------------------------------------------------------------ */

/* y = x + b */
static fr_status add_sum(fri_cuda_conv2d_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                         cudnnBackendDescriptor_t y) {
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const fri_cudnn_call c = g->call;
    const int i = g->operations;
    FRI_TRY(fri_descriptor_make(c, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &g->pointwise[i]));
    cudnnBackendDescriptor_t p = g->pointwise[i];
    FRI_TRY(fri_descriptor_set(c, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    FRI_TRY(fri_descriptor_set(c, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FRI_TRY(fri_descriptor_finalize(c, p));
    FRI_TRY(fri_descriptor_make(c, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &g->operation[i]));
    g->operations++;
    cudnnBackendDescriptor_t o = g->operation[i];
    FRI_TRY(fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p));
    FRI_TRY(fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
    FRI_TRY(fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    FRI_TRY(fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    return fri_descriptor_finalize(c, o);
}

/* ---- the graph --------------------------------------------------------------------------------------------- */

static const operation_names *names_of(fri_cuda_conv2d_pass pass) {
    if (pass == FRI_CUDA_CONV2D_BACKWARD_INPUT) return &backward_input;
    return pass == FRI_CUDA_CONV2D_BACKWARD_WEIGHT ? &backward_weight : &forward;
}

static fr_status add_operations(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass) {
    const int64_t y_dim[4] = {d->n, d->k, d->p, d->q}, b_dim[4] = {1, d->k, 1, 1};
    cudnnBackendDescriptor_t x = g->tensor[0], w = g->tensor[1], y = g->tensor[2], product, b;
    if (pass != FRI_CUDA_CONV2D_FORWARD_BIAS) return add_convolution(g, names_of(pass), x, w, y);
    FRI_TRY(add_tensor(g, FRI_UID_INNER, CUDNN_DATA_FLOAT, y_dim, &product));
    FRI_TRY(add_convolution(g, names_of(pass), x, w, product));
    FRI_TRY(add_tensor(g, FRI_UID_BIAS, type_of(d->dtype), b_dim, &b));
    return add_sum(g, product, b, y);
}

fr_status fri_cuda_conv2d_graph_make(const fri_cudnn *dnn, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_graph *g) {
    const int64_t x[4] = {d->n, d->c, d->h, d->w}, w[4] = {d->k, d->c / d->groups, d->r, d->s};
    const int64_t y[4] = {d->n, d->k, d->p, d->q};
    const cudnnDataType_t type = type_of(d->dtype);
    cudnnBackendDescriptor_t made;
    *g = (fri_cuda_conv2d_graph){.call = {dnn, fri_cuda_conv2d_pass_name[pass]}};
    FRI_TRY(add_tensor(g, FRI_UID_X, type, x, &made));
    FRI_TRY(add_tensor(g, FRI_UID_W, type, w, &made));
    FRI_TRY(add_tensor(g, FRI_UID_Y, type, y, &made));
    FRI_TRY(make_convolution(g, d));
    FRI_TRY(add_operations(g, d, pass));
    FRI_TRY(fri_descriptor_make(g->call, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    FRI_TRY(fri_descriptor_set(g->call, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               g->operations, g->operation));
    return fri_descriptor_finalize(g->call, g->graph);
}

void fri_cuda_conv2d_graph_release(fri_cuda_conv2d_graph *g) {
    const fri_cudnn *dnn = g->call.dnn;
    fri_descriptor_destroy(dnn, &g->graph);
    for (int i = 0; i < FRI_CONV2D_OPERATIONS; i++) {
        fri_descriptor_destroy(dnn, &g->operation[i]);
        fri_descriptor_destroy(dnn, &g->pointwise[i]);
    }
    fri_descriptor_destroy(dnn, &g->convolution);
    for (int i = 0; i < FRI_CONV2D_TENSORS; i++) fri_descriptor_destroy(dnn, &g->tensor[i]);
}
