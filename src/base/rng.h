/* rng.h - the thread's default generator.
 *
 * A draw (one dropout, one weight initialization) takes a stream number; the numbers inside it are indexed by element,
 * so they do not depend on thread count or device. Checkpoints save and restore {seed, next_stream} and nothing
 * else. */
#ifndef FRI_BASE_RNG_H
#define FRI_BASE_RNG_H

#include "base/philox.h"

typedef struct fri_rng {
    uint64_t seed;
    uint64_t next_stream;
} fri_rng;

fri_rng fri_rng_get(void);
void fri_rng_set(fri_rng state);

/* Takes the next stream: {seed, stream number}. */
fri_rng fri_rng_draw(void);

#endif
