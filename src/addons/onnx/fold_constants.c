/* fold_constants.c - ONNX nodes that compute with constants: sums about shapes, which an exporter leaves in the graph.
 *
 * Sums and products follow ONNX's broadcasting. Dimension 0 of an activation is the example's batch. */
#include "addons/onnx/reader.h"
#include "backend/elementary.h"

#include <frugal/weights.h>

#include <math.h>
#include <string.h>

typedef Onnx__NodeProto node;
typedef fri_onnx_constant constant;

static fr_status small(int64_t n) {
    if (n >= 0 && n <= FRI_ONNX_MOST_FOLDED) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED, "%lld constants to compute; %d at most", (long long)n, FRI_ONNX_MOST_FOLDED);
}

static void set(constant *c, int64_t i, double v, int64_t whole) {
    if (c->dtype == FR_I64)
        ((int64_t *)c->own)[i] = whole;
    else
        ((float *)c->own)[i] = (float)v;
}

/* Makes the node's result a new constant of n values; all such constants together are bounded. */
static fr_status made(fri_onnx_reader *r, const node *n, fr_dtype dtype, int64_t values, constant **out) {
    if (values > FRI_ONNX_MOST_COMPUTED - r->computed)
        return fr_fail(FR_EUNSUPPORTED, "it computes more than %d constants", FRI_ONNX_MOST_COMPUTED);
    r->computed += values;
    FRI_TRY(fri_onnx_constant_new(r, dtype, values, out));
    return fri_onnx_put_constant(r, n, *out);
}

static fr_status result(fri_onnx_reader *r, const node *n, fr_dtype dtype, int64_t values, constant **out) {
    FRI_TRY(small(values));
    return made(r, n, dtype, values, out);
}

static void set_shape(constant *c, int rank, const int64_t *dim) {
    c->rank = rank;
    if (rank > 0) memcpy(c->dim, dim, (size_t)rank * sizeof *dim);
}

static void copy(constant *to, int64_t at, const constant *from, int64_t i) {
    set(to, at, fri_onnx_float(from, i), fri_onnx_int(from, i));
}

/* ---- making ---------------------------------------------------------------------------------------------- */

static fr_status constant_(fri_onnx_reader *r, const node *n) {
    const Onnx__AttributeProto *a = n->n_attribute == 1 ? n->attribute[0] : NULL;
    constant *c = NULL;
    if (a == NULL || a->name == NULL)
        return fr_fail(FR_EFORMAT, "it has %zu attributes; one is needed", n->n_attribute);
    if (a->t != NULL) {
        const fr_status s = fri_onnx_tensor_read(r, a->t, &c);
        if (s == FR_OK) c->name = NULL;
        return s == FR_OK ? fri_onnx_put_constant(r, n, c) : s;
    }
    const bool whole = strcmp(a->name, "value_int") == 0 || strcmp(a->name, "value_ints") == 0;
    const bool scalar = strcmp(a->name, "value_int") == 0 || strcmp(a->name, "value_float") == 0;
    if (!whole && !scalar && strcmp(a->name, "value_floats") != 0)
        return fr_fail(FR_EUNSUPPORTED, "frugal does not know its attribute '%.100s'", a->name);
    const int64_t count = scalar ? 1 : (int64_t)(whole ? a->n_ints : a->n_floats);
    FRI_TRY(result(r, n, whole ? FR_I64 : FR_F32, count, &c));
    if (scalar) c->rank = 0;
    for (int64_t i = 0; i < count; i++)
        set(c, i, scalar ? a->f : whole ? 0 : a->floats[i], scalar ? a->i : whole ? a->ints[i] : 0);
    return FR_OK;
}

static fr_status of_shape(fri_onnx_reader *r, const node *n, const constant *shape) {
    const Onnx__AttributeProto *a = fri_onnx_attribute(n, "value");
    constant *c = NULL, *v = NULL;
    int64_t values = 1;
    if (shape->n > FRI_ONNX_RANK) return fr_fail(FR_EUNSUPPORTED, "rank %lld", (long long)shape->n);
    for (int64_t i = 0; i < shape->n; i++)
        if (__builtin_mul_overflow(values, fri_onnx_int(shape, i), &values)) values = -1;
    if (a != NULL && a->t != NULL) FRI_TRY(fri_onnx_tensor_read(r, a->t, &v));
    FRI_TRY(result(r, n, v != NULL ? v->dtype : FR_F32, values, &c));
    c->rank = (int)shape->n;
    for (int i = 0; i < c->rank; i++) c->dim[i] = fri_onnx_int(shape, i);
    for (int64_t i = 0; i < values && v != NULL && v->n > 0; i++) copy(c, i, v, 0);
    return FR_OK;
}

static fr_status shape(fri_onnx_reader *r, const node *n) {
    const fri_onnx_value *x = fri_onnx_input(r, n, 0);
    constant *c = NULL;
    if (x == NULL || (x->constant == NULL && x->x.id < 0) || x->pad[0] != 0 || x->pad[1] != 0 || x->last)
        return fr_fail(FR_EUNSUPPORTED, "its input is no value of a known shape");
    const int64_t rank = x->constant != NULL ? x->constant->rank : fri_onnx_rank(r, x->x);
    int64_t from = fri_onnx_attribute_int(n, "start", 0), to = fri_onnx_attribute_int(n, "end", rank);
    from = from < 0 ? from + rank : from;
    to = to < 0 ? to + rank : to > rank ? rank : to;
    if (from < 0 || to < from || from > rank)
        return fr_fail(FR_EFORMAT, "start and end lie outside of rank %lld", (long long)rank);
    FRI_TRY(result(r, n, FR_I64, to - from, &c));
    for (int64_t i = from; i < to; i++)
        set(c, i - from, 0, x->constant != NULL ? x->constant->dim[i] : fri_onnx_dim(r, x->x, (int)i));
    return FR_OK;
}

/* ---- picking --------------------------------------------------------------------------------------------- */

/* Vectors and numbers only, as in shapes. */
static fr_status vector(const constant *c) {
    return c->rank <= 1 ? FR_OK : fr_fail(FR_EUNSUPPORTED, "a constant of rank %d; frugal computes vectors", c->rank);
}

static fr_status gather(fri_onnx_reader *r, const node *n, const constant *from) {
    const constant *index = NULL;
    constant *c = NULL;
    FRI_TRY(fri_onnx_constant_input(r, n, 1, &index));
    FRI_TRY(vector(from));
    FRI_TRY(vector(index));
    FRI_TRY(result(r, n, from->dtype, index->n, &c));
    c->rank = index->rank;
    for (int64_t i = 0; i < index->n; i++) {
        int64_t k = fri_onnx_int(index, i);
        if (k < 0) k += from->n;
        if (k < 0 || k >= from->n)
            return fr_fail(FR_EFORMAT, "index %lld of %lld values", (long long)fri_onnx_int(index, i),
                           (long long)from->n);
        copy(c, i, from, k);
    }
    return FR_OK;
}

/* Rows along axis 0, forwards or backwards. */
static fr_status slice(fri_onnx_reader *r, const node *n, const constant *from) {
    static const char *const name[] = {"starts", "ends", "axes", NULL};
    int64_t v[4] = {0, 0, 0, 1};
    int count = 0;
    constant *c = NULL;
    for (size_t i = 0; i < 4; i++) FRI_TRY(fri_onnx_integers(r, n, i + 1, name[i], &v[i], 1, &count));
    int64_t begin = v[0], end = v[1], axis = v[2], step = v[3];
    const int64_t size = from->rank > 0 ? from->dim[0] : 0, row = size > 0 ? from->n / size : 0;
    const bool backwards = step == -1 && begin == -1 && end < -size;
    if ((step != 1 && !backwards) || (axis != 0 && axis != -from->rank))
        return fr_fail(FR_EUNSUPPORTED, "step %lld, axis %lld", (long long)step, (long long)axis);
    if (backwards) begin = 0, end = size;
    begin = begin < 0 ? (begin < -size ? 0 : begin + size) : begin > size ? size : begin;
    end = end < 0 ? (end < -size ? 0 : end + size) : end > size ? size : end;
    const int64_t rows = end > begin ? end - begin : 0;
    FRI_TRY(result(r, n, from->dtype, rows * row, &c));
    set_shape(c, from->rank, from->dim);
    c->dim[0] = rows;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < row; k++) copy(c, i * row + k, from, (backwards ? size - 1 - i : begin + i) * row + k);
    return FR_OK;
}

static fr_status concat(fri_onnx_reader *r, const node *n) {
    const constant *from = NULL;
    constant *c = NULL;
    int64_t values = 0, at = 0;
    for (size_t i = 0; i < n->n_input; i++) {
        FRI_TRY(fri_onnx_constant_input(r, n, i, &from));
        FRI_TRY(vector(from));
        FRI_TRY(small(from->n));
        FRI_TRY(small(values += from->n));
    }
    FRI_TRY(result(r, n, from != NULL ? from->dtype : FR_I64, values, &c));
    for (size_t i = 0; i < n->n_input; i++) {
        FRI_TRY(fri_onnx_constant_input(r, n, i, &from));
        for (int64_t k = 0; k < from->n; k++) copy(c, at++, from, k);
    }
    return FR_OK;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------ */

/* false: no such number. */
static bool whole(char op, int64_t a, int64_t b, int64_t *v) {
    switch (op) {
    case 'A': return !__builtin_add_overflow(a, b, v);
    case 'S': return !__builtin_sub_overflow(a, b, v);
    case 'M': return !__builtin_mul_overflow(a, b, v);
    default:
        if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
        *v = a / b;
        return true;
    }
}

static double real(char op, double a, double b) {
    return op == 'A' ? a + b : op == 'S' ? a - b : op == 'M' ? a * b : op == 'D' ? a / b : fri_power64(a, b);
}

/* Element i of a row-major tensor, by other steps. */
static int64_t stepped(int64_t i, int rank, const int64_t *dim, const int64_t *step) {
    int64_t at = 0;
    for (int k = rank - 1; k >= 0; i /= dim[k], k--) at += i % dim[k] * step[k];
    return at;
}

/* Add, Sub, Mul, Div, Pow with ONNX's broadcasting. */
static fr_status arithmetic(fri_onnx_reader *r, const node *n, const constant *a) {
    const constant *in[2] = {a};
    constant *c = NULL;
    int64_t dim[FRI_ONNX_RANK] = {0}, step[2][FRI_ONNX_RANK] = {{0}}, size[2] = {1, 1}, values = 1;
    FRI_TRY(fri_onnx_constant_input(r, n, 1, &in[1]));
    const int rank = in[0]->rank > in[1]->rank ? in[0]->rank : in[1]->rank;
    bool fit = a->n > 0 && in[1]->n > 0 && a->dtype == (n->op_type[0] == 'P' ? FR_F32 : in[1]->dtype);
    for (int k = rank - 1; k >= 0 && fit; k--) {
        int64_t d[2];
        for (int i = 0; i < 2; i++) {
            const int own = k - rank + in[i]->rank;
            d[i] = own >= 0 ? in[i]->dim[own] : 1;
            step[i][k] = d[i] == 1 ? 0 : size[i];
            size[i] *= d[i];
        }
        dim[k] = d[0] == 1 ? d[1] : d[0];
        fit = (d[0] == d[1] || d[0] == 1 || d[1] == 1) && !__builtin_mul_overflow(values, dim[k], &values);
    }
    if (!fit)
        return fr_fail(FR_EFORMAT, "%lld values of type %s with %lld of type %s", (long long)in[0]->n,
                       fr_dtype_name(in[0]->dtype), (long long)in[1]->n, fr_dtype_name(in[1]->dtype));
    if (values != in[0]->n && values != in[1]->n) FRI_TRY(small(values));
    FRI_TRY(made(r, n, in[0]->dtype, values, &c));
    set_shape(c, rank, dim);
    for (int64_t i = 0; i < values; i++) {
        const int64_t p = stepped(i, rank, dim, step[0]), q = stepped(i, rank, dim, step[1]);
        const int64_t k = fri_onnx_int(in[0], p), l = fri_onnx_int(in[1], q);
        int64_t v = 0;
        if (c->dtype == FR_I64 && !whole(n->op_type[0], k, l, &v))
            return fr_fail(FR_EFORMAT, "%lld with %lld is no 64-bit integer", (long long)k, (long long)l);
        set(c, i, real(n->op_type[0], fri_onnx_float(in[0], p), fri_onnx_float(in[1], q)), v);
    }
    return FR_OK;
}

/* Floor, Ceil, Sqrt, Clip and Cast: value by value. */
static fr_status each(fri_onnx_reader *r, const node *n, const constant *a) {
    const int64_t to = fri_onnx_attribute_int(n, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const bool bounded = strcmp(n->op_type, "Clip") == 0;
    const char second = bounded ? '\0' : n->op_type[1];
    constant *c = NULL;
    double low = -INFINITY, high = INFINITY;
    const bool integer = to == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 || to == ONNX__TENSOR_PROTO__DATA_TYPE__INT32 ||
                         (bounded && a->dtype == FR_I64);
    if (bounded) fri_onnx_bounds(r, n, &low, &high);
    if ((!integer && to != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) || isnan(low) || isnan(high))
        return fr_fail(FR_EUNSUPPORTED, "to type %lld, from %g to %g", (long long)to, low, high);
    FRI_TRY(made(r, n, integer ? FR_I64 : FR_F32, a->n, &c));
    set_shape(c, a->rank, a->dim);
    for (int64_t i = 0; i < a->n; i++) {
        const double v = fri_onnx_float(a, i), w = v < low ? low : v > high ? high : v;
        const double y = second == 'l' ? floor(v) : second == 'e' ? ceil(v) : second == 'q' ? sqrt(v) : w;
        set(c, i, y, w == v || !(fabs(w) <= 0x1p62) ? fri_onnx_int(a, i) : (int64_t)w);
    }
    return FR_OK;
}

/* Means over axes of f32 values, summed in f64. */
static fr_status mean(fri_onnx_reader *r, const node *n, const constant *a) {
    int64_t axis[FRI_ONNX_RANK], step[FRI_ONNX_RANK] = {0}, values = 1;
    bool over[FRI_ONNX_RANK] = {false};
    int axes = 0;
    constant *c = NULL;
    FRI_TRY(fri_onnx_integers(r, n, 1, "axes", axis, FRI_ONNX_RANK, &axes));
    for (int i = 0; i < axes; i++) {
        const int64_t k = axis[i] < 0 ? axis[i] + a->rank : axis[i];
        if (k < 0 || k >= a->rank) return fr_fail(FR_EFORMAT, "axis %lld of rank %d", (long long)axis[i], a->rank);
        over[k] = true;
    }
    if (a->dtype != FR_F32 || a->n == 0 || axes == 0)
        return fr_fail(FR_EUNSUPPORTED, "%lld values of type %s over %d axes", (long long)a->n, fr_dtype_name(a->dtype),
                       axes);
    for (int k = a->rank - 1; k >= 0; k--) {
        step[k] = over[k] ? 0 : values;
        values *= over[k] ? 1 : a->dim[k];
    }
    FRI_OWNED(fri_free) void *block = calloc((size_t)values, sizeof(double));
    double *sum = block;
    if (sum == NULL) return fr_fail(FR_ENOMEM, "no host memory for %lld values", (long long)values);
    FRI_TRY(made(r, n, FR_F32, values, &c));
    c->rank = 0;
    for (int k = 0; k < a->rank; k++)
        if (!over[k] || fri_onnx_attribute_int(n, "keepdims", 1) != 0) c->dim[c->rank++] = over[k] ? 1 : a->dim[k];
    for (int64_t i = 0; i < a->n; i++) sum[stepped(i, a->rank, a->dim, step)] += fri_onnx_float(a, i);
    for (int64_t i = 0; i < values; i++) set(c, i, sum[i] * (double)values / (double)a->n, 0);
    return FR_OK;
}

/* ---- shape ----------------------------------------------------------------------------------------------- */

static fr_status same(fri_onnx_reader *r, const node *n) {
    const fri_onnx_value *v = fri_onnx_input(r, n, 0);
    return v != NULL ? fri_onnx_put_constant(r, n, v->constant) : fr_fail(FR_EFORMAT, "it has no input");
}

/* The values of a constant under another shape of as many elements. */
static fr_status view(fri_onnx_reader *r, const node *n, const constant *a, int rank, const int64_t *dim) {
    constant *c = NULL;
    FRI_TRY(fri_onnx_constant_new(r, a->dtype, 0, &c));
    c->data = a->data;
    c->n = a->n;
    set_shape(c, rank, dim);
    return fri_onnx_put_constant(r, n, c);
}

/* Squeeze and Unsqueeze; a Squeeze without axes takes every 1 away. */
static fr_status squeeze(fri_onnx_reader *r, const node *n, const constant *a) {
    int64_t axis[FRI_ONNX_RANK], to[FRI_ONNX_RANK];
    int axes = 0, rank = 0, from = 0;
    const bool out = n->op_type[0] == 'S';
    FRI_TRY(fri_onnx_integers(r, n, 1, "axes", axis, FRI_ONNX_RANK, &axes));
    const int all = out ? a->rank : a->rank + axes;
    if (all > FRI_ONNX_RANK) return fr_fail(FR_EUNSUPPORTED, "rank %d; %d at most", all, FRI_ONNX_RANK);
    for (int k = 0; k < all; k++) {
        bool named = out && axes == 0 && a->dim[k] == 1;
        for (int i = 0; i < axes; i++) named = named || axis[i] == k || axis[i] == k - all;
        if ((!named && from == a->rank) || (named && out && a->dim[k] != 1))
            return fr_fail(FR_EFORMAT, "its axes do not fit a constant of rank %d", a->rank);
        if (!named || !out) to[rank++] = named ? 1 : a->dim[from];
        from += !named || out;
    }
    if (from != a->rank) return fr_fail(FR_EFORMAT, "its axes do not fit a constant of rank %d", a->rank);
    return view(r, n, a, rank, to);
}

static fr_status reshape(fri_onnx_reader *r, const node *n, const constant *a) {
    int64_t to[FRI_ONNX_RANK];
    int rank = 0;
    if (a->n == 0 || !fri_onnx_new_shape(r, n, a->rank, a->dim, to, &rank))
        return fr_fail(FR_EUNSUPPORTED, "%lld constants become another number of them", (long long)a->n);
    return view(r, n, a, rank, to);
}

static fr_status transpose(fri_onnx_reader *r, const node *n, const constant *a) {
    int64_t perm[2] = {1, 0};
    int count = 0;
    constant *c = NULL;
    if (fri_onnx_attribute(n, "perm") != NULL) FRI_TRY(fri_onnx_integers(r, n, SIZE_MAX, "perm", perm, 2, &count));
    if (a->rank != 2 || a->n == 0 || perm[0] != 1 || perm[1] != 0)
        return fr_fail(FR_EUNSUPPORTED, "a constant of rank %d", a->rank);
    FRI_TRY(fri_onnx_constant_like(r, a->dtype, a, &c));
    fr_host_transpose(a->data, c->own, fr_dtype_size(a->dtype), 1, a->dim[0], a->dim[1]);
    c->dim[0] = a->dim[1];
    c->dim[1] = a->dim[0];
    c->name = a->name;
    return fri_onnx_put_constant(r, n, c);
}

fr_status fri_onnx_fold(fri_onnx_reader *r, const node *n) {
    static const struct {
        const char *type;
        fr_status (*fold)(fri_onnx_reader *r, const node *n);
        fr_status (*of)(fri_onnx_reader *r, const node *n, const constant *input0);
    } folds[] = {
        {"Add", NULL, arithmetic},
        {"Cast", NULL, each},
        {"Ceil", NULL, each},
        {"Clip", NULL, each},
        {"Concat", concat},
        {"Constant", constant_},
        {"ConstantOfShape", NULL, of_shape},
        {"Div", NULL, arithmetic},
        {"Floor", NULL, each},
        {"Gather", NULL, gather},
        {"Identity", same},
        {"Mul", NULL, arithmetic},
        {"Pow", NULL, arithmetic},
        {"ReduceMean", NULL, mean},
        {"Sqrt", NULL, each},
        {"Reshape", NULL, reshape},
        {"Shape", shape},
        {"Slice", NULL, slice},
        {"Squeeze", NULL, squeeze},
        {"Sub", NULL, arithmetic},
        {"Transpose", NULL, transpose},
        {"Unsqueeze", NULL, squeeze},
    };
    const constant *a = NULL;
    FRI_TRY(fri_onnx_check_attributes(n));
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
        if (strcmp(folds[i].type, n->op_type) != 0) continue;
        if (folds[i].fold != NULL) return folds[i].fold(r, n);
        FRI_TRY(fri_onnx_constant_input(r, n, 0, &a));
        return folds[i].of(r, n, a);
    }
    return fr_fail(FR_EUNSUPPORTED, "frugal does not compute %.60s of constants", n->op_type);
}
