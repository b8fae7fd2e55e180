/* shape.c - see shape.h. */
#include "base/shape.h"

#include "base/status.h"

#include <stdio.h>

fr_shape fri_shape_of(int rank, const int64_t *dim) {
    fr_shape s = {.rank = rank};
    for (int i = 0; i < rank && i < FR_MAX_RANK; i++) s.dim[i] = dim[i];
    return s;
}

int64_t fri_shape_numel(const fr_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

bool fri_shape_equal(const fr_shape *a, const fr_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool fri_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

fr_status fri_shape_bytes(const char *what, const fr_shape *s, fr_dtype t, size_t *bytes) {
    char text[FRI_SHAPE_TEXT];
    if (s->rank < 0 || s->rank > FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "%s: rank %d is outside 0..%d", what, s->rank, FR_MAX_RANK);
    if (fr_dtype_size(t) == 0) return fr_fail(FR_EDTYPE, "%s: %d is not an element type", what, (int)t);
    int64_t n = (int64_t)fr_dtype_size(t);
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return fr_fail(FR_ESHAPE, "%s: dimension %d of shape %s is negative", what, i, fri_shape_text(s, text));
        if (!fri_mul_i64(n, s->dim[i], &n))
            return fr_fail(FR_ESHAPE, "%s: shape %s of %s does not fit into 63 bits", what, fri_shape_text(s, text),
                           fr_dtype_name(t));
    }
    *bytes = (size_t)n;
    return FR_OK;
}

const char *fri_shape_text(const fr_shape *s, char buf[FRI_SHAPE_TEXT]) {
    size_t at = (size_t)snprintf(buf, FRI_SHAPE_TEXT, "[");
    for (int i = 0; i < s->rank && i < FR_MAX_RANK; i++)
        at += (size_t)snprintf(buf + at, FRI_SHAPE_TEXT - at, "%s%lld", i ? ", " : "", (long long)s->dim[i]);
    snprintf(buf + at, FRI_SHAPE_TEXT - at, "]");
    return buf;
}

const char *fri_shape_advice(const fr_shape *x, int64_t channels) {
    return x->rank == 4 && x->dim[1] == channels ? "; images are [N, H, W, C], these look like [N, C, H, W]" : "";
}
