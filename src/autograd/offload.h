/* offload.h - stores saved activations outside of device memory until backward. */
#ifndef FRI_AUTOGRAD_OFFLOAD_H
#define FRI_AUTOGRAD_OFFLOAD_H

#include "tensor/storage.h"

/* Bytes of one storage, shared by all slots that held the storage. */
typedef struct fri_offloaded {
    int references;
    fri_block *block; /* space in the offload file */
    size_t bytes;
    const fri_streams *streams; /* streams of the copies; NULL: a file */
} fri_offloaded;

/* Copies a storage's bytes to the store. NULL if there is no space, and the storage stays. */
fri_offloaded *fri_offload_out(const fri_storage *s);
/* Copies the bytes back into dst (of equal size), which must not be read before fri_offload_arrived. */
fr_status fri_offload_in(const fri_offloaded *o, const fri_backend *b, void *dst, fri_fence *arrived);
fr_status fri_offload_arrived(const fri_backend *b, fri_fence arrived);
void fri_offload_release(fri_offloaded *o);

#endif
