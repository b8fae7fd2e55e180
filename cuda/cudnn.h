/* cudnn.h - cuDNN's graph API, opened at the first use, and the device that plans are made for.
 *
 * Plans are always made for a device description, never for a handle: with a GPU it is that GPU's own, without one a
 * stored one (H200). So a dry run on a machine without a driver and a run on the GPU take the same path and come to the
 * same workspaces. */
#ifndef FRI_CUDA_CUDNN_H
#define FRI_CUDA_CUDNN_H

#define CUDNN_WARN_DEPRECATED 1 /* excludes the library's deprecated half */
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

/* CUDNN_ATTR_EXECUTION_PLAN_HANDLE, whose enumerator is marked as deprecated: an executed plan still needs the
 * attribute to name the handle. */
#define FRI_CUDNN_PLAN_HANDLE ((cudnnBackendAttributeName_t)400)

/* The library, opened once; NULL: reason holds a line. FRUGAL_CUDNN names the file or folder. */
const fri_cudnn *fri_cudnn_open(char *reason, size_t bytes);

/* FR_OK for CUDNN_STATUS_SUCCESS, else FR_ELIBRARY with the call's name and cuDNN's sentence; FR_ENOMEM if device
 * memory is exhausted. */
fr_status fri_cudnn_check(const fri_cudnn *dnn, cudnnStatus_t code, const char *call);

/* The description for plans: a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, alive until the process ends.
 * FRUGAL_CUDA_DEVICE names a file with a description, as JSON. */
fr_status fri_cudnn_device(cudnnBackendDescriptor_t *out);

/* True if plans are for a present GPU, and so can be timed. */
bool fri_cudnn_device_is_here(void);

/* "NVIDIA H200" or the description's values. */
const char *fri_cudnn_device_name(void);

/* The JSON text of the description in use, for plans on a different machine; free the text. */
fr_status fri_cudnn_device_json(char **text);

/* A handle on the stream, per thread: plans are not promised to be thread-safe. */
fr_status fri_cudnn_handle(void *stream, cudnnHandle_t *out);

#endif
