/* readback.h - a readback copies a small value from the device to the host without stopping a training step for it.
 *
 * fri_readback_begin queues the copy into page-locked memory and returns. The tensor may be released at once: the copy
 * runs before whatever uses its bytes next. The host asks for the value some steps on, when the copy is most likely
 * done. On a device without streams of its own (cpu, meta) begin copies the value itself. Handles and checks belong to
 * one thread. */
#ifndef FRI_TENSOR_READBACK_H
#define FRI_TENSOR_READBACK_H

#include "tensor/tensor.h"

enum { FRI_READBACK_BYTES = 32 };

/* A handle; zeroed it holds no copy. */
typedef struct fri_readback {
    const fri_streams *streams; /* NULL: `bytes` holds the value */
    fri_fence fence;
    void *pinned;
    int64_t place; /* of a captured step (capture.h), whose memory `pinned` is; 0: of none */
    fr_dtype dtype;
    _Alignas(8) unsigned char bytes[FRI_READBACK_BYTES]; /* as for the widest element */
} fri_readback;

/* Begins the copy of a tensor of at most FRI_READBACK_BYTES; on meta its value is NaN. */
fr_status fri_readback_begin(const fr_tensor *t, fri_readback *r);
/* Is the copy done? Does not wait. */
bool fri_readback_arrived(const fri_readback *r);
/* Waits for the copy; then r->bytes holds what the tensor held. */
fr_status fri_readback_wait(fri_readback *r);
/* Waits and reads the value of a one-element tensor. */
fr_status fri_readback_value(fri_readback *r, double *value);
/* Gives the handle's place back without its value. */
void fri_readback_drop(fri_readback *r);

/* Do the kernels of this device, or of the one that meta stands for, run while the host goes on? */
bool fri_device_is_asynchronous(fr_device d);

/* Reads back a position that must be -1: bad [1] i64, written by a kernel of an asynchronous device. Once the copy is
 * done, fri_readback_check_all fails with "<op>: <what> <position> is outside 0..<limit>". */
fr_status fri_readback_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);
/* The same for a readback that has begun. */
fr_status fri_readback_check_begun(const fri_readback *bad, const char *op, const char *what, int64_t limit);
/* Forgets the checks whose page-locked memory lies in these bytes, which are about to be released. */
void fri_readback_check_drop(const void *memory, size_t bytes);
/* FR_EINVAL for the first bad position among the copies that are done; does not wait. */
fr_status fri_readback_check_all(void);

#endif
