/* networks.h - the distinct convolutions of the library's networks, for tests that plan them. */
#ifndef TESTS_CUDA_NETWORKS_H
#define TESTS_CUDA_NETWORKS_H

#include <frugal/nn.h>

#include "backend/kernels.h"

typedef enum network { VGG16, RESNET50, DENSENET121, UNET, MOBILENET2, EFFICIENTNET_B0, CONVNEXT, NETWORKS } network;
extern const char *const network_name[NETWORKS];

enum { NETWORK_BATCH = 64, NETWORK_MOST = 256 };

typedef struct convolutions {
    fri_conv2d_desc conv[NETWORK_MOST]; /* f32, no workspace limit, no bias */
    int n;
} convolutions;

/* Creates a network on meta; the last two are an add-on's, and only their convolutions are known here. */
fr_module *network_make(network which);
/* Convolutions of a network for NETWORK_BATCH images of 224 pixels. */
void network_convolutions(network which, convolutions *out);

#endif
