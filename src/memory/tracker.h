/* tracker.h - how the tracker (frugal/unstable/tracker.h) writes bytes and shapes. */
#ifndef FRI_MEMORY_TRACKER_H
#define FRI_MEMORY_TRACKER_H

#include "base/tag.h"

#include <frugal/unstable/tracker.h>

/* "66.060", "0.004": bytes / 10^6 without trailing zeros, cut off. */
enum { FRI_MEGABYTES_TEXT = 7 };
const char *fri_tracker_megabytes(size_t bytes, char text[FRI_MEGABYTES_TEXT]);
/* "(512, 512, 3, 3)", "(64,)": NHWC and KRSC are written as NCHW and KCRS. */
const char *fri_tracker_shape(const fr_shape *s, char text[FRI_SHAPE_TEXT]);

#endif
