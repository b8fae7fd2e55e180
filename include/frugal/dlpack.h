/* dlpack.h - tensors to and from other programs without a copy, by DLPack (https://dmlc.github.io/dlpack, version 1).
 *
 * The two structs are DLPack's own; dlpack.h of that project, or of PyTorch, NumPy or any other user of it, shows what
 * is in them, and may be included before or after this header. CPU tensors only. */
#ifndef FRUGAL_DLPACK_H
#define FRUGAL_DLPACK_H

#include <frugal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensorVersioned; /* what a Python capsule calls "dltensor_versioned" */
struct DLManagedTensor;          /* before version 1: "dltensor" */

/* t's bytes for another program: compact, strides in elements, shared with t. *out keeps the memory alive until its
 * deleter is called, which must happen on the thread that trains. Both sides see what the other writes.
 * errors: FR_EUSAGE if t requires grad (export fr_tensor_detach of it), FR_EUNSUPPORTED for a device but the CPU. */
FR_API fr_status fr_tensor_to_dlpack(fr_tensor *t, struct DLManagedTensorVersioned **out);
FR_API fr_status fr_tensor_to_dlpack_legacy(fr_tensor *t, struct DLManagedTensor **out);

/* A tensor on the memory of another program. On success *managed is taken over and cleared: its deleter is called when
 * the last user of the memory is gone. On failure it stays the caller's. The memory is in no report, and no op
 * writes its result over it unless the program says fr_..._inplace.
 * errors: FR_EFORMAT for another major version, FR_EDTYPE and FR_ESHAPE for what frugal has not, FR_EUNSUPPORTED for
 * another device, for strides that are not compact row-major, and for read-only memory. */
FR_API fr_status fr_tensor_from_dlpack(struct DLManagedTensorVersioned **managed, fr_tensor **out);
FR_API fr_status fr_tensor_from_dlpack_legacy(struct DLManagedTensor **managed, fr_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
