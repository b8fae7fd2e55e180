/* uses.h - memory that another stream still reads or writes.
 *
 * All blocks belong to the compute stream: what it queued last may be using a block that is handed out again, and order
 * in the stream makes that right. A second stream has no such order. So whoever uses a block there says until which
 * fence (torch's record_stream), and a place is not handed out, nor given back to the device, before that has passed:
 * the compute stream follows the fence, the host waits only where the segment itself goes away. Which place a request
 * gets does not depend on it, so a dry run and a run agree. */
#ifndef FRI_MEMORY_USES_H
#define FRI_MEMORY_USES_H

#include "backend/backend.h"

typedef struct fri_use {
    const char *begin, *end;
    fri_fence fence;
} fri_use;

typedef struct fri_uses {
    fri_use *items;
    size_t count;
} fri_uses;

/* FR_ENOMEM: no host memory for the record. */
fr_status fri_uses_add(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes, fri_fence fence);
/* Makes the compute stream wait for all recorded fences of the bytes. Called before a reuse. */
fr_status fri_uses_follow(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes);
/* Waits until no stream uses the bytes. Called before a return to the device. */
void fri_uses_wait(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes);

#endif
