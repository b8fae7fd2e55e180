/* input.h - the transfer of a batch to an asynchronous device.
 *
 * The batch is copied into one of two page-locked places, in turn, and from there to the device on a stream of its own.
 * So the loader's buffer is free at once, and the host waits only if the batch before the last one is still in its
 * place. */
#ifndef FRI_SESSION_INPUT_H
#define FRI_SESSION_INPUT_H

#include "backend/backend.h"
#include "tensor/tensor.h"

/* Page-locked memory that a batch leaves from. */
typedef struct fri_input_place {
    const fri_streams *streams;
    void *memory;
    size_t bytes;
    fri_fence left; /* passed: it may be written again */
} fri_input_place;

/* Waits until the place is free and makes it large enough. Without page-locked memory its pointer stays NULL. */
fr_status fri_input_room(const fri_streams *streams, fri_input_place *p, size_t bytes);
void fri_input_free(fri_input_place *p);
/* Copies behind this fence, whatever the device does meanwhile. */
fr_status fri_input_transfer(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, fri_fence behind,
                             void *to);
/* Copies after what was queued before and before what is queued next. */
fr_status fri_input_queue(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, void *to);

#endif
