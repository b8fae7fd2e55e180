/* nvml.h - the driver's count of the process's device memory, with CUDA's context and libraries.
 *
 * NVML is opened at the first use, by FRUGAL_NVML or the soname. Small toolkits lack nvml.h, so three functions and a
 * structure are declared here: nvmlProcessInfo_t of the _v3 call. */
#ifndef FRI_CUDA_NVML_H
#define FRI_CUDA_NVML_H

#include "backend/backend.h"

typedef struct fri_nvml_process {
    unsigned pid;
    unsigned long long used; /* all ones: unknown */
    unsigned gpu_instance, compute_instance;
} fri_nvml_process;

enum { FRI_NVML_SUCCESS = 0, FRI_NVML_INSUFFICIENT_SIZE = 7 };

/* X(slot, symbol, parameters): all return an nvmlReturn_t. */
/* clang-format off */
#define FRI_NVML_MAP(X)                                                                                          \
    X(init, "nvmlInit_v2", (void))                                                                               \
    X(handle, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **device))                              \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (void *device, unsigned *n, fri_nvml_process *out))
/* clang-format on */

typedef struct fri_nvml {
#define FRI_NVML_SLOT(slot, symbol, parameters) int(*slot) parameters;
    FRI_NVML_MAP(FRI_NVML_SLOT)
#undef FRI_NVML_SLOT
} fri_nvml;

/* The backend's slot, once there is a context: the device's bytes from cudaMemGetInfo, the process's from NVML, or 0 if
 * NVML is unusable or does not list the process, as in some containers. */
void fri_cuda_memory_use(fr_memory_use *out);

#endif
