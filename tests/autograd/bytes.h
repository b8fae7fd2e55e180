/* bytes.h - tensors on FR_META and the bytes the allocator counts for them, to test the formulas of docs/memory.md.
 *
 * Meta tensors have no values; shapes, sizes and order of allocations are those of a run, without a library's
 * scratch. A map of n elements has R(4 n) bytes, R rounding up to 512. Parameters and inputs are labelled, so
 * "activation" means what backward keeps. */
#ifndef TESTS_AUTOGRAD_BYTES_H
#define TESTS_AUTOGRAD_BYTES_H

#include <frugal/frugal.h>

size_t rounded(int64_t bytes);
fr_tensor *labelled(int rank, const int64_t *shape, fr_dtype dtype, fr_category category);

size_t live(fr_category c);
size_t live_total(void);
/* rise(begin()): the peak since begin, beyond the bytes live at begin. */
size_t begin(void);
size_t rise(size_t before);
void nothing_left(void);
__attribute__((format(printf, 3, 4))) void expect_bytes(size_t got, size_t formula, const char *what, ...);

#endif
