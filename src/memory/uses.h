/* uses.h - memory that another stream still reads or writes.
 *
 * All blocks belong to the compute stream, whose order makes reuse safe. A block in use by a second stream is marked
 * with a fence (torch: record_stream). The block is not reused, nor returned to the device, before the fence has
 * passed: the compute stream follows the fence, and the host waits only where the segment itself goes away. Fences do
 * not decide which place a request gets, so a dry run and a run agree. */
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
