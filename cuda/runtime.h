/* runtime.h - the CUDA libraries as tables of functions.
 *
 * cudart is linked (cudart_static: nvcc's objects need it, and it starts without a driver); cuDNN, cuBLASLt and NVML
 * are opened at the first use, so one binary runs on machines without CUDA. Host code calls cudart through a table too:
 * a test puts a fake in its place and plays failing calls, missing libraries and events on a machine without a GPU. */
#ifndef FRI_CUDA_RUNTIME_H
#define FRI_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Every cudart function that host code calls. */
/* clang-format off */
#define FRI_CUDART_MAP(X)                                                                                        \
    X(DriverGetVersion) X(GetDeviceCount) X(GetDeviceProperties) X(FuncGetAttributes) X(SetDevice)               \
    X(DeviceSynchronize)                                                                                         \
    X(GetLastError) X(GetErrorString) X(GetErrorName)                                                            \
    X(Malloc) X(Free) X(MemGetInfo) X(HostAlloc) X(FreeHost) X(MemcpyAsync) X(MemsetAsync)                       \
    X(StreamCreateWithFlags) X(StreamSynchronize) X(StreamWaitEvent)              \
    X(EventCreateWithFlags) X(EventDestroy) X(EventRecord) X(EventSynchronize) X(EventQuery) X(EventElapsedTime)
/* clang-format on */

typedef struct fri_cudart {
#define FRI_CUDART_SLOT(name) __typeof__(cuda##name) *name;
    FRI_CUDART_MAP(FRI_CUDART_SLOT)
#undef FRI_CUDART_SLOT
} fri_cudart;

/* The table in use. */
extern const fri_cudart *fri_cudart_table;

/* Puts another table in place and forgets what was found out with the old one (device, streams, staging). NULL: the
 * real one. For tests, before anything lives on the device. */
void fri_cuda_use(const fri_cudart *table);

/* How libraries are opened; a test's own functions refuse or hand out fakes. */
typedef struct fri_cuda_opener {
    void *(*open)(const char *name);
    void *(*symbol)(void *library, const char *name);
} fri_cuda_opener;
extern const fri_cuda_opener *fri_cuda_opener_table;

/* Opens a library: the file or folder that the environment variable named (value, NULL if unset), else by soname, else
 * in the folders that the build found. NULL: `reason` holds one line. */
void *fri_cuda_open(const char *variable, const char *value, const char *soname, char *reason, size_t reason_bytes);

/* *slot, a pointer to a function, becomes that symbol's; false: the library lacks it, and `reason` says so. */
bool fri_cuda_symbol(void *library, const char *soname, const char *symbol, void *slot, char *reason,
                     size_t reason_bytes);

#endif
