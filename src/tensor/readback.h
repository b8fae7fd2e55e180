/* readback.h - copies of small results to the host, without a wait where the device is asynchronous. */
#ifndef FRI_TENSOR_READBACK_H
#define FRI_TENSOR_READBACK_H

#include "tensor/tensor.h"

enum { FR_READBACK_BYTES = 32 };

/* Handle of a copy; all zero: no copy. */
typedef struct fri_readback {
    const struct fri_streams *streams; /* NULL: `bytes` holds the value */
    struct {
        int stream;
        uint64_t number;
    } fence;
    void *pinned;
    fr_dtype dtype;
    uint64_t bytes[FR_READBACK_BYTES / 8];
} fri_readback;

/* Drops the copy of r, and begins the copy of a tensor of at most FR_READBACK_BYTES; the value is NaN on meta. The
 * tensor may be released at once. */
fr_status fri_readback_begin(const fr_tensor *t, fri_readback *r);
/* Waits and reads the value of a one-element tensor. */
fr_status fri_readback_value(fri_readback *r, double *value);
/* Releases the handle's buffer without reading the value. */
void fri_readback_drop(fri_readback *r);

/* FR_EINVAL for the first index out of range (a target of a loss, an index of an embedding) among the thread's
 * completed copies; does not wait. On an asynchronous device an op cannot report a bad index at once. */
fr_status fri_readback_check_all(void);

/* Is the copy done? Does not wait. */
bool fri_readback_arrived(const fri_readback *r);
/* Waits for the copy; then r->bytes holds the tensor's bytes. */
fr_status fri_readback_wait(fri_readback *r);

/* Reads back a position, -1 if right: bad [1] i64, written by a kernel of an asynchronous device. Once the copy is
 * done, fri_readback_check_all fails with "<op>: <what> <position> is outside 0..<limit>". */
fr_status fri_readback_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);

#endif
