/* conv2d_graph.h - a convolution as cuDNN's graph of operations. Private to conv2d*.c. */
#ifndef FRI_CUDA_CONV2D_GRAPH_H
#define FRI_CUDA_CONV2D_GRAPH_H

#include "conv2d.h"
#include "descriptor.h"

/* Tensors of a graph, by unique ids. */
enum {
    FRI_UID_X = 'x',
    FRI_UID_W = 'w',
    FRI_UID_Y = 'y',
    FRI_UID_BIAS = 'b',
    FRI_UID_INNER = '0' /* between two operations, never in memory */
};

enum { FRI_CONV2D_TENSORS = 5, FRI_CONV2D_OPERATIONS = 2 };

typedef struct fri_cuda_conv2d_graph {
    fri_cudnn_call call;
    cudnnBackendDescriptor_t tensor[FRI_CONV2D_TENSORS]; /* x, w, y, then of the pass with a bias */
    cudnnBackendDescriptor_t convolution, pointwise[FRI_CONV2D_OPERATIONS], operation[FRI_CONV2D_OPERATIONS];
    int tensors, operations;
    cudnnBackendDescriptor_t graph; /* finalized */
} fri_cuda_conv2d_graph;

/* The pass of a convolution. Release with fri_cuda_conv2d_graph_release, also after a failure. */
fr_status fri_cuda_conv2d_graph_make(const fri_cudnn *dnn, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_graph *g);
void fri_cuda_conv2d_graph_release(fri_cuda_conv2d_graph *g);

extern const char *const fri_cuda_conv2d_pass_name[FRI_CUDA_CONV2D_PASSES];

#endif
