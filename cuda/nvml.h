/* nvml.h - what the driver counts: memory in use on the device, and of it this process's.
 *
 * NVML is opened at the first use, by FRUGAL_NVML or its soname. Its header is not part of a small toolkit, so the five
 * functions and two structures are declared here as nvml.h has them: nvmlMemory_v2_t, and nvmlProcessInfo_t of the _v3
 * call. On a slice of a device (MIG) the numbers are the whole device's. */
#ifndef FRI_CUDA_NVML_H
#define FRI_CUDA_NVML_H

#include "backend/backend.h"

typedef struct fri_nvml_memory {
    unsigned version; /* FRI_NVML_MEMORY_VERSION on the way in */
    unsigned long long total, reserved, free, used;
} fri_nvml_memory;

typedef struct fri_nvml_process {
    unsigned pid;
    unsigned long long used; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
} fri_nvml_process;

#define FRI_NVML_MEMORY_VERSION ((unsigned)sizeof(fri_nvml_memory) | 2u << 24)

enum { FRI_NVML_SUCCESS = 0, FRI_NVML_INSUFFICIENT_SIZE = 7 };

/* X(slot, symbol, parameters): all return an nvmlReturn_t but for ErrorString. */
/* clang-format off */
#define FRI_NVML_MAP(X)                                                                                          \
    X(init, "nvmlInit_v2", (void))                                                                               \
    X(handle, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **device))                              \
    X(memory, "nvmlDeviceGetMemoryInfo_v2", (void *device, fri_nvml_memory *out))                                \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (void *device, unsigned *n, fri_nvml_process *out))
/* clang-format on */

typedef struct fri_nvml {
#define FRI_NVML_SLOT(slot, symbol, parameters) int(*slot) parameters;
    FRI_NVML_MAP(FRI_NVML_SLOT)
#undef FRI_NVML_SLOT
    const char *(*error)(int code);
} fri_nvml;

/* The library, opened and initialized once; NULL: *reason is one line in static storage. */
const fri_nvml *fri_nvml_open(const char **reason);

/* Notes what the device holds before this process makes its context: where the driver does not list the process (in a
 * container), the growth since then stands for it. Does nothing without NVML. */
void fri_nvml_baseline(int device);

/* The backend's slot: NVML's numbers; without NVML the device's from cudaMemGetInfo, once there is a context. */
void fri_cuda_memory_use(fr_memory_use *out);

#endif
