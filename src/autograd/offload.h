/* offload.h - saved activations that wait for backward outside device memory. */
#ifndef FRI_AUTOGRAD_OFFLOAD_H
#define FRI_AUTOGRAD_OFFLOAD_H

#include "tensor/storage.h"

/* The bytes of one storage, shared by the slots that held it. */
typedef struct fri_offloaded {
    int references;
    fri_block *block; /* in the offload file */
    size_t bytes;
    const fri_streams *streams; /* that copy it; NULL: it is in a file */
} fri_offloaded;

/* Copies a storage's bytes out. NULL if the file cannot take them: the storage then simply stays. */
fri_offloaded *fri_offload_out(const fri_storage *s);
/* Copies them into dst, which has their size and is not read before fri_offload_arrived. */
fr_status fri_offload_in(const fri_offloaded *o, const fri_backend *b, void *dst, fri_fence *arrived);
fr_status fri_offload_arrived(const fri_backend *b, fri_fence arrived);
void fri_offload_release(fri_offloaded *o);

#endif
