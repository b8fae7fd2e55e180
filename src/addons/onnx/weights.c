/* weights.c - layers with parameters, and their values.
 *
 * A layer begins as any new one; its values are entered when the network is whole, because only then it is known what
 * the columns of a Linear behind a Flatten are made of. */
#include "addons/onnx/reader.h"

#include <frugal/weights.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPE_TEXT = FRI_ONNX_RANK * 22 + 4 };

typedef fri_onnx_constant constant;
typedef fri_onnx_reading reading;

fr_status fri_onnx_fill_later(fri_onnx_reader *r, const char *layer, const char *parameter, const constant *from) {
    FRI_TRY(FRI_ROOM(r->fill, r->fills, "parameters"));
    fri_onnx_fill *f = &r->fill[r->fills++];
    snprintf(f->name, sizeof f->name, "%s%s%s", layer, parameter[0] != '\0' ? "." : "", parameter);
    f->from = from;
    return FR_OK;
}

/* ---- the layers ------------------------------------------------------------------------------------------ */

static fr_status check_constant(const constant *c, const char *what, int rank, int64_t n) {
    if (c->dtype != FR_F32 || c->rank != rank || c->n == 0 || (n >= 0 && c->n != n))
        return fr_fail(FR_EUNSUPPORTED,
                       "its %s has rank %d, %lld values and type %s; rank %d%s%.0lld and f32 are needed", what, c->rank,
                       (long long)c->n, fr_dtype_name(c->dtype), rank, n >= 0 ? ", values " : "",
                       n >= 0 ? (long long)n : 0);
    return FR_OK;
}

static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};

/* Input i + 1, parameter i, of n values; n -1: any number. */
static fr_status parameter(const reading *l, size_t i, int rank, int64_t n, const constant **out) {
    FRI_TRY(fri_onnx_constant_input(l->r, l->n, i + 1, out));
    return check_constant(*out, names[i], rank, n);
}

fr_value fri_onnx_again(const reading *l, fr_value x) {
    fr_value y = {-1};
    fr_net_again(l->net, l->name, &x, 1, &y, 1);
    return y;
}

fr_status fri_onnx_filled(reading *l, fr_value y, const constant *const c[4]) {
    FRI_TRY(fri_onnx_put(l, y));
    for (int i = 0; i < 4 && !l->again; i++)
        if (c[i] != NULL) FRI_TRY(fri_onnx_fill_later(l->r, l->name, names[i], c[i]));
    return FR_OK;
}

/* Sizes in both directions, with `pad` around; sides: extra padding left, right, top and bottom, for asymmetric
 * `pads`. */
static fr_status conv_opts(const reading *l, const constant *w, fr_conv2d_opts *o, int64_t sides[4]) {
    int64_t v[3][4] = {{1, 1}, {1, 1}, {0}};
    static const char *const name[] = {"strides", "dilations"};
    for (int i = 0, count = 0; i < 2; i++) {
        if (fri_onnx_attribute(l->n, name[i]) == NULL) continue;
        FRI_TRY(fri_onnx_integers(l->r, l->n, SIZE_MAX, name[i], v[i], 4, &count));
        if (count != 2) return fr_fail(FR_EUNSUPPORTED, "'%s' has %d numbers", name[i], count);
    }
    FRI_TRY(fri_onnx_pads(l, w->dim + 2, v[0], v[1], v[2]));
    for (int i = 0; i < 2; i++) {
        const int64_t begin = v[2][i], end = v[2][i + 2], both = begin < end ? begin : end;
        sides[2 - 2 * i] = begin - both;
        sides[3 - 2 * i] = end - both;
        v[2][i] = both + l->in->pad[i];
    }
    *o = *FR_CONV2D_OPTS(.stride = v[0][0], .stride_w = v[0][1], .dilation = v[1][0], .dilation_w = v[1][1],
                         .padding = v[2][0], .padding_w = v[2][1], .kernel_w = w->dim[3]);
    o->groups = fri_onnx_attribute_int(l->n, "group", 1);
    return FR_OK;
}

/* The weight [_, _, height, width]; a kernel_shape other than the weight's is refused. */
static fr_status kernel(const reading *l, const constant **out) {
    FRI_TRY(parameter(l, 0, 4, -1, out));
    const int64_t *to = (*out)->dim + 2;
    int64_t size[4] = {to[0], to[1]};
    int count = 2;
    if (fri_onnx_attribute(l->n, "kernel_shape") != NULL)
        FRI_TRY(fri_onnx_integers(l->r, l->n, SIZE_MAX, "kernel_shape", size, 4, &count));
    if (count == 2 && size[0] == to[0] && size[1] == to[1]) return FR_OK;
    return fr_fail(FR_EFORMAT, "its kernel_shape has %d numbers, from %lld; its weight is %lld x %lld", count,
                   (long long)size[0], (long long)to[0], (long long)to[1]);
}

fr_status fri_onnx_conv(reading *l) {
    const bool has_bias = fri_onnx_input(l->r, l->n, 2) != NULL;
    const constant *c[4] = {NULL}, *w = NULL;
    fr_conv2d_opts o;
    int64_t sides[4];
    FRI_TRY(kernel(l, &c[0]));
    w = c[0];
    if (has_bias) FRI_TRY(parameter(l, 1, 1, w->dim[0], &c[1]));
    FRI_TRY(conv_opts(l, w, &o, sides));
    if (l->rank != 4 || o.groups < 1 || l->channels % o.groups != 0 || w->dim[1] != l->channels / o.groups)
        return fr_fail(FR_ESHAPE,
                       "its weight reads %lld channels in %lld groups; its input has rank %d and %lld channels",
                       (long long)w->dim[1], (long long)o.groups, l->rank, (long long)l->dim[1]);
    fr_value x = l->x;
    if (sides[0] != 0 || sides[1] != 0 || sides[2] != 0 || sides[3] != 0)
        x = fr_net_zero_pad2d(l->net, fri_onnx_part(l, "pad"), x, sides);
    return fri_onnx_filled(l,
                           l->again ? fri_onnx_again(l, x)
                                    : fr_net_conv2d(l->net, l->name, x, w->dim[0], w->dim[2], &o, has_bias),
                           c);
}

/* Padding by auto_pad or output_shape, and different padding of begin and end: the layer pads as the begin, a smaller
 * end goes to `more`, the padding of the output, and a larger end stays in `sides` to be cut off. */
static fr_status transpose_pads(const reading *l, const constant *w, fr_conv2d_opts *o, int64_t more[2],
                                int64_t sides[4]) {
    enum { MOST = 1 << 20 };
    const int64_t stride[2] = {o->stride, o->stride_w}, dilation[2] = {o->dilation, o->dilation_w};
    int64_t to[2], *padding[2] = {&o->padding, &o->padding_w};
    char how[64];
    int count = 0;
    const bool same = strncmp(fri_onnx_attribute_text(l->n, "auto_pad", "NOTSET", how), "SAME", 4) == 0;
    if (fri_onnx_attribute(l->n, "output_shape") != NULL)
        FRI_TRY(fri_onnx_integers(l->r, l->n, SIZE_MAX, "output_shape", to, 2, &count));
    for (int i = 0; i < 2; i++) {
        int64_t *begin = &sides[2 - 2 * i], *end = &sides[3 - 2 * i];
        if (same || count == 2) {
            const int64_t size = l->dim[2 + i], want = count == 2 ? to[i] : size * stride[i];
            const int64_t full = stride[i] * (size - 1) + more[i] + (w->dim[2 + i] - 1) * dilation[i] + 1;
            if (want < 1 || want > MOST || more[i] < 0 || more[i] > MOST)
                return fr_fail(FR_EFORMAT, "its result has %lld pixels and output_padding %lld", (long long)want,
                               (long long)more[i]);
            const int64_t all = full > want ? full - want : 0, less = all / 2;
            more[i] += full < want ? want - full : 0;
            *padding[i] = 0;
            *begin = strcmp(how, "SAME_UPPER") == 0 ? less : all - less;
            *end = all - *begin;
        }
        const int64_t both = *begin < *end ? *begin : *end;
        *padding[i] += *begin;
        more[i] += *begin - both;
        *end -= both;
        *begin = 0;
    }
    return FR_OK;
}

fr_status fri_onnx_conv_transpose(reading *l) {
    const bool has_bias = fri_onnx_input(l->r, l->n, 2) != NULL;
    const constant *c[4] = {NULL}, *w = NULL;
    int64_t more[2] = {0}, sides[4];
    int count = 2;
    fr_conv2d_opts o;
    FRI_TRY(kernel(l, &c[0]));
    w = c[0];
    FRI_TRY(conv_opts(l, w, &o, sides));
    if (fri_onnx_attribute(l->n, "output_padding") != NULL)
        FRI_TRY(fri_onnx_integers(l->r, l->n, SIZE_MAX, "output_padding", more, 2, &count));
    if (l->rank != 4 || o.groups < 1 || w->dim[0] != l->channels || w->dim[1] > INT32_MAX || o.groups > INT32_MAX ||
        count != 2)
        return fr_fail(FR_ESHAPE,
                       "its weight reads %lld channels in %lld groups; its input has rank %d and %lld channels, and "
                       "'output_padding' %d numbers",
                       (long long)w->dim[0], (long long)o.groups, l->rank, (long long)l->dim[1], count);
    if (w->dim[2] != w->dim[3])
        return fr_fail(FR_EUNSUPPORTED, "its kernel is %lld x %lld; frugal's are square", (long long)w->dim[2],
                       (long long)w->dim[3]);
    FRI_TRY(transpose_pads(l, w, &o, more, sides));
    const int64_t channels = w->dim[1] * o.groups;
    if (has_bias) FRI_TRY(parameter(l, 1, 1, channels, &c[1]));
    const fr_conv_transpose2d_opts *t =
        FR_CONV_TRANSPOSE2D_OPTS(.stride = o.stride, .stride_w = o.stride_w, .padding = o.padding,
                                 .padding_w = o.padding_w, .output_padding = more[0], .output_padding_w = more[1],
                                 .dilation = o.dilation, .dilation_w = o.dilation_w, .groups = o.groups);
    fr_value y = l->again ? fri_onnx_again(l, l->x)
                          : fr_net_conv_transpose2d(l->net, l->name, l->x, channels, w->dim[2], t, has_bias);
    for (int i = 0; i < 2; i++) /* a larger end */
        if (sides[3 - 2 * i] > 0)
            y = fr_net_slice(l->net, fri_onnx_part(l, i == 0 ? "rows" : "columns"), y, 1 + i, 0, -sides[3 - 2 * i], 1);
    return fri_onnx_filled(l, y, c);
}

/* weight [out, in] of a constant [in, out]. */
static fr_status turned(fri_onnx_reader *r, const constant *w, const constant **out) {
    fri_onnx_constant *t = NULL;
    FRI_TRY(fri_onnx_constant_new(r, FR_F32, w->n, &t));
    fr_host_transpose(w->data, t->own, sizeof(float), 1, w->dim[0], w->dim[1]);
    t->rank = 2;
    t->dim[0] = w->dim[1];
    t->dim[1] = w->dim[0];
    *out = t;
    return FR_OK;
}

/* The layer of the node's input 0, with weight and bias c. */
static fr_status linear(reading *l, const constant *const c[4]) {
    const constant *w = c[0], *b = c[1];
    FRI_TRY(fri_onnx_fetch(l, l->n, 0, FRI_ONNX_LAST));
    FRI_TRY(check_constant(w, "weight", 2, -1));
    if ((l->rank != 2 && !l->last) || w->dim[1] != l->channels)
        return fr_fail(FR_ESHAPE, "its weight reads %lld features; its input has rank %d and %lld features",
                       (long long)w->dim[1], l->rank, (long long)l->channels);
    if (b != NULL) FRI_TRY(check_constant(b, "bias", 1, w->dim[0]));
    return fri_onnx_filled(l,
                           l->again ? fri_onnx_again(l, l->x)
                                    : fr_net_linear(l->net, l->name, l->x, w->dim[0], b != NULL),
                           c);
}

/* The f32 constant times a factor; as a vector: a row [1, n], as Keras writes a bias, becomes [n]. */
static fr_status times(fri_onnx_reader *r, const constant *c, double factor, bool vector, const constant **out) {
    fri_onnx_constant *own = NULL;
    FRI_TRY(fri_onnx_constant_like(r, FR_F32, c, &own));
    for (int64_t i = 0; i < c->n; i++) ((float *)own->own)[i] = (float)(factor * fri_onnx_float(c, i));
    if (vector && c->rank == 2 && c->dim[0] == 1) {
        own->rank = 1;
        own->dim[0] = c->n;
    }
    *out = own;
    return FR_OK;
}

/* A bias of a single number stays a single number, a layer after the Linear. */
fr_status fri_onnx_gemm(reading *l) {
    const double alpha = fri_onnx_attribute_float(l->n, "alpha", 1), beta = fri_onnx_attribute_float(l->n, "beta", 1);
    const constant *w = NULL, *b = NULL;
    if (fri_onnx_attribute_int(l->n, "transA", 0) != 0)
        return fr_fail(FR_EUNSUPPORTED, "transA is set; frugal has alpha x w^T + beta b");
    FRI_TRY(parameter(l, 0, 2, -1, &w));
    if (fri_onnx_attribute_int(l->n, "transB", 0) == 0) FRI_TRY(turned(l->r, w, &w));
    if (alpha != 1) FRI_TRY(times(l->r, w, alpha, false, &w));
    if (fri_onnx_input(l->r, l->n, 2) != NULL) FRI_TRY(fri_onnx_constant_input(l->r, l->n, 2, &b));
    if (b != NULL && b->dtype == FR_F32 && (beta != 1 || b->rank == 2)) FRI_TRY(times(l->r, b, beta, true, &b));
    const bool one = b != NULL && b->dtype == FR_F32 && b->n == 1 && b->rank <= 2 && w->dim[0] > 1;
    FRI_TRY(linear(l, (const constant *const[]){w, one ? NULL : b, NULL, NULL}));
    const fri_onnx_value *y = fri_onnx_made(l->r, l->n);
    if (!one || y == NULL) return FR_OK;
    return fri_onnx_put(l, fr_net_add_scalar(l->net, fri_onnx_part(l, "bias"), y->x, fri_onnx_float(b, 0)));
}

/* The vector added by an Add after the MatMul; NULL: none. */
static const constant *added(fri_onnx_reader *r, int at, int64_t features) {
    const int next = fri_onnx_next(r, at, "Add");
    const constant *b = NULL;
    for (size_t i = 0; i < 2 && next >= 0; i++) {
        const fri_onnx_value *v = fri_onnx_input(r, r->graph->node[next], i);
        if (v != NULL && v->constant != NULL && v->constant->rank == 1 && v->constant->n == features) b = v->constant;
    }
    return b;
}

/* MatMul by a constant, with a following Add of a constant; nodes of a layer have the same bias. */
fr_status fri_onnx_matmul(reading *l) {
    const constant *c[4] = {NULL};
    FRI_TRY(parameter(l, 0, 2, -1, &c[0]));
    FRI_TRY(turned(l->r, c[0], &c[0]));
    const int64_t features = c[0]->dim[0];
    const constant *b = c[1] = added(l->r, l->at, features);
    for (int i = 0; i < (int)l->r->graph->n_node && b != NULL; i++)
        if (strcmp(l->r->name[i], l->name) == 0 && added(l->r, i, features) != b) c[1] = NULL;
    if (c[1] != NULL) l->end = fri_onnx_next(l->r, l->at, "Add");
    return linear(l, c);
}

fr_status fri_onnx_norm(reading *l) {
    const constant *c[4] = {NULL};
    const double momentum = fri_onnx_attribute_float(l->n, "momentum", 0.9);
    const bool rows = l->rank == 2; /* images of one pixel */
    for (size_t i = 0; i < 4; i++) FRI_TRY(parameter(l, i, 1, l->channels, &c[i]));
    const fr_batchnorm2d_opts *o =
        FR_BATCHNORM2D_OPTS(.eps = fri_onnx_attribute_float(l->n, "epsilon", 1e-5), .momentum = 1 - momentum);
    if (!(o->eps >= 0) || !(momentum >= 0 && momentum <= 1))
        return fr_fail(FR_EFORMAT, "epsilon %g and momentum %g are impossible", o->eps, momentum);
    fr_value y = rows ? fr_net_unflatten(l->net, fri_onnx_part(l, "images_%d", l->at), l->x, 1, 1) : l->x;
    y = l->again ? fri_onnx_again(l, y) : fr_net_batchnorm2d(l->net, l->name, y, o);
    if (rows) y = fr_net_flatten(l->net, fri_onnx_part(l, "rows_%d", l->at), y, 1);
    return fri_onnx_filled(l, y, c);
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fri_onnx_fill *)a)->name, ((const fri_onnx_fill *)b)->name);
}

/* "[64, 3, 7, 7]" into buf; returns buf. */
static const char *shape_text(int rank, const int64_t *dim, char buf[SHAPE_TEXT]) {
    size_t at = (size_t)snprintf(buf, SHAPE_TEXT, "[");
    for (int i = 0; i < rank && at < SHAPE_TEXT; i++)
        at += (size_t)snprintf(buf + at, SHAPE_TEXT - at, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    if (at < SHAPE_TEXT) snprintf(buf + at, SHAPE_TEXT - at, "]");
    return buf;
}

static fr_status fill_one(const fr_entry *e, const constant *from) {
    const fr_shape want = fr_entry_torch_shape(e);
    char a[SHAPE_TEXT], b[SHAPE_TEXT];
    if (from->rank != want.rank || memcmp(from->dim, want.dim, (size_t)want.rank * sizeof *want.dim) != 0)
        return fr_fail(FR_ESHAPE, "parameter '%.200s' is %s in the file but %s in the network", e->name,
                       shape_text(from->rank, from->dim, a), shape_text(want.rank, want.dim, b));
    if (e->spatial == 1 || e->channels == 1) return fr_tensor_upload(from->data, e->tensor);
    FRI_OWNED(fri_free) void *turned = malloc((size_t)from->n * sizeof(float) + 1);
    if (turned == NULL) return fr_fail(FR_ENOMEM, "no host memory for %lld values", (long long)from->n);
    fr_host_transpose(from->data, turned, sizeof(float), e->outer, e->channels, e->spatial);
    return fr_tensor_upload(turned, e->tensor);
}

fr_status fri_onnx_fill_all(const fri_onnx_reader *r, fr_module *m) {
    FRI_OWNED(fr_entries_free) fr_entries e = {0};
    FRI_TRY(fr_entries_collect(m, &e));
    FRI_TRY(fr_entries_torch_layout(m, FR_WEIGHTS_OPTS(), &e));
    if (r->fills > 0) qsort(r->fill, r->fills, sizeof *r->fill, by_name);
    for (size_t i = 0; i < e.n && r->fills > 0; i++) {
        fri_onnx_fill key;
        if (strlen(e.entry[i].name) >= sizeof key.name) continue;
        strcpy(key.name, e.entry[i].name);
        const fri_onnx_fill *f = bsearch(&key, r->fill, r->fills, sizeof key, by_name);
        if (f != NULL) FRI_TRY(fill_one(&e.entry[i], f->from));
    }
    return FR_OK;
}
