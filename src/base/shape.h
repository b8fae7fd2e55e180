/* shape.h - shapes, and overflow-checked products for bytes. */
#ifndef FRI_BASE_SHAPE_H
#define FRI_BASE_SHAPE_H

#include <frugal/base.h>

/* Shape from a C array: fri_shape_of(4, (int64_t[]){n, h, w, c}). Without checks (see fri_shape_bytes). */
fr_shape fri_shape_of(int rank, const int64_t *dim);
#define FRI_SHAPE(...) \
    fri_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

int64_t fri_shape_numel(const fr_shape *s);
bool fri_shape_equal(const fr_shape *a, const fr_shape *b);

/* numel * element size. FR_ESHAPE if a dimension is negative, the rank is out of range or the product overflows;
 * the message starts with `what`. */
fr_status fri_shape_bytes(const char *what, const fr_shape *s, fr_dtype t, size_t *bytes);

/* a * b in *out, or false when the product does not fit. */
bool fri_mul_i64(int64_t a, int64_t b, int64_t *out);

/* "[64, 32, 32, 3]" into buf; returns buf. FRI_SHAPE_TEXT bytes always suffice. */
enum { FRI_SHAPE_TEXT = FR_MAX_RANK * 22 + 4 };
const char *fri_shape_text(const fr_shape *s, char buf[FRI_SHAPE_TEXT]);
/* End of the sentence that refuses images x for their channels: advice if x looks like [N, C, H, W], else "". */
const char *fri_shape_advice(const fr_shape *x, int64_t channels);

#endif
