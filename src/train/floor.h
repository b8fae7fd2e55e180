/* floor.h - the least that a run can need: parameters + optimizer state + the largest op.
 *
 * The largest op is the largest sum of bytes that one op, forward or backward, holds at a time of what it allocated
 * itself between its begin and its end: results, gradients, workspace, temporaries. What it reads is not counted, so
 * the floor is a lower bound: no switch and no segment choice goes below it. src/plan counts the same way. */
#ifndef FRI_TRAIN_FLOOR_H
#define FRI_TRAIN_FLOOR_H

#include "memory/event.h"

enum { FRI_FLOOR_NESTING = 64 };

typedef struct fri_floor {
    fr_device device;
    bool listening;
    size_t largest; /* bytes, allocated */
    int depth;      /* ops that run inside each other */
    struct {
        size_t live, most;
    } open[FRI_FLOOR_NESTING];
} fri_floor;

fr_status fri_floor_begin(fri_floor *f, fr_device device);
void fri_floor_end(fri_floor *f);

#endif
