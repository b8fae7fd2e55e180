/* tracker.h - counts tensors by kind, and prints the difference between two points, a line per kind.
 *
 * The lines are those of the memory trackers in PyTorch's guides ("+ | 7 * Size:(512, 512, 3, 3) | Memory: 66.060 M"):
 * shapes in PyTorch's order, decimal megabytes cut off after six characters. A kind with a changed count has a line
 * with the difference, largest first, with category, element type and bytes. Small sizes have no exponent. */
#ifndef FRI_VIEWS_TRACKER_H
#define FRI_VIEWS_TRACKER_H

#include <frugal/base.h>
#include <stdio.h>

/* Tensors of a kind: the count now, and at the last point. */
typedef struct fri_tracker_kind {
    fr_tag tag;
    size_t each; /* bytes */
    int64_t count, before;
} fri_tracker_kind;

typedef struct fri_tracker {
    fri_tracker_kind *kinds;
    size_t n;
    bool no_memory; /* host memory ran out: counts are incomplete */
} fri_tracker;

/* Bytes of the tensor in a block: requests are rounded up to 512. A code (bits of a mask) differs in size from the
 * tensor's shape. */
size_t fri_tracker_bytes(const fr_tag *tag, size_t requested);
void fri_tracker_count(fri_tracker *t, const fr_tag *tag, size_t bytes, int by);
/* "At <where> Total Used Memory:...", then the lines since the point before. */
void fri_tracker_point(fri_tracker *t, const char *where, FILE *out);
void fri_tracker_free(fri_tracker *t);

/* "66.060", "0.004": bytes / 10^6 without trailing zeros, cut off. */
enum { FRI_MEGABYTES_TEXT = 7 };
const char *fri_tracker_megabytes(size_t bytes, char text[FRI_MEGABYTES_TEXT]);

#endif
