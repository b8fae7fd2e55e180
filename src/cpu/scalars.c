/* scalars.c - single numbers that steer a training: counters, the clipping factor, the loss scale. */
#include "backend/arith.h"

#include "cpu/cpu.h"

fr_status fri_cpu_count_up(const fri_exec *e, const float *found, int count, const fri_array *arrays) {
    if (found != NULL && *found != 0) return FR_OK;
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < arrays[k].n; i++) ((float *)arrays[k].data)[i] += 1;
    return FR_OK;
}

fr_status fri_cpu_clip_factor(const fri_exec *e, double max_norm, const double *square, float *factor) {
    *factor = (float)fri_clip_factor(max_norm, *square);
    return FR_OK;
}

fr_status fri_cpu_loss_scale_update(const fri_exec *e, const fri_loss_scale_desc *d, fri_loss_scale *state,
                                    float *found) {
    *state = fri_loss_scale_next(d, *state, *found != 0);
    *found = 0;
    return FR_OK;
}
