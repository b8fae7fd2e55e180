/* rng.c - see rng.h. */
#include "base/rng.h"

#include <frugal/base.h>

static _Thread_local fr_rng current = {.seed = 0, .next_stream = 0};

void fr_seed(uint64_t seed) {
    current = (fr_rng){.seed = seed, .next_stream = 0};
}

fr_rng fr_rng_get(void) {
    return current;
}

void fr_rng_set(fr_rng state) {
    current = state;
}

fr_rng fri_rng_draw(void) {
    fr_rng drawn = current;
    current.next_stream++;
    return drawn;
}
