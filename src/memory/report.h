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

fr_status fri_memory_flows_get(fr_device d, fr_memory_flows *out);
/* Is every allocation a segment of its own (FRUGAL_NO_POOL=1)? Then there are neither cache nor arenas. */
bool fri_memory_unpooled(void);

#endif
