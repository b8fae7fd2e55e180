/* fake_device.c - linked programs run on the fake CUDA device (tests/cuda/fake.h), and fail if stream accesses were
 * not ordered. */
#include "cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "cuda/context.h"
#include "addons/ranks/fake_nccl.h"
#include "cuda/fake_order.h"

__attribute__((constructor)) static void begin(void) {
    fake_begin();
    fake_kernels();
    static fri_backend device;
    device = *fri_backend_get(FR_CUDA);
    device.describe = fri_cuda_describe;
    fri_backend_override(FR_CUDA, &device);
    const char *nccl = getenv("PLANTED_NCCL"), *driver = getenv("PLANTED_DRIVER"), *memory = getenv("PLANTED_MEMORY");
    if (memory != NULL) fake.memory = strtoull(memory, NULL, 10);
    if (driver != NULL) fake.driver = atoi(driver);
    if (nccl != NULL) fake_nccl_begin(strcmp(nccl, "stalls") == 0);
}

__attribute__((destructor)) static void end(void) {
    if (getenv("PLANTED_WAITS") != NULL) fprintf(stderr, "waits for a stream: %d\n", fake.stream_waits);
    if (fake_order_faults() == 0) return;
    fprintf(stderr, "%d accesses without order, the first: %s\n", fake_order_faults(), fake_order_first());
    _exit(3);
}
