/* memory.h - device memory, and copies without waits.
 *
 * A copy from ordinary host memory goes through a ring of pinned slots: the bytes are copied there by the CPU, the
 * transfer is queued, and the caller may reuse its memory at once. The host waits only when the ring is full, for the
 * oldest slot. The first copy allocates the ring. */
#ifndef FRI_CUDA_MEMORY_H
#define FRI_CUDA_MEMORY_H

#include "context.h"

enum {
    FRI_STAGING_SLOTS = 3,               /* a slot in filling, a slot in transfer, a free slot */
    FRI_STAGING_BYTES = 8 * 1024 * 1024, /* long enough that a transfer hides the next slot's filling */
};

fr_status fri_cuda_segment_alloc(size_t bytes, void **out);
void fri_cuda_segment_free(void *segment, size_t bytes);
void fri_cuda_memory_info(size_t *free_bytes, size_t *total_bytes);
fr_status fri_cuda_room(size_t *bytes);
fr_status fri_cuda_copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes);

/* Off: copies from the host wait instead of using pinned slots. On at the start. */
void fri_cuda_pin_memory(bool on);

/* Gives the pinned slots back. */
void fri_cuda_staging_forget(void);

#endif
