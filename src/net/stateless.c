/* stateless.c - layers without parameters: each calls its op. */
#include "net/layers.h"
#include "net/module.h"
#include "ops/op.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

enum {
    RANDOM = FR_LAYER_POINTWISE | FR_LAYER_KEEPS_LAYOUT, /* random numbers depend on the batch */
    ACTIVATION = RANDOM | FR_LAYER_PER_IMAGE,
    ROWS = FR_LAYER_KEEPS_LAYOUT | FR_LAYER_PER_IMAGE,
    SHAPE = FR_LAYER_PER_IMAGE,
    MOVES = FR_LAYER_MOVES | FR_LAYER_PER_IMAGE
};

static fr_status make_layer(const fr_module_class *class_, const void *state, size_t bytes, fr_module **m) {
    fr_module *c = NULL;
    FRI_TRY(fr_module_create(class_, bytes, &c));
    if (bytes > 0) memcpy(c->state, state, bytes);
    fr_module_release(m);
    *m = c;
    return FR_OK;
}

static fr_value enter_layer(fr_net *n, const char *name, const fr_module_class *class_, const void *state, size_t bytes,
                            const fr_value *in, int n_in) {
    fr_value y = {-1};
    fr_net_op(n, name, class_, state, bytes, in, n_in, &y, 1);
    return y;
}

/* ---- layers whose op takes only x ------------------------------------------------------------------------------ */

#define PLAIN_LAYER(word, class_name, what, call, fused)                    \
    static fr_status word##_forward(fr_module *m, fr_tensor **x) {          \
        return call;                                                        \
    }                                                                       \
    static const fr_module_class word##_class = {.name = class_name,        \
                                                 .forward = word##_forward, \
                                                 .traits = what,            \
                                                 .fri_call = fused};        \
    fr_status fri_nn_##word(fr_module **m) {                                \
        return make_layer(&word##_class, NULL, 0, m);                       \
    }                                                                       \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x) {       \
        return enter_layer(n, name, &word##_class, NULL, 0, &x, 1);         \
    }
/* Layer that a fused call of the previous layer may compute. */
#define TAIL_LAYER(word, saves, class_name, kind, ...)                   \
    static const fri_layer_call word##_fused = {FRI_LAYER_##kind, NULL}; \
    PLAIN_LAYER(word, class_name, ACTIVATION, fr_##word(*x, x), &word##_fused)
FRI_PLAIN_LAYERS(TAIL_LAYER)
PLAIN_LAYER(softmax, "Softmax", ROWS, fr_softmax(*x, x), NULL)
PLAIN_LAYER(log_softmax, "LogSoftmax", ROWS, fr_log_softmax(*x, x), NULL)
PLAIN_LAYER(identity, "Identity", ACTIVATION, FR_OK, NULL)

/* ---- layers with options ----------------------------------------------------------------------------------------- */

#define POOL_OPTIONS opts != NULL ? *opts : *FR_POOL2D_OPTS()

static fr_status enlarge(const fr_upsample_state *s, fr_tensor **x) {
    if (s->factor < 1 || s->factor > INT32_MAX)
        return fr_fail(FR_EINVAL, "factor %lld must be >= 1 and below 2^31", (long long)s->factor);
    return fr_upsample(*x, fr_tensor_dim(*x, 1) * s->factor, fr_tensor_dim(*x, 2) * s->factor, s->mode, false, x);
}

static fr_pad2d_state pad_of(const int64_t *pad, double value) {
    fr_pad2d_state s = {{INT64_MIN}, value}; /* NULL */
    if (pad != NULL) memcpy(s.pad, pad, sizeof s.pad);
    return s;
}

/* Left, right, top and bottom. */
static fr_status pad2d(const fr_pad2d_state *s, fr_tensor **x) {
    const int64_t *pad = s->pad;
    if (pad[0] == INT64_MIN) return fr_fail(FR_EINVAL, "pad is NULL");
    return fr_pad(*x, (int64_t[]){0, pad[2], pad[0], 0}, (int64_t[]){0, pad[3], pad[1], 0}, s->value, x);
}

/* [rows, groups, C / groups] becomes [rows, C / groups, groups]. */
static fr_status shuffle_channels(int64_t groups, fr_tensor **x) {
    const fr_shape shape = (*x)->shape;
    const int64_t channels = shape.rank > 0 ? shape.dim[shape.rank - 1] : 0;
    if (groups < 1 || channels < 1 || channels % groups != 0)
        return fr_fail(FR_ESHAPE, "%lld channels in %lld groups; groups must divide channels", (long long)channels,
                       (long long)groups);
    FRI_TRY(fr_reshape(*x, 3, (int64_t[]){fri_numel(*x) / channels, groups, channels / groups}, x));
    FRI_TRY(fr_permute(*x, (int[]){0, 2, 1}, x));
    return fr_reshape(*x, shape.rank, shape.dim, x);
}

/* Channels start .. start + length - 1. */
static fr_status narrow_channels(const int64_t range[2], fr_tensor **x) {
    if (range[1] < 1) return fr_fail(FR_EINVAL, "length is %lld; at least 1", (long long)range[1]);
    return fr_narrow(*x, fr_tensor_rank(*x) - 1, range[0], range[1], x);
}

/* Rows [N, h w C] become images [N, h, w, C]. */
static fr_status unflatten(const int64_t size[2], fr_tensor **x) {
    const int64_t n = fr_tensor_dim(*x, 0), features = fr_tensor_dim(*x, 1), h = size[0], w = size[1];
    if (h < 1 || w < 1 || h > 1 << 20 || w > 1 << 20 || fr_tensor_rank(*x) != 2 || features % (h * w) != 0)
        return fr_fail(FR_ESHAPE, "rank %d, %lld features; rows of %lld x %lld pixels, 1..2^20 each",
                       fr_tensor_rank(*x), (long long)features, (long long)h, (long long)w);
    return fr_reshape(*x, 4, (int64_t[]){n, h, w, features / (h * w)}, x);
}

/* x[start:end:step] of a dimension of [N, H, W, C]. */
static fr_status slice_image(const fr_slice_state *s, fr_tensor **x) {
    if (s->dim < 1 || s->dim > 2)
        return fr_fail(FR_EINVAL, "dim is %d; it must be 1 (height) or 2 (width); fr_net_narrow cuts channels", s->dim);
    return fr_slice(*x, s->dim, s->start, s->end, s->step, x);
}

#define LAYER(word, class_name, what, parameters, call, type, ...)                                       \
    static fr_status word##_forward(fr_module *m, fr_tensor **x) {                                       \
        const type *s = m->state;                                                                        \
        return call;                                                                                     \
    }                                                                                                    \
    static const fr_module_class word##_class = {class_name, .forward = word##_forward, .traits = what}; \
    fr_status fri_nn_##word(FRI_PARAMETERS parameters, fr_module **m) {                                  \
        const type s[] = {__VA_ARGS__};                                                                  \
        return make_layer(&word##_class, s, sizeof s, m);                                                \
    }                                                                                                    \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, FRI_PARAMETERS parameters) {         \
        const type s[] = {__VA_ARGS__};                                                                  \
        return enter_layer(n, name, &word##_class, s, sizeof s, &x, 1);                                  \
    }
FRI_LAYERS(LAYER)

/* ---- layers with several inputs ------------------------------------------------------------------------------ */

/* Returns the result of a call that was computed in in[0], whose storage may be reused. */
static fr_status in_first(fr_status s, fr_tensor **in, fr_tensor **out) {
    if (s < 0) return s;
    FRI_MOVE(&out[0], in[0]);
    return FR_OK;
}

#define BINARY_LAYER(word, class_name, fused)                                                         \
    static fr_status word##_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) { \
        return in_first(fr_##word(in[0], in[1], &in[0]), in, out);                                    \
    }                                                                                                 \
    static const fr_module_class word##_class = {class_name, .run = word##_run, .traits = ACTIVATION, \
                                                 .fri_call = fused};                                  \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value a, fr_value b) {                     \
        return enter_layer(n, name, &word##_class, NULL, 0, (fr_value[]){a, b}, 2);                   \
    }
static const fri_layer_call add_fused = {FRI_LAYER_ADD, NULL};
BINARY_LAYER(add, "Add", &add_fused)
BINARY_LAYER(sub, "Sub", NULL)
BINARY_LAYER(mul, "Mul", NULL)
BINARY_LAYER(div, "Div", NULL)

static fr_status concat_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    return fr_concat(in, n_in, out);
}
static const fri_layer_call concat_fused = {FRI_LAYER_CONCAT, NULL};
static const fr_module_class concat_class = {"Concat", .run = concat_run, .fri_call = &concat_fused,
                                             .traits = FR_LAYER_CONCATENATES | FR_LAYER_PER_IMAGE};

fr_value fr_net_concat(fr_net *n, const char *name, const fr_value *x, int count) {
    return enter_layer(n, name, &concat_class, NULL, 0, x, count);
}

static fr_status upsample_to_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    const int64_t p = fr_tensor_dim(in[1], 1), q = fr_tensor_dim(in[1], 2);
    fr_tensor_release(&in[1]);
    return in_first(fr_upsample(in[0], p, q, *(fr_upsample_mode *)m->state, false, &in[0]), in, out);
}
static const fr_module_class upsample_to_class = {"Upsample", .run = upsample_to_run, .traits = SHAPE};

fr_value fr_net_upsample_to(fr_net *n, const char *name, fr_value x, fr_value like, fr_upsample_mode mode) {
    return enter_layer(n, name, &upsample_to_class, &mode, sizeof mode, (fr_value[]){x, like}, 2);
}
