/* dnnl_cache.h - what was created for a key once, kept for the life of the process. */
#ifndef FRI_CPU_DNNL_CACHE_H
#define FRI_CPU_DNNL_CACHE_H

#include "backend/kernels.h"

/* Compared and hashed as bytes, so every element is set: unused ones are 0. */
typedef struct fri_dnnl_key {
    int64_t word[20];
} fri_dnnl_key;

/* Makes the value of a key; NULL with FR_OK is an answer too ("there is none") and is kept. */
typedef fr_status fri_dnnl_make_fn(const fri_dnnl_key *key, const void *args, void **value);

/* *value = what make answered for this key, now or earlier; failures are not kept. Thread-safe: make runs under the
 * cache's lock and must not call back. */
fr_status fri_dnnl_cache_get(const fri_dnnl_key *key, fri_dnnl_make_fn *make, const void *args, void **value);

#endif
