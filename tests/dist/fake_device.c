/* fake_device.c - a program that this is linked to runs on the fake CUDA device (tests/cuda/fake.h), and fails if
 * accesses of its streams were not ordered. */
#include "cuda/fake.h"

#include <stdio.h>
#include <unistd.h>

#include "cuda/fake_order.h"

__attribute__((constructor)) static void begin(void) {
    fake_begin();
    fake_kernels();
}

__attribute__((destructor)) static void end(void) {
    if (fake_order_faults() == 0) return;
    fprintf(stderr, "%d accesses without order, the first: %s\n", fake_order_faults(), fake_order_first());
    _exit(3);
}
