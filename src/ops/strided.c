/* strided - pad, narrow, slice, permute, pixel_shuffle, pixel_unshuffle: elements copied from and to regular places.
 *   forward    y = fill where pad says so; else the elements of x, each where the op puts it
 *   backward   dx = dy's elements copied back; 0 where x's were left out
 *   saves      nothing
 *   in-place   no
 *   rebuild    from x
 *   order      deterministic */
#include "ops/op.h"

#include "base/status.h"

typedef struct params {
    fri_strided_desc d;
    fr_shape x, y;
    int64_t x_at, y_at; /* first element on either side */
    double fill;
} params;

static char *address(const fr_tensor *t, int64_t at) {
    char *p = fri_data(t);
    return p == NULL ? NULL : p + (size_t)at * fr_dtype_size(t->dtype);
}

/* Copies between `from` and `to`. Elements without a value become 0 or the fill value. */
static fr_status copy_elements(const params *p, bool back, const fr_tensor *from, fr_tensor *to) {
    fri_strided_desc d = p->d;
    int64_t copied = 1;
    for (int i = 0; i < d.rank; i++) copied *= d.extent[i];
    if (copied < fri_numel(to)) FRI_TRY(fr_tensor_fill(to, back ? 0 : p->fill));
    if (copied == 0) return FR_OK;
    for (int i = 0; i < d.rank && back; i++) {
        d.x_stride[i] = p->d.y_stride[i];
        d.y_stride[i] = p->d.x_stride[i];
    }
    return FRI_KERNEL(fri_backend_of(from), from->dtype, copy_strided,
                      (FRI_EXEC, &d, address(from, back ? p->y_at : p->x_at), address(to, back ? p->x_at : p->y_at)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    FRI_TRY(fri_tensor_new(&p->x, (*dy)->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(copy_elements(p, true, *dy, dx));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status forward(const params *p, const fr_tensor *x, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_tensor_new(&p->y, x->dtype, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(copy_elements(p, false, x, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    return forward(fr_node_params(node), in[0], y);
}

#define STRIDED .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1
static const fr_op pad = {.name = "pad", STRIDED};
static const fr_op permute = {.name = "permute", STRIDED};
static const fr_op slice = {.name = "slice", STRIDED};
static const fr_op pixel_shuffle = {.name = "pixel_shuffle", STRIDED};
static const fr_op pixel_unshuffle = {.name = "pixel_unshuffle", STRIDED};

/* ---- positions ----------------------------------------------------------------------------------------------- */

/* Adds an inner dimension. Dimensions that are contiguous on both sides are merged. */
static void add_dim(fri_strided_desc *d, int64_t extent, int64_t x_stride, int64_t y_stride) {
    const int last = d->rank - 1;
    if (extent == 1) return;
    if (last >= 0 && d->x_stride[last] == extent * x_stride && d->y_stride[last] == extent * y_stride) {
        d->extent[last] *= extent;
        d->x_stride[last] = x_stride;
        d->y_stride[last] = y_stride;
        return;
    }
    d->extent[d->rank] = extent;
    d->x_stride[d->rank] = x_stride;
    d->y_stride[d->rank++] = y_stride;
}

static void strides_of(const fr_shape *s, int64_t stride[FR_MAX_RANK]) {
    int64_t step = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= s->dim[i];
    }
}

/* Common call of all ops in this file: p has x, y and the copy. */
static fr_status call_strided(const fr_op *op, const params *p, fr_tensor *x, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    params given = *p;
    FRI_TRY(fri_call_begin(&c, op, 1, &x, 1));
    given.d.size = fr_dtype_size(x->dtype);
    FRI_TRY(forward(&given, x, &out));
    FRI_TRY(fr_op_record(op, &given, sizeof given, &x, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

/* ---- pad, narrow, slice ---------------------------------------------------------------------------------------- */

fr_status fr_pad(fr_tensor *x, const int64_t *before, const int64_t *after, double value, fr_tensor **y) {
    FRI_NOT_NULL(x, before, after, y);
    int64_t xs[FR_MAX_RANK] = {0}, ys[FR_MAX_RANK] = {0}, elements = 1;
    params p = {.x = x->shape, .y = x->shape, .fill = value};
    for (int i = 0; i < x->shape.rank; i++) {
        FRI_TRY(fri_expect_bounded(pad.name, "padding", before[i], after[i]));
        if (before[i] < 0 || after[i] < 0)
            return fr_fail(FR_EINVAL, "pad: %lld before and %lld after dimension %d; both must be >= 0",
                           (long long)before[i], (long long)after[i], i);
        p.y.dim[i] += before[i] + after[i];
        if (!fri_mul_i64(elements, p.y.dim[i], &elements))
            return fr_fail(FR_ESHAPE, "pad: dimension %d would have %lld elements, which no memory holds", i,
                           (long long)p.y.dim[i]);
    }
    strides_of(&p.x, xs);
    strides_of(&p.y, ys);
    for (int i = 0; i < p.x.rank; i++) {
        add_dim(&p.d, p.x.dim[i], xs[i], ys[i]);
        p.y_at += before[i] * ys[i];
    }
    return call_strided(&pad, &p, x, y);
}

/* Takes `count` elements start, start + step, ... of dimension `dim`; all are in range. */
static fr_status take_range(fr_tensor *x, int dim, int64_t start, int64_t count, int64_t step, fr_tensor **y) {
    int64_t xs[FR_MAX_RANK] = {0}, ys[FR_MAX_RANK] = {0};
    params p = {.x = x->shape, .y = x->shape};
    p.y.dim[dim] = count;
    strides_of(&p.x, xs);
    strides_of(&p.y, ys);
    for (int i = 0; i < p.y.rank; i++) add_dim(&p.d, p.y.dim[i], i == dim && count > 1 ? step * xs[i] : xs[i], ys[i]);
    p.x_at = start * xs[dim];
    return call_strided(&slice, &p, x, y);
}

static fr_status expect_dim(const char *op, const fr_tensor *x, int *dim) {
    const int rank = x->shape.rank, at = *dim < 0 ? *dim + rank : *dim;
    if (at < 0 || at >= rank) return fr_fail(FR_EINVAL, "%s: no dimension %d; x has rank %d", op, *dim, rank);
    *dim = at;
    return FR_OK;
}

fr_status fr_narrow(fr_tensor *x, int dim, int64_t start, int64_t length, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_TRY(expect_dim("narrow", x, &dim));
    const int64_t size = x->shape.dim[dim];
    if (start < 0 || length < 0 || start > size || length > size - start)
        return fr_fail(FR_EINVAL, "narrow: %lld elements from %lld on exceed dimension %d of size %lld",
                       (long long)length, (long long)start, dim, (long long)size);
    return take_range(x, dim, start, length, 1, y);
}

static int64_t clamp_index(int64_t at, int64_t size) {
    if (at < 0) at = at < -size ? 0 : at + size;
    return at > size ? size : at;
}

fr_status fr_slice(fr_tensor *x, int dim, int64_t start, int64_t end, int64_t step, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_TRY(expect_dim("slice", x, &dim));
    if (step < 1) return fr_fail(FR_EINVAL, "slice: step is %lld; it must be >= 1", (long long)step);
    const int64_t size = x->shape.dim[dim], from = clamp_index(start, size), to = clamp_index(end, size);
    return take_range(x, dim, from, to > from ? (to - from - 1) / step + 1 : 0, step, y);
}

/* ---- permute, pixel_shuffle ------------------------------------------------------------------------------------ */

fr_status fr_permute(fr_tensor *x, const int *dims, fr_tensor **y) {
    FRI_NOT_NULL(x, dims, y);
    int64_t xs[FR_MAX_RANK] = {0}, ys[FR_MAX_RANK] = {0};
    params p = {.x = x->shape, .y = x->shape};
    unsigned seen = 0;
    for (int i = 0; i < p.x.rank; i++) {
        int from = dims[i];
        FRI_TRY(expect_dim("permute", x, &from));
        if (seen >> from & 1) return fr_fail(FR_EINVAL, "permute: dimension %d is named twice", from);
        seen |= 1u << from;
        p.y.dim[i] = p.x.dim[from];
    }
    strides_of(&p.x, xs);
    strides_of(&p.y, ys);
    for (int i = 0; i < p.y.rank; i++) add_dim(&p.d, p.y.dim[i], xs[dims[i] < 0 ? dims[i] + p.x.rank : dims[i]], ys[i]);
    return call_strided(&permute, &p, x, y);
}

/* small [n, h, w, c * r * r] and large [n, h * r, w * r, c]: y is either, x the other. */
static fr_status shuffle(const fr_op *op, fr_tensor *x, const fr_shape *small, int64_t r, bool enlarge, fr_tensor **y) {
    const int64_t *d = small->dim, c = d[3] / (r * r);
    const fr_shape large = FRI_SHAPE(d[0], d[1] * r, d[2] * r, c), split = FRI_SHAPE(d[0], d[1], d[2], c, r, r);
    const fr_shape apart = FRI_SHAPE(d[0], d[1], r, d[2], r, c);
    static const int of_small[6] = {0, 1, 4, 2, 5, 3}; /* dimension of small that becomes large's i-th */
    int64_t in_small[FR_MAX_RANK] = {0}, in_large[FR_MAX_RANK] = {0};
    params p = {.x = enlarge ? *small : large, .y = enlarge ? large : *small};
    strides_of(&split, in_small);
    strides_of(&apart, in_large);
    for (int i = 0; i < 6; i++) {
        const int64_t of = in_small[of_small[i]];
        add_dim(&p.d, apart.dim[i], enlarge ? of : in_large[i], enlarge ? in_large[i] : of);
    }
    return call_strided(op, &p, x, y);
}

static fr_status expect_image(const fr_op *op, const fr_tensor *x, int64_t r) {
    fr_status s = fri_expect_rank(op, x, "x", 4);
    if (s < 0 || (r >= 1 && r <= 1024)) return s;
    return fr_fail(FR_EINVAL, "%s: the factor is %lld; it must be in 1..1024", op->name, (long long)r);
}

fr_status fr_pixel_shuffle(fr_tensor *x, int64_t r, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_TRY(expect_image(&pixel_shuffle, x, r));
    if (x->shape.dim[3] % (r * r) != 0)
        return fr_fail(FR_ESHAPE, "pixel_shuffle: x has %lld channels; a factor of %lld needs a multiple of %lld",
                       (long long)x->shape.dim[3], (long long)r, (long long)(r * r));
    return shuffle(&pixel_shuffle, x, &x->shape, r, true, y);
}

fr_status fr_pixel_unshuffle(fr_tensor *x, int64_t r, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_TRY(expect_image(&pixel_unshuffle, x, r));
    const int64_t *d = x->shape.dim;
    if (d[1] % r != 0 || d[2] % r != 0)
        return fr_fail(FR_ESHAPE, "pixel_unshuffle: an image of %lld x %lld; a factor of %lld must divide both",
                       (long long)d[1], (long long)d[2], (long long)r);
    const fr_shape small = FRI_SHAPE(d[0], d[1] / r, d[2] / r, d[3] * r * r);
    return shuffle(&pixel_unshuffle, x, &small, r, false, y);
}
