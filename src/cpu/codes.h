/* codes.h - shared by 8-bit optimizers: codes are indices into a map of values, scaled per block of FRI_SCALE_BLOCK
 * elements.
 *
 * A block is processed by a single task for any number of threads, so bits do not depend on threads. Between reading
 * and writing codes all values stay on the stack. */
#ifndef FRI_CPU_CODES_H
#define FRI_CPU_CODES_H

#include "backend/arith_optim.h"
#include "cpu/cpu.h"

typedef struct fri_code_map {
    real value[256], midpoint[255];
} fri_code_map;

static inline void fri_code_map_read(const float *from, fri_code_map *to) {
    for (int i = 0; i < 256; i++) to->value[i] = from[i];
    for (int i = 0; i < 255; i++) to->midpoint[i] = (to->value[i] + to->value[i + 1]) * (real)0.5;
}

/* Decodes the n <= FRI_SCALE_BLOCK values of a block. */
FRI_CLONES static void fri_codes_widen(const fri_code_map *map, int64_t n, const uint8_t *code, real absmax, real *x) {
    for (int64_t i = 0; i < n; i++) x[i] = map->value[code[i]] * absmax;
}

/* Largest magnitude. NaN is ignored as by fmax, because the parameter becomes NaN anyway. */
FRI_CLONES static real fri_codes_largest(int64_t n, const real *x) {
    real max = 0;
    for (int64_t i = 0; i < n; i++) {
        real a = x[i] < 0 ? -x[i] : x[i];
        max = a > max ? a : max;
    }
    return max;
}

/* A block of zeros gets the codes of 0. */
FRI_CLONES static void fri_codes_narrow(const fri_code_map *map, int64_t n, const real *x, float absmax,
                                        uint8_t *code) {
    real divisor = absmax > 0 ? (real)absmax : 1;
    int32_t nearest[FRI_SCALE_BLOCK];
    for (int64_t i = 0; i < n; i++) nearest[i] = fri_nearest_code(map->midpoint, x[i] / divisor);
    for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)nearest[i];
}

#endif
