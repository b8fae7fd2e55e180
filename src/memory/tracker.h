/* tracker.h - which tensors came alive and which died between two points, one line per kind of tensor.
 *
 * The lines are those of the memory trackers that PyTorch's guides use ("+ | 7 * Size:(512, 512, 3, 3) | Memory: 66.060
 * M"): shapes in PyTorch's order, decimal megabytes cut off after six characters; but a kind whose count changed has
 * one line with the difference, largest first, with category, element type and bytes, and small sizes are never
 * written with an exponent that the cut would lose. */
#ifndef FRI_MEMORY_TRACKER_H
#define FRI_MEMORY_TRACKER_H

#include "base/tag.h"

#include <stdio.h>

/* Tensors of one kind: how many there are, and were at the last point. */
typedef struct fri_tracker_kind {
    fri_tag tag;
    size_t each; /* bytes */
    int64_t count, before;
} fri_tracker_kind;

typedef struct fri_tracker {
    fri_tracker_kind *kinds;
    size_t n;
    bool no_memory; /* host memory ran out: counts are incomplete */
} fri_tracker;

/* Bytes of the tensor in a block: requests are rounded up to 512. A code (bits of a mask) has another size than its
 * tensor's shape. */
size_t fri_tracker_bytes(const fri_tag *tag, size_t requested);
void fri_tracker_count(fri_tracker *t, const fri_tag *tag, size_t bytes, int by);
/* "At <where> Total Used Memory:...", then the lines since the point before. */
void fri_tracker_point(fri_tracker *t, const char *where, FILE *out);
void fri_tracker_free(fri_tracker *t);

/* "66.060", "0.004": bytes / 10^6 without trailing zeros, cut off. */
enum { FRI_MEGABYTES_TEXT = 7 };
const char *fri_tracker_megabytes(size_t bytes, char text[FRI_MEGABYTES_TEXT]);
/* "(512, 512, 3, 3)", "(64,)": NHWC and KRSC are written as NCHW and KCRS. */
const char *fri_tracker_shape(const fri_shape *s, char text[FRI_SHAPE_TEXT]);

#endif
