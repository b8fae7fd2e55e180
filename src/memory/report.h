/* report.h - tables about memory, for people. */
#ifndef FRI_MEMORY_REPORT_H
#define FRI_MEMORY_REPORT_H

#include "memory/allocator.h"

#include <frugal/memory.h>

/* Writes the out-of-memory report (request and origin, totals by category, largest live blocks by tag, fragmentation)
 * as the thread's error sentence; returns FR_ENOMEM. */
fr_status fri_report_out_of_memory(const fri_allocator *a, size_t requested, const fr_tag *tag);

/* The shape in PyTorch's order: rank 4 is (N, C, H, W) or (K, C, R, S), though memory holds the channels last. */
const char *fri_report_shape(const fr_shape *s, char buf[FRI_SHAPE_TEXT]);

/* Is every allocation a segment of its own (FRUGAL_NO_POOL=1)? Then there are neither cache nor arenas. */
bool fri_memory_unpooled(void);

/* Sums over all pools of the device. The pools reach their peaks at different times, so sums of peaks are upper
 * bounds, without op and module. */
fr_status fri_memory_process_get(fr_device d, fr_memory_stats *out);
/* Text of the memory in use, with the driver's numbers: lines for requested, allocated and reserved as in `now`, for
 * the process, the part outside the engine, and the device. "" without a driver's number. Returns buf. */
enum { FRI_MEMORY_USE_TEXT = 640 };
const char *fri_memory_use_text(fr_device d, const fr_memory_stats *now, char buf[FRI_MEMORY_USE_TEXT]);

#endif
