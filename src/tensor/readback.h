/* readback.h - readbacks for ops (frugal/unstable/readback.h). */
#ifndef FRI_TENSOR_READBACK_H
#define FRI_TENSOR_READBACK_H

#include "tensor/tensor.h"

#include <frugal/unstable/readback.h>

/* Is the copy done? Does not wait. */
bool fri_readback_arrived(const fr_readback *r);
/* Waits for the copy; then r->bytes holds the tensor's bytes. */
fr_status fri_readback_wait(fr_readback *r);

/* Reads back a position, -1 if right: bad [1] i64, written by a kernel of an asynchronous device. Once the copy is
 * done, fr_readback_check_all fails with "<op>: <what> <position> is outside 0..<limit>". */
fr_status fri_readback_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);

#endif
