/* late.h - values that come back from the device late, so that nobody waits inside a training step.
 *
 * fri_late_begin queues the copy into page-locked memory; the tensor may be released at once, the copy runs before
 * whatever uses its bytes next. Who needs the value asks later, when the device has most likely got there. On a device
 * without streams of its own (cpu, meta) the value is there at once. Handles and late values belong to one thread. */
#ifndef FRI_TENSOR_LATE_H
#define FRI_TENSOR_LATE_H

#include "tensor/tensor.h"

enum { FRI_LATE_BYTES = 32 };

/* Zeroed: nothing is on its way. */
typedef struct fri_late {
    const fri_streams *streams; /* NULL: the bytes are here */
    fri_fence fence;
    void *pinned;
    int64_t place; /* of a captured step (capture.h), whose memory `pinned` is; 0: of none */
    fr_dtype dtype;
    _Alignas(8) unsigned char bytes[FRI_LATE_BYTES]; /* as for the widest element */
} fri_late;

/* Of a tensor of at most FRI_LATE_BYTES; on meta the value will be NaN. */
fr_status fri_late_begin(const fr_tensor *t, fri_late *l);
bool fri_late_arrived(const fri_late *l);
/* Waits if need be; then l->bytes holds what the tensor held. */
fr_status fri_late_wait(fri_late *l);
/* The same, as the value of a one-element tensor. */
fr_status fri_late_value(fri_late *l, double *value);
void fri_late_drop(fri_late *l); /* nobody will ask any more */

/* Does this device, or the one that meta stands for, work while the host goes on? */
bool fri_device_runs_ahead(fr_device d);

/* bad [1] i64, of a device that runs ahead: a position that a kernel found something wrong at, or -1. The failure
 * appears when it has arrived, from fri_late_check_all: "<op>: <what> <position> is outside 0..<limit>". */
fr_status fri_late_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);
/* The same for a value that is on its way already. */
fr_status fri_late_check_later(const fri_late *bad, const char *op, const char *what, int64_t limit);
/* Those whose page-locked memory lies here are forgotten: it goes. */
void fri_late_check_drop(const void *memory, size_t bytes);
/* FR_EINVAL for the first bad position that has arrived; does not wait. */
fr_status fri_late_check_all(void);

#endif
