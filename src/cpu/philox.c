/* philox.c - rows of counter-based random numbers. Element i of a tensor is lane i % 4 of counter i / 4. */
#include "cpu/cpu.h"

FRI_CLONES void fri_cpu_philox(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, uint32_t *out) {
    for (int64_t i = 0; i < count; i++) {
        fri_philox4 r = fri_philox(seed, stream, first + (uint64_t)i);
        for (int lane = 0; lane < 4; lane++) out[4 * i + lane] = r.v[lane];
    }
}
