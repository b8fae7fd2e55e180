/* cudnn.h - cuDNN's graph API, opened at the first use, and the device that plans are made for.
 *
 * Plans are always made for a device description, never for a handle: with a GPU it is that GPU's own, without one a
 * stored one (H200). So a dry run on a machine without a driver and a run on the GPU take the same path and come to the
 * same workspaces. */
#ifndef FRI_CUDA_CUDNN_H
#define FRI_CUDA_CUDNN_H

#define CUDNN_WARN_DEPRECATED 1 /* keeps the deprecated half of the library out of this tree */
#include <cudnn_graph.h>
#include <frugal/base.h>

/* clang-format off */
#define FRI_CUDNN_MAP(X)                                                                              \
    X(GetVersion) X(GetErrorString) X(GetLastErrorString) X(Create) X(SetStream)                      \
    X(BackendCreateDescriptor) X(BackendDestroyDescriptor) X(BackendFinalize) X(BackendSetAttribute)  \
    X(BackendGetAttribute) X(BackendExecute)
/* clang-format on */

typedef struct fri_cudnn {
#define FRI_CUDNN_SLOT(name) __typeof__(cudnn##name) *name;
    FRI_CUDNN_MAP(FRI_CUDNN_SLOT)
#undef FRI_CUDNN_SLOT
} fri_cudnn;

/* CUDNN_ATTR_EXECUTION_PLAN_HANDLE, whose enumerator is marked as deprecated: a plan that is to be executed still has
 * no other way to name its handle. */
#define FRI_CUDNN_PLAN_HANDLE ((cudnnBackendAttributeName_t)400)

/* The library, opened once; NULL: reason holds one line. FRUGAL_CUDNN names its file or folder. */
const fri_cudnn *fri_cudnn_open(char *reason, size_t bytes);

/* FR_OK for CUDNN_STATUS_SUCCESS, else FR_ELIBRARY with the call's name and cuDNN's sentence; FR_ENOMEM
 * where it found no memory on the device. */
fr_status fri_cudnn_check(const fri_cudnn *dnn, cudnnStatus_t code, const char *call);

/* The description that plans are made for: a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, alive until the process
 * ends. FRUGAL_CUDA_DEVICE names a file with another one, as JSON. */
fr_status fri_cudnn_device(cudnnBackendDescriptor_t *out);

/* True if plans are made for a GPU that is here, so that they can be timed. */
bool fri_cudnn_device_is_here(void);

/* "NVIDIA H200" or what the description in use says. */
const char *fri_cudnn_device_name(void);

/* The JSON text of the description in use, for a file that planning reads elsewhere; free it. */
fr_status fri_cudnn_device_json(char **text);

/* A handle that works on the stream, one per thread: plans are not promised to be thread-safe. */
fr_status fri_cudnn_handle(void *stream, cudnnHandle_t *out);

#endif
