/* convert.h - element types and layouts, on the host. Addresses may be unaligned: files promise no alignment. */
#ifndef FRI_IO_CONVERT_H
#define FRI_IO_CONVERT_H

#include <frugal/base.h>

/* to[i] = from[i] for n elements. Both types float, or both equal. f64 to a half type rounds to f32 first, as
 * PyTorch. */
void fri_convert(const void *from, fr_dtype from_type, void *to, fr_dtype to_type, int64_t n);

/* [outer, a, b] to [outer, b, a], elements of `size` bytes. */
void fri_transpose(const void *from, void *to, size_t size, int64_t outer, int64_t a, int64_t b);

#endif
