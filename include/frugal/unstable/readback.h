/* readback.h - a readback copies a small value from the device to the host without stopping a training step for it.
 *
 * Unstable: see frugal/unstable.h. fr_readback_begin queues the copy into page-locked memory and returns. The tensor
 * may be released at once: the copy runs before whatever uses its bytes next. The host asks for the value some steps
 * on, when the copy is most likely done. On a device without streams of its own (cpu, meta) begin copies the value
 * itself. Handles and checks belong to one thread. */
#ifndef FRUGAL_UNSTABLE_READBACK_H
#define FRUGAL_UNSTABLE_READBACK_H

#include <frugal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FR_READBACK_BYTES = 32 };

/* A handle; zeroed it holds no copy. Its members are the library's own. */
typedef struct fr_readback {
    const struct fri_streams *streams; /* NULL: `bytes` holds the value */
    struct {
        int stream;
        uint64_t number;
    } fence;
    void *pinned;
    fr_dtype dtype;
    uint64_t bytes[FR_READBACK_BYTES / 8];
} fr_readback;

/* Begins the copy of a tensor of at most FR_READBACK_BYTES; on meta its value is NaN. What r held is dropped. */
FR_API fr_status fr_readback_begin(const fr_tensor *t, fr_readback *r);
/* Waits and reads the value of a one-element tensor. */
FR_API fr_status fr_readback_value(fr_readback *r, double *value);
/* Gives the handle's place back without its value. */
FR_API void fr_readback_drop(fr_readback *r);

/* FR_EINVAL for the first index out of range (a target of a loss, an index of an embedding) among the copies of this
 * thread that are done; does not wait. Where a device is asynchronous, ops cannot name a bad index at once. */
FR_API fr_status fr_readback_check_all(void);

#ifdef __cplusplus
}
#endif
#endif
