/* memory.h - memory statistics: category and use of every byte of device memory.
 *
 * Three numbers, always in bytes:
 *   requested   sum of the live sizes, each rounded up to 512; equal under every allocator, and so the number of
 *   formulas
 *   allocated   the caching allocator's number: requested plus the unsplit tails of blocks (as PyTorch's
 *               torch.cuda.memory_allocated)
 *   reserved    bytes that the allocator holds from the device (torch.cuda.memory_reserved)
 * Peaks are kept since the start or the last fr_memory_reset_peak. */
#ifndef FRUGAL_MEMORY_H
#define FRUGAL_MEMORY_H

#include <frugal/base.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_memory_stats {
    size_t requested, allocated, reserved;
    size_t peak_requested, peak_allocated, peak_reserved;
    size_t requested_by[FR_CATEGORY_COUNT], allocated_by[FR_CATEGORY_COUNT];
    /* Snapshots by category at the first instant of the maximum; the parts add up to the peak, and stay unchanged if
     * a block's category changes later. */
    size_t at_peak_requested[FR_CATEGORY_COUNT], at_peak_allocated[FR_CATEGORY_COUNT];
    const char *peak_op, *peak_module; /* scope at the instant of peak_allocated; "" outside; static storage */
    fr_phase peak_phase;
    uint64_t allocs, frees;                 /* blocks handed out and given back */
    uint64_t segment_allocs, segment_frees; /* calls to the device's allocator */
    uint64_t retries;                       /* times cached segments were freed to satisfy a request */
    uint64_t ooms;                          /* failed requests */
    size_t largest_free;                    /* largest cached block */
    size_t limit;                           /* cap on reserved, SIZE_MAX if none */
} fr_memory_stats;

/* A pool is separate memory on a device, as PyTorch's MemPool: blocks, cache, limit, statistics and arena. Between
 * begin and end the calling thread allocates from the pool, and the functions below and in plan.h refer to the pool.
 * Threads outside any pool share the device's default pool. A training with a pool is exact to the byte, independent
 * of further threads.
 *
 * A block returns to the pool of the allocation, whichever thread frees the block. Release drops the pool; live
 * blocks stay valid, and the last free destroys the pool. Begin and end nest; end takes begin's value, on begin's
 * thread. create: FR_EDEVICE if the device cannot be used, FR_ENOMEM. */
typedef struct fr_pool fr_pool;
typedef struct fr_pool_state {
    fr_device device;
    fr_pool *entered, *pool;
    struct fri_event_log *log;
} fr_pool_state;
FR_API fr_status fr_pool_create(fr_device d, fr_pool **out);
FR_API void fr_pool_release(fr_pool **pool);
FR_API fr_status fr_pool_begin(fr_pool *pool, fr_pool_state *was);
FR_API void fr_pool_end(fr_pool_state was);

/* Statistics of the thread's pool on the device. FR_EDEVICE if the build lacks the device. */
FR_API fr_status fr_memory_stats_get(fr_device d, fr_memory_stats *out);

/* Peaks start again from the current values. */
FR_API fr_status fr_memory_reset_peak(fr_device d);

/* Gives all wholly free segments back to the device, as torch.cuda.empty_cache. */
FR_API fr_status fr_memory_empty_cache(fr_device d);

/* No allocation takes reserved memory above `bytes`; SIZE_MAX removes the cap. A request above the limit returns
 * FR_ENOMEM, with a report in fr_last_error, and changes nothing. */
FR_API fr_status fr_memory_limit_set(fr_device d, size_t bytes);

/* Settings of the caching allocator against fragmentation, in PyTorch's words (PYTORCH_CUDA_ALLOC_CONF) and by
 * PyTorch's rules, to the byte: "key:value,key:value"; "": none, the default. FRUGAL_ALLOC sets them for every pool;
 * this call for the thread's pool on the device, best before the first allocation.
 *   max_split_size_mb:M              M >= 20. Blocks of M MiB or more are never split: a smaller request never uses
 *                                    such a block, a request of M MiB or more only if less than 20 MiB remain
 *   roundup_power2_divisions:D       D a power of two. Requests above 512 D bytes are rounded up to the next of D equal
 *                                    steps between two powers of two; [256:1,512:2,>:4] sets D from 256 MiB, 512 MiB
 *                                    (and from there) on
 *   garbage_collection_threshold:T   0 < T < 1. Above T of the limit (fr_memory_limit_set) a miss frees the wholly
 *                                    free large segments with the longest idle time
 * `requested` knows nothing of them. FR_EINVAL: the sentence names the
 * key, what was expected and what was found. */
FR_API fr_status fr_memory_settings_set(fr_device d, const char *settings);

/* Memory of the process as the system counts it: the resident set on the CPU, the driver's number elsewhere. *out is
 * 0 if unknown. */
FR_API void fr_memory_use_get(fr_device d, fr_memory_use *out);

/* "1.50 GiB", "12.0 KiB", "512 B" into buf; returns buf. */
enum { FR_BYTES_TEXT = 32 };
FR_API const char *fr_bytes_text(size_t bytes, char buf[FR_BYTES_TEXT]);

/* Statistics of torch.cuda.memory_stats, by PyTorch's rules: bytes and numbers, of all blocks, of the large pool and
 * of the small pool (requests up to 1 MiB). Of the thread's pool on the device; peaks start again with
 * fr_memory_reset_peak. */
typedef enum fr_memory_flow_kind {
    FR_FLOW_ALLOCATED, /* bytes, with unsplit tails */
    FR_FLOW_REQUESTED,
    FR_FLOW_RESERVED,
    FR_FLOW_INACTIVE_SPLIT, /* bytes: cached pieces of segments with a live piece; cannot go back to the device */
    FR_FLOW_ALLOCATIONS,    /* how many */
    FR_FLOW_SEGMENTS,
    FR_FLOW_INACTIVE_SPLITS,
    FR_FLOW_OVERSIZE_ALLOCATIONS, /* of max_split_size_mb and above */
    FR_FLOW_OVERSIZE_SEGMENTS,
    FR_MEMORY_FLOWS
} fr_memory_flow_kind;
enum { FR_MEMORY_ALL, FR_MEMORY_LARGE, FR_MEMORY_SMALL, FR_MEMORY_POOLS };
typedef struct fr_memory_flow {
    size_t now, peak, total, freed; /* total: all bytes ever allocated; freed: all bytes ever freed */
} fr_memory_flow;
typedef struct fr_memory_flows {
    fr_memory_flow flow[FR_MEMORY_FLOWS][FR_MEMORY_POOLS];
    uint64_t ooms, retries;
} fr_memory_flows;

/* Prints the table of live memory by category, with peaks, and then the flows in the rows and columns of
 * torch.cuda.memory_summary. */
FR_API fr_status fr_memory_summary(fr_device d, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
