/* runtime.h - the CUDA libraries as tables of functions.
 *
 * cudart is linked (cudart_static: nvcc's objects need it, and it starts without a driver); cuDNN, cuBLASLt and NVML
 * are opened at the first use, so a binary runs on machines without CUDA. Host code also calls cudart through a table,
 * so tests can use fakes for failing calls, missing libraries and events without a GPU. */
#ifndef FRI_CUDA_RUNTIME_H
#define FRI_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Every cudart function of host code. */
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

/* Replaces the table and forgets facts from the old table (device, streams, staging). NULL: the real table. For tests,
 * before anything lives on the device. */
void fri_cuda_use(const fri_cudart *table);

/* How libraries are opened; a test's own functions refuse or hand out fakes. */
typedef struct fri_cuda_opener {
    void *(*open)(const char *name);
    void *(*symbol)(void *library, const char *name);
} fri_cuda_opener;
extern const fri_cuda_opener *fri_cuda_opener_table;

/* Opens a library: the environment variable's file or folder (value, NULL if unset), else by soname, else in the
 * build's folders. NULL: `reason` holds a line. */
void *fri_cuda_open(const char *variable, const char *value, const char *soname, char *reason, size_t reason_bytes);

/* *slot, a pointer to a function, becomes the symbol's; false: the library lacks the symbol, for `reason`. */
bool fri_cuda_symbol(void *library, const char *soname, const char *symbol, void *slot, char *reason,
                     size_t reason_bytes);

#endif
