/* rng.c - see rng.h. */
#include "base/rng.h"

#include "base/thread.h"

void fr_seed(uint64_t seed) {
    fri_here.rng = (fr_rng){.seed = seed, .next_stream = 0};
}

fr_rng fr_rng_get(void) {
    return fri_here.rng;
}

void fr_rng_set(fr_rng state) {
    fri_here.rng = state;
}

fr_rng fri_rng_draw(void) {
    fr_rng drawn = fri_here.rng;
    fri_here.rng.next_stream++;
    return drawn;
}
