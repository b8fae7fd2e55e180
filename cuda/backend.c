/* backend.c - the CUDA backend's registration.
 *
 * The table answers why the device cannot be used. Its kernels come with the backend itself; until then `available` is
 * false whatever the machine has, and every path that would need a kernel ends with this reason. */
#include "backend/backend.h"

#include <dlfcn.h>

static bool available(const char **reason) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        *reason = "no CUDA driver on this machine (libcuda.so.1 cannot be loaded)";
        return false;
    }
    dlclose(driver);
    *reason = "a CUDA driver is there, but this version of frugal has no CUDA kernels yet";
    return false;
}

static fr_status segment_alloc(size_t bytes, void **out) {
    (void)bytes;
    *out = NULL;
    return FR_EDEVICE;
}

static void segment_free(void *segment, size_t bytes) {
    (void)segment;
    (void)bytes;
}

extern const fri_backend fri_backend_cuda;
const fri_backend fri_backend_cuda = {
    .name = "cuda",
    .device = FR_CUDA,
    .available = available,
    .segment_alloc = segment_alloc,
    .segment_free = segment_free,
};
