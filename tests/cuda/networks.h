/* networks.h - the distinct convolutions of the networks that this library has, for tests that plan them. */
#ifndef TESTS_CUDA_NETWORKS_H
#define TESTS_CUDA_NETWORKS_H

#include <frugal/nn.h>

#include "backend/kernels.h"

typedef enum network { VGG16, RESNET50, DENSENET121, UNET, MOBILENET2, NETWORKS } network;
extern const char *const network_name[NETWORKS];

enum { NETWORK_BATCH = 64, NETWORK_MOST = 256 };

typedef struct convolutions {
    fri_conv2d_desc conv[NETWORK_MOST]; /* f32, no workspace limit, no bias */
    int n;
} convolutions;

fr_module *network_make(network which); /* on meta */
/* For NETWORK_BATCH images of 224 pixels. */
void network_convolutions(network which, convolutions *out);

#endif
