/* twin.h - a call on the CPU's kernels and on the CUDA kernels, with a comparison of the results.
 *
 * With FRUGAL_TEST_DEVICE=cuda the second side is the GPU, else the emulator: then index arithmetic, tails and the
 * order of sums are shown, and no more. */
#ifndef TESTS_CUDA_TWIN_H
#define TESTS_CUDA_TWIN_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/emulator/emulated.h"
#include "support/golden.h"

/* An array on both sides, with guard bytes behind its end. */
typedef struct buf {
    char *whole[2], *data[2]; /* CPU, device under test */
    size_t bytes, offset;
    fr_dtype t;
    int64_t n;
} buf;

extern const fri_kernels *twin_kernels; /* of the running side */
extern bool on_gpu;

void twin_begin(void);

/* n zeros, `offset` elements behind a boundary of 512 bytes. */
buf zeros(fr_dtype t, int64_t n, int64_t offset);
/* Likewise, of bytes 0xff (NaN, -1): what is written and not read. */
buf blank(fr_dtype t, int64_t n, int64_t offset);
/* Numbers in [low, high); `special` puts NaN, infinities, zeros of both signs and a subnormal among them. */
buf numbers_between(fr_dtype t, int64_t n, int64_t offset, double low, double high, bool special);
/* Numbers in [-2, 2), multiples of 2^-14: their f32 sums below 2^10 are exact, in any order. */
buf numbers(fr_dtype t, int64_t n, int64_t offset);
void set(buf *b, int64_t i, double v); /* on the CPU's side; copy_in copies to the second side */
void copy_in(buf *b);
double value_at(fr_dtype t, const void *p, int64_t i);
void drop(buf *b);

/* Pointer of the array for the running side (NULL for an empty buf), and an execution with scratch. */
void *p(const buf *b);
const fri_exec *ex(void);
void twin_side(int side);

#define BOTH(call)                            \
    for (int side_ = 0; side_ < 2; side_++) { \
        twin_side(side_);                     \
        const fri_kernels *k = twin_kernels;  \
        must(call);                           \
        expect_no_race(#call);                \
    }

/* Expects no race in the emulated kernels that ran since the last call (emulator/races.h). */
void expect_no_race(const char *call);

/* Differences up to `tolerance` of the largest magnitude, and no byte written behind the end. 0: equal numbers. */
void expect_same(const char *what, const buf *b, double tolerance);
/* One rounding of the type, where sums have another order. */
double rounding(fr_dtype t);

extern const fr_dtype floats[3];

#endif
