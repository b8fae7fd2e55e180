/* conv2d_graph.c - see conv2d_graph.h. */
#include "conv2d_graph.h"

#include <string.h>

const char *const fri_cuda_conv2d_pass_name[FRI_CUDA_CONV2D_PASSES] = {
    [FRI_CUDA_CONV2D_FORWARD] = "conv2d_forward",
    [FRI_CUDA_CONV2D_BACKWARD_INPUT] = "conv2d_backward_input",
    [FRI_CUDA_CONV2D_BACKWARD_WEIGHT] = "conv2d_backward_weight",
    [FRI_CUDA_CONV2D_FORWARD_BIAS] = "conv2d_forward_bias",
    [FRI_CUDA_CONV2D_FORWARD_STATS] = "conv2d_forward_stats",
    [FRI_CUDA_CONV2D_NORM_FORWARD] = "conv2d_norm_forward",
    [FRI_CUDA_CONV2D_NORM_FORWARD_STATS] = "conv2d_norm_forward_stats",
    [FRI_CUDA_CONV2D_NORM_BACKWARD_WEIGHT] = "conv2d_norm_backward_weight",
};

/* Blocks start at multiples of 512 bytes; a view that does not keep to this is refused. */
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
    fr_status s = FR_OK;
    if (inner) uid += g->inner++;
    cudnnBackendDescriptor_t *t = &g->tensor[g->tensors];
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR, t));
    g->tensors++;
    FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim));
    FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
    FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (inner) FR_TRY(s, fri_descriptor_set(c, *t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner));
    FR_TRY(s, fri_descriptor_finalize(c, *t));
    *out = *t;
done:
    return s;
}

/* ---- the convolution --------------------------------------------------------------------------------------- */

static fr_status make_convolution(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d) {
    const int64_t pad[2] = {d->pad_h, d->pad_w}, stride[2] = {d->stride_h, d->stride_w};
    const int64_t dilation[2] = {d->dilation_h, d->dilation_w}, spatial = 2;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const fri_cudnn_call c = g->call;
    fr_status s = FR_OK;
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &g->convolution));
    cudnnBackendDescriptor_t v = g->convolution;
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
    FR_TRY(s, fri_descriptor_set(c, v, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    FR_TRY(s, fri_descriptor_finalize(c, v));
done:
    return s;
}

/* The attribute names of the three operations, in one order: convolution, x, w, y, alpha, beta. */
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
    fr_status s = FR_OK;
    FR_TRY(s, fri_descriptor_make(c, names->type, &g->operation[g->operations]));
    cudnnBackendDescriptor_t o = g->operation[g->operations++];
    FR_TRY(s, fri_descriptor_set_child(c, o, names->convolution, g->convolution));
    FR_TRY(s, fri_descriptor_set_child(c, o, names->x, x));
    FR_TRY(s, fri_descriptor_set_child(c, o, names->w, w));
    FR_TRY(s, fri_descriptor_set_child(c, o, names->y, y));
    FR_TRY(s, fri_descriptor_set(c, o, names->alpha, CUDNN_TYPE_FLOAT, 1, &one));
    FR_TRY(s, fri_descriptor_set(c, o, names->beta, CUDNN_TYPE_FLOAT, 1, &zero));
    FR_TRY(s, fri_descriptor_finalize(c, o));
done:
    return s;
}

/* ---- what stands before and behind it ------------------------------------------------------------------------ */

/* y = mode(x), or mode(x, b) with b not NULL. */
static fr_status add_pointwise(fri_cuda_conv2d_graph *g, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                               cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const fri_cudnn_call c = g->call;
    const int i = g->operations;
    fr_status s = FR_OK;
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &g->pointwise[i]));
    cudnnBackendDescriptor_t p = g->pointwise[i];
    FR_TRY(s, fri_descriptor_set(c, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    FR_TRY(s, fri_descriptor_set(c, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FR_TRY(s, fri_descriptor_finalize(c, p));
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &g->operation[i]));
    g->operations++;
    cudnnBackendDescriptor_t o = g->operation[i];
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p));
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
    if (b != NULL) FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    FR_TRY(s, fri_descriptor_finalize(c, o));
done:
    return s;
}

/* Per channel the sums of y and of its squares. */
static fr_status add_statistics(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d, cudnnBackendDescriptor_t y) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const int64_t channels[4] = {1, d->k, 1, 1};
    const fri_cudnn_call c = g->call;
    cudnnBackendDescriptor_t sums, squares;
    fr_status s = FR_OK;
    FR_TRY(s, add_tensor(g, FRI_UID_SUMS, CUDNN_DATA_FLOAT, channels, &sums));
    FR_TRY(s, add_tensor(g, FRI_UID_SQUARES, CUDNN_DATA_FLOAT, channels, &squares));
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, &g->operation[g->operations]));
    cudnnBackendDescriptor_t o = g->operation[g->operations++];
    FR_TRY(s, fri_descriptor_set(c, o, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode));
    FR_TRY(s, fri_descriptor_set(c, o, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y));
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums));
    FR_TRY(s, fri_descriptor_set_child(c, o, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares));
    FR_TRY(s, fri_descriptor_finalize(c, o));
done:
    return s;
}

/* *x becomes max(*x * scale + shift, 0). */
static fr_status add_norm(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d, cudnnBackendDescriptor_t *x) {
    const int64_t channels[4] = {1, d->c, 1, 1}, image[4] = {d->n, d->c, d->h, d->w};
    cudnnBackendDescriptor_t scale, shift, scaled, shifted, rectified;
    fr_status s = FR_OK;
    FR_TRY(s, add_tensor(g, FRI_UID_SCALE, type_of(d->dtype), channels, &scale));
    FR_TRY(s, add_tensor(g, FRI_UID_SHIFT, type_of(d->dtype), channels, &shift));
    FR_TRY(s, add_tensor(g, FRI_UID_INNER, CUDNN_DATA_FLOAT, image, &scaled));
    FR_TRY(s, add_tensor(g, FRI_UID_INNER, CUDNN_DATA_FLOAT, image, &shifted));
    FR_TRY(s, add_tensor(g, FRI_UID_INNER, CUDNN_DATA_FLOAT, image, &rectified));
    FR_TRY(s, add_pointwise(g, CUDNN_POINTWISE_MUL, *x, scale, scaled));
    FR_TRY(s, add_pointwise(g, CUDNN_POINTWISE_ADD, scaled, shift, shifted));
    FR_TRY(s, add_pointwise(g, CUDNN_POINTWISE_RELU_FWD, shifted, NULL, rectified));
    *x = rectified;
done:
    return s;
}

/* ---- the graph --------------------------------------------------------------------------------------------- */

static const operation_names *names_of(fri_cuda_conv2d_pass pass) {
    if (pass == FRI_CUDA_CONV2D_BACKWARD_INPUT) return &backward_input;
    return pass == FRI_CUDA_CONV2D_BACKWARD_WEIGHT || pass == FRI_CUDA_CONV2D_NORM_BACKWARD_WEIGHT ? &backward_weight
                                                                                                   : &forward;
}

static fr_status add_operations(fri_cuda_conv2d_graph *g, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass) {
    const int64_t y_dim[4] = {d->n, d->k, d->p, d->q}, b_dim[4] = {1, d->k, 1, 1};
    const unsigned is = 1u << pass;
    const bool norm = is & (1u << FRI_CUDA_CONV2D_NORM_FORWARD | 1u << FRI_CUDA_CONV2D_NORM_FORWARD_STATS |
                            1u << FRI_CUDA_CONV2D_NORM_BACKWARD_WEIGHT);
    const bool bias = pass == FRI_CUDA_CONV2D_FORWARD_BIAS;
    const bool statistics = is & (1u << FRI_CUDA_CONV2D_FORWARD_STATS | 1u << FRI_CUDA_CONV2D_NORM_FORWARD_STATS);
    cudnnBackendDescriptor_t x = g->tensor[0], w = g->tensor[1], y = g->tensor[2], product = y, b;
    fr_status s = FR_OK;
    if (norm) FR_TRY(s, add_norm(g, d, &x));
    if (bias) FR_TRY(s, add_tensor(g, FRI_UID_INNER, CUDNN_DATA_FLOAT, y_dim, &product));
    FR_TRY(s, add_convolution(g, names_of(pass), x, w, product));
    if (bias) {
        FR_TRY(s, add_tensor(g, FRI_UID_BIAS, type_of(d->dtype), b_dim, &b));
        FR_TRY(s, add_pointwise(g, CUDNN_POINTWISE_ADD, product, b, y));
    }
    if (statistics) FR_TRY(s, add_statistics(g, d, y));
done:
    return s;
}

fr_status fri_cuda_conv2d_graph_make(const fri_cudnn *dnn, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_graph *g) {
    const int64_t x[4] = {d->n, d->c, d->h, d->w}, w[4] = {d->k, d->c / d->groups, d->r, d->s};
    const int64_t y[4] = {d->n, d->k, d->p, d->q};
    const cudnnDataType_t type = type_of(d->dtype);
    cudnnBackendDescriptor_t made;
    fr_status s = FR_OK;
    *g = (fri_cuda_conv2d_graph){.call = {dnn, fri_cuda_conv2d_pass_name[pass]}};
    FR_TRY(s, add_tensor(g, FRI_UID_X, type, x, &made));
    FR_TRY(s, add_tensor(g, FRI_UID_W, type, w, &made));
    FR_TRY(s, add_tensor(g, FRI_UID_Y, type, y, &made));
    FR_TRY(s, make_convolution(g, d));
    FR_TRY(s, add_operations(g, d, pass));
    FR_TRY(s, fri_descriptor_make(g->call, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    FR_TRY(s, fri_descriptor_set(g->call, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 g->operations, g->operation));
    FR_TRY(s, fri_descriptor_finalize(g->call, g->graph));
done:
    return s;
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
