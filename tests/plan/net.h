/* net.h - a small convolutional network of plain ops, trained by the plan tests. */
#ifndef TESTS_PLAN_NET_H
#define TESTS_PLAN_NET_H

#include <frugal/autograd.h>
#include <frugal/ops.h>

enum { NET_BLOCKS = 3, NET_PARAMETERS = 4 * NET_BLOCKS + 1 };

typedef struct net {
    fr_device device;
    fr_tensor *parameters[NET_PARAMETERS]; /* per block: w, b, gamma, beta; then the classifier */
    fr_tensor *running_mean[NET_BLOCKS], *running_var[NET_BLOCKS];
} net;

fr_status net_create(net *n, fr_device device);
void net_release(net *n);
/* Forward, loss and backward on a batch made from the thread's generator; gradients are left in the leaves. */
fr_status net_step(net *n, int64_t batch, double *loss);
/* p -= 0.1 * gradient, gradients released. */
fr_status net_update(net *n);

#endif
