/* floor.h - the least that a run can need: parameters + optimizer state + the largest op (src/plan/largest_op.h). */
#ifndef FRI_SESSION_FLOOR_H
#define FRI_SESSION_FLOOR_H

#include "plan/largest_op.h"

typedef struct fri_floor {
    fr_device device;
    bool listening;
    size_t largest; /* bytes, allocated */
    fri_largest_op op;
} fri_floor;

fr_status fri_floor_begin(fri_floor *f, fr_device device);
void fri_floor_end(fri_floor *f);

#endif
