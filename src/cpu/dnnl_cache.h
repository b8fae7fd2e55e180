/* dnnl_cache.h - values created once per key and kept for the life of the process. */
#ifndef FRI_CPU_DNNL_CACHE_H
#define FRI_CPU_DNNL_CACHE_H

#include "backend/kernels.h"

/* Compared and hashed as bytes, so unused elements must be 0. */
typedef struct fri_dnnl_key {
    int64_t word[20];
} fri_dnnl_key;

/* Creates the value of a key. NULL with FR_OK means "not available" and is cached too. */
typedef fr_status fri_dnnl_make_fn(const fri_dnnl_key *key, const void *args, void **value);

/* *value: result of `make` for this key, now or earlier; failures are not cached. Thread-safe: make runs under the
 * cache's lock and must not call back. */
fr_status fri_dnnl_cache_get(const fri_dnnl_key *key, fri_dnnl_make_fn *make, const void *args, void **value);

#endif
