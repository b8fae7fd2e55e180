/* rng.h - drawing from the thread's default generator (fr_rng in base.h). */
#ifndef FRI_BASE_RNG_H
#define FRI_BASE_RNG_H

#include "base/philox.h"

#include <frugal/base.h>

/* Takes the next stream: {seed, stream number}. */
fr_rng fri_rng_draw(void);

#endif
