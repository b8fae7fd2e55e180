/* largest_op.h - the largest working set of one op, found from the event log.
 *
 * An op, forward or backward, holds what it allocated itself and has not freed yet, between its begin and its end:
 * results, gradients, workspace, temporaries. An op that runs inside another one (recomputed inside a backward op) is
 * an op of its own, and what it allocated is no part of the outer one's. What an op reads is not counted, nor is making
 * it readable: rebuilding, encoding, bringing back. So the largest of these sums is a lower bound: no switch and no
 * checkpoint goes below it. */
#ifndef FRI_PLAN_LARGEST_OP_H
#define FRI_PLAN_LARGEST_OP_H

#include "memory/event.h"

/* Limits of nesting and live blocks; the rest does not count. */
enum { FRI_OP_NESTING = 64, FRI_OP_BLOCKS = 32 };

typedef struct fri_largest_op {
    size_t bytes; /* allocated */
    fr_tag op;    /* whose it is; op "" while bytes is 0 */
    int depth;
    struct {
        fr_tag tag;
        bool aside; /* part of no op */
        size_t live, max;
        int blocks;
        uint64_t block[FRI_OP_BLOCKS];
        size_t size[FRI_OP_BLOCKS];
    } open[FRI_OP_NESTING];
} fri_largest_op;

void fri_largest_op_begin(fri_largest_op *l);
/* The caller leaves out the events of other devices. */
void fri_largest_op_event(fri_largest_op *l, const fr_event *e);

#endif
