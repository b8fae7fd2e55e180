/* dlpack.h - tensors to and from other programs without a copy, by DLPack (https://dmlc.github.io/dlpack, version 1).
 *
 * The struct is DLPack's; the dlpack.h of DLPack, PyTorch or NumPy defines the members, and may be included before or
 * after frugal's. CPU tensors only. */
#ifndef FRUGAL_DLPACK_H
#define FRUGAL_DLPACK_H

#include <frugal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensorVersioned; /* called by a Python capsule "dltensor_versioned" */

/* t's bytes for another program: compact, strides in elements, shared with t. *out keeps the memory alive until the
 * training thread calls the deleter. Both sides see all writes. errors: FR_EUSAGE if t requires grad (export
 * fr_tensor_detach of it), FR_EUNSUPPORTED for a device but the CPU. */
FR_API fr_status fr_tensor_to_dlpack(fr_tensor *t, struct DLManagedTensorVersioned **out);

/* A tensor on the memory of another program. On success *managed is taken over and cleared; the last user of the
 * memory calls the deleter. On failure the caller keeps *managed. The memory is in no report, and only fr_..._inplace
 * ops write over the memory.
 * errors: FR_EFORMAT for another major version, FR_EDTYPE and FR_ESHAPE for types and ranks unknown to frugal,
 * FR_EUNSUPPORTED for a device but the CPU, for strides that are not compact row-major, and for read-only memory. */
FR_API fr_status fr_tensor_from_dlpack(struct DLManagedTensorVersioned **managed, fr_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
