/* bytes.h - tensors on FR_META and what the allocator counts of them, for the tests of docs/memory.md's formulas.
 *
 * Without a target: shapes, sizes and order of allocations of a run, no library scratch. A map of n elements has R(4 n)
 * bytes, R rounding up to 512. Parameters and inputs are labelled as such, so "activation" is what backward keeps. */
#ifndef TESTS_AUTOGRAD_BYTES_H
#define TESTS_AUTOGRAD_BYTES_H

#include <frugal/frugal.h>

size_t rounded(int64_t bytes);
fr_tensor *labelled(int rank, const int64_t *shape, fr_dtype dtype, fr_category category);

size_t live(fr_category c);
size_t live_total(void);
/* rise(begin()): the peak since then beyond what was live then. */
size_t begin(void);
size_t rise(size_t before);
void nothing_left(void);
__attribute__((format(printf, 3, 4))) void expect_bytes(size_t got, size_t formula, const char *what, ...);

#endif
