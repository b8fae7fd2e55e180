/* rng.c - see rng.h. */
#include "base/rng.h"

#include <frugal/base.h>

static _Thread_local fri_rng current = {.seed = 0, .next_stream = 0};

void fr_seed(uint64_t seed) {
    current = (fri_rng){.seed = seed, .next_stream = 0};
}

fri_rng fri_rng_get(void) {
    return current;
}

void fri_rng_set(fri_rng state) {
    current = state;
}

fri_rng fri_rng_draw(void) {
    fri_rng drawn = current;
    current.next_stream++;
    return drawn;
}
