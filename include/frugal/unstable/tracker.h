/* tracker.h - which tensors came alive and which died between two points, one line per kind of tensor.
 *
 * Unstable: see frugal/unstable.h. The lines are those of the memory trackers that PyTorch's guides use ("+ | 7 *
 * Size:(512, 512, 3, 3) | Memory: 66.060 M"): shapes in PyTorch's order, decimal megabytes cut off after six
 * characters; but a kind whose count changed has one line with the difference, largest first, with category, element
 * type and bytes, and small sizes are never written with an exponent that the cut would lose. */
#ifndef FRUGAL_UNSTABLE_TRACKER_H
#define FRUGAL_UNSTABLE_TRACKER_H

#include <frugal/base.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors of one kind: how many there are, and were at the last point. */
typedef struct fr_tracker_kind {
    fr_tag tag;
    size_t each; /* bytes */
    int64_t count, before;
} fr_tracker_kind;

typedef struct fr_tracker {
    fr_tracker_kind *kinds;
    size_t n;
    bool no_memory; /* host memory ran out: counts are incomplete */
} fr_tracker;

/* Bytes of the tensor in a block: requests are rounded up to 512. A code (bits of a mask) has another size than its
 * tensor's shape. */
FR_API size_t fr_tracker_bytes(const fr_tag *tag, size_t requested);
FR_API void fr_tracker_count(fr_tracker *t, const fr_tag *tag, size_t bytes, int by);
/* "At <where> Total Used Memory:...", then the lines since the point before. */
FR_API void fr_tracker_point(fr_tracker *t, const char *where, FILE *out);
FR_API void fr_tracker_free(fr_tracker *t);

#ifdef __cplusplus
}
#endif
#endif
