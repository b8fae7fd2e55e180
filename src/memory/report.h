/* report.h - tables about memory, for people. */
#ifndef FRI_MEMORY_REPORT_H
#define FRI_MEMORY_REPORT_H

#include "memory/allocator.h"

/* Writes the out-of-memory report (what was asked for and by whom, totals by category, largest live blocks by tag,
 * fragmentation) as the thread's error sentence; returns FR_ENOMEM. */
fr_status fri_report_out_of_memory(const fri_allocator *a, size_t requested, const fri_tag *tag);

/* Where a driver counts too: lines for requested, allocated and reserved as in `now`, for the process, what of it the
 * engine does not see, and the device. "" on other devices, or if nobody knows. Returns buf. */
enum { FRI_USE_TEXT = 640 };
const char *fri_report_use(fr_device d, const fr_memory_stats *now, char buf[FRI_USE_TEXT]);

/* "1.50 GiB", "12.0 KiB", "512 B" into buf; returns buf. */
enum { FRI_BYTES_TEXT = 32 };
const char *fri_bytes_text(size_t bytes, char buf[FRI_BYTES_TEXT]);

/* The shape as PyTorch's users read it: rank 4 is (N, C, H, W) or (K, C, R, S), though memory holds the channels
 * last. */
const char *fri_report_shape(const fri_shape *s, char buf[FRI_SHAPE_TEXT]);

#endif
