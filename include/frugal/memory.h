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

/* Memory of the process as the system counts it: the resident set on the CPU, the driver's number elsewhere. *out is
 * 0 if unknown. */
FR_API void fr_memory_use_get(fr_device d, fr_memory_use *out);

/* "1.50 GiB", "12.0 KiB", "512 B" into buf; returns buf. */
enum { FR_BYTES_TEXT = 32 };
FR_API const char *fr_bytes_text(size_t bytes, char buf[FR_BYTES_TEXT]);

/* Prints the table of live memory by category, with peaks, as torch.cuda.memory_summary. */
FR_API fr_status fr_memory_summary(fr_device d, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
