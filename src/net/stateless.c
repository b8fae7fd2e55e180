/* stateless.c - layers without parameters: each calls its op. */
#include "net/layers.h"
#include "net/module.h"
#include "ops/op.h"

#include <math.h>

/* Creates the module and copies its options. */
static fr_status make_layer(const fr_module_class *class_, const void *state, size_t bytes, fr_module **m) {
    fr_module *c = NULL;
    FRI_TRY(fr_module_create(class_, bytes, &c));
    if (bytes > 0) __builtin_memcpy(c->state, state, bytes);
    fr_module_release(m);
    *m = c;
    return FR_OK;
}

enum {
    RANDOM = FR_LAYER_POINTWISE | FR_LAYER_KEEPS_LAYOUT, /* random numbers depend on the batch */
    ACTIVATION = RANDOM | FR_LAYER_PER_IMAGE
};

/* Layer of one input; in `call`, s points to the layer's options. CREATE makes the constructor of one parameter. */
#define OP_LAYER(word, class_name, type, what, call)               \
    static fr_status word##_forward(fr_module *m, fr_tensor **x) { \
        const type *s = m->state;                                  \
        return call;                                               \
    }                                                              \
    static const fr_module_class word##_class = {.name = class_name, .forward = word##_forward, .traits = what};

#define CREATE(word, parameter, make)                   \
    fr_status fri_nn_##word(parameter, fr_module **m) { \
        return make;                                    \
    }

/* ---- activations ------------------------------------------------------------------------------------------- */

/* Layer whose op takes only x. */
#define PLAIN_LAYER(word, class_name, what, ...)                            \
    static fr_status word##_forward(fr_module *m, fr_tensor **x) {          \
        (void)m;                                                            \
        return fr_##word(*x, x);                                            \
    }                                                                       \
    static const fr_module_class word##_class = {.name = class_name,        \
                                                 .forward = word##_forward, \
                                                 .traits = what,            \
                                                 __VA_ARGS__};              \
    fr_status fri_nn_##word(fr_module **m) {                                \
        return make_layer(&word##_class, NULL, 0, m);                       \
    }
/* Layer that a fused call of the previous layer may compute. */
#define TAIL_LAYER(word, saves, class_name, kind, ...)                   \
    static const fri_layer_call word##_fused = {FRI_LAYER_##kind, NULL}; \
    PLAIN_LAYER(word, class_name, ACTIVATION, .fri_call = &word##_fused)
TAIL_LAYER(relu, , "ReLU", RELU)
TAIL_LAYER(relu6, , "ReLU6", RELU6)
FRI_ACTIVATIONS(TAIL_LAYER)
PLAIN_LAYER(softmax, "Softmax", FR_LAYER_KEEPS_LAYOUT | FR_LAYER_PER_IMAGE)
PLAIN_LAYER(log_softmax, "LogSoftmax", FR_LAYER_KEEPS_LAYOUT | FR_LAYER_PER_IMAGE)

OP_LAYER(leaky_relu, "LeakyReLU", double, ACTIVATION, fr_leaky_relu(*x, *s, x))
fr_status fri_nn_leaky_relu(double slope, fr_module **m) {
    if (!(slope >= 0) || !isfinite(slope))
        return fr_fail(FR_EINVAL, "LeakyReLU: slope %g must be >= 0 and finite", slope);
    return make_layer(&leaky_relu_class, &slope, sizeof slope, m);
}

OP_LAYER(clamp, "Clamp", double, ACTIVATION, fr_clamp(*x, s[0], s[1], x))
fr_status fri_nn_clamp(double low, double high, fr_module **m) {
    const double bounds[2] = {low, high};
    if (!(low <= high)) return fr_fail(FR_EINVAL, "Clamp: low is %g and high is %g; low must be <= high", low, high);
    return make_layer(&clamp_class, bounds, sizeof bounds, m);
}

/* ---- pooling ----------------------------------------------------------------------------------------------- */

OP_LAYER(maxpool2d, "MaxPool2d", fr_pool2d_state, FR_LAYER_PER_IMAGE, fr_maxpool2d(*x, s->kernel, &s->opts, x))
fr_status fri_nn_maxpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m) {
    fr_pool2d_state p = {kernel, opts != NULL ? *opts : *FR_POOL2D_OPTS()};
    return make_layer(&maxpool2d_class, &p, sizeof p, m);
}

OP_LAYER(avgpool2d, "AvgPool2d", fr_pool2d_state, FR_LAYER_PER_IMAGE, fr_avgpool2d(*x, s->kernel, &s->opts, x))
fr_status fri_nn_avgpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m) {
    fr_pool2d_state p = {kernel, opts != NULL ? *opts : *FR_POOL2D_OPTS()};
    return make_layer(&avgpool2d_class, &p, sizeof p, m);
}

OP_LAYER(adaptive, "AdaptiveAvgPool2d", int64_t, FR_LAYER_PER_IMAGE, fr_adaptive_avgpool2d(*x, s[0], s[1], x))
fr_status fri_nn_adaptive_avgpool2d(int64_t p, int64_t q, fr_module **m) {
    int64_t size[2] = {p, q};
    return make_layer(&adaptive_class, size, sizeof size, m);
}

/* ---- dropout ----------------------------------------------------------------------------------------------- */

OP_LAYER(dropout, "Dropout", double, RANDOM, fr_dropout(*x, *s, m->training, x))
OP_LAYER(dropout2d, "Dropout2d", double, RANDOM, fr_dropout2d(*x, *s, m->training, x))
OP_LAYER(stochastic_depth, "StochasticDepth", double, RANDOM, fr_stochastic_depth(*x, *s, m->training, x))

static fr_status make_dropout(const fr_module_class *class_, double p, fr_module **m) {
    if (!(p >= 0 && p <= 1)) return fr_fail(FR_EINVAL, "%s: p is %g; it must lie in 0..1", class_->name, p);
    return make_layer(class_, &p, sizeof p, m);
}

CREATE(dropout, double p, make_dropout(&dropout_class, p, m))
CREATE(dropout2d, double p, make_dropout(&dropout2d_class, p, m))
CREATE(stochastic_depth, double p, make_dropout(&stochastic_depth_class, p, m))

/* ---- shape ------------------------------------------------------------------------------------------------- */

OP_LAYER(flatten, "Flatten", int, FR_LAYER_FLATTENS | FR_LAYER_PER_IMAGE, fr_flatten(*x, *s, x))
CREATE(flatten, int start_dim, make_layer(&flatten_class, &start_dim, sizeof start_dim, m))

OP_LAYER(upsample, "Upsample", fr_upsample_state, FR_LAYER_PER_IMAGE,
         fr_upsample(*x, fr_tensor_dim(*x, 1) * s->factor, fr_tensor_dim(*x, 2) * s->factor, s->mode, false, x))
fr_status fri_nn_upsample(int64_t factor, fr_upsample_mode mode, fr_module **m) {
    fr_upsample_state u = {factor, mode};
    if (factor < 1 || factor > INT32_MAX)
        return fr_fail(FR_EINVAL, "Upsample: factor %lld must be >= 1 and below 2^31", (long long)factor);
    return make_layer(&upsample_class, &u, sizeof u, m);
}

/* Left, right, top and bottom. */
#define PAD_CALL \
    fr_pad(*x, (int64_t[]){0, s->pad[2], s->pad[0], 0}, (int64_t[]){0, s->pad[3], s->pad[1], 0}, s->value, x)
OP_LAYER(zero_pad2d, "ZeroPad2d", fr_pad2d_state, FR_LAYER_PER_IMAGE, PAD_CALL)
OP_LAYER(constant_pad2d, "ConstantPad2d", fr_pad2d_state, FR_LAYER_PER_IMAGE, PAD_CALL)

static fr_status make_pad(const fr_module_class *class_, const int64_t pad[4], double value, fr_module **m) {
    fr_pad2d_state s = {.value = value};
    for (int i = 0; i < 4; i++) {
        if (pad[i] < 0) return fr_fail(FR_EINVAL, "%s: pad[%d] is %lld, below 0", class_->name, i, (long long)pad[i]);
        s.pad[i] = pad[i];
    }
    return make_layer(class_, &s, sizeof s, m);
}

fr_status fri_nn_zero_pad2d(const int64_t pad[4], fr_module **m) {
    FRI_NOT_NULL(pad);
    return make_pad(&zero_pad2d_class, pad, 0, m);
}

fr_status fri_nn_constant_pad2d(const int64_t pad[4], double value, fr_module **m) {
    FRI_NOT_NULL(pad);
    return make_pad(&constant_pad2d_class, pad, value, m);
}

static fr_status make_shuffle(const fr_module_class *class_, int64_t r, fr_module **m) {
    if (r < 1) return fr_fail(FR_EINVAL, "%s: factor %lld must be >= 1", class_->name, (long long)r);
    return make_layer(class_, &r, sizeof r, m);
}

OP_LAYER(pixel_shuffle, "PixelShuffle", int64_t, FR_LAYER_PER_IMAGE, fr_pixel_shuffle(*x, *s, x))
OP_LAYER(pixel_unshuffle, "PixelUnshuffle", int64_t, FR_LAYER_PER_IMAGE, fr_pixel_unshuffle(*x, *s, x))

/* [rows, groups, C / groups] becomes [rows, C / groups, groups]. */
static fr_status shuffle_channels(int64_t groups, fr_tensor **x) {
    const fr_shape shape = (*x)->shape;
    const int64_t channels = shape.rank > 0 ? shape.dim[shape.rank - 1] : 0;
    if (channels < 1 || channels % groups != 0)
        return fr_fail(FR_ESHAPE, "ChannelShuffle: %lld channels in %lld groups; groups must divide channels",
                       (long long)channels, (long long)groups);
    FRI_TRY(fr_reshape(*x, 3, (int64_t[]){fri_numel(*x) / channels, groups, channels / groups}, x));
    FRI_TRY(fr_permute(*x, (int[]){0, 2, 1}, x));
    return fr_reshape(*x, shape.rank, shape.dim, x);
}
OP_LAYER(channel_shuffle, "ChannelShuffle", int64_t, FR_LAYER_MOVES | FR_LAYER_PER_IMAGE, shuffle_channels(*s, x))
CREATE(channel_shuffle, int64_t groups, make_shuffle(&channel_shuffle_class, groups, m))

/* Channels start .. start + length - 1. */
OP_LAYER(narrow, "Narrow", int64_t, FR_LAYER_MOVES | FR_LAYER_PER_IMAGE,
         fr_narrow(*x, fr_tensor_rank(*x) - 1, s[0], s[1], x))
fr_status fri_nn_narrow(int64_t start, int64_t length, fr_module **m) {
    if (start < 0 || length < 1)
        return fr_fail(FR_EINVAL, "Narrow: length is %lld and start is %lld; they must be >= 1 and >= 0",
                       (long long)length, (long long)start);
    return make_layer(&narrow_class, (int64_t[]){start, length}, 2 * sizeof start, m);
}

CREATE(pixel_shuffle, int64_t r, make_shuffle(&pixel_shuffle_class, r, m))
CREATE(pixel_unshuffle, int64_t r, make_shuffle(&pixel_unshuffle_class, r, m))

OP_LAYER(resize, "Resize", fr_resize_state, FR_LAYER_PER_IMAGE,
         fr_upsample(*x, s->h, s->w, s->mode, s->align_corners, x))
fr_status fri_nn_resize(int64_t h, int64_t w, fr_upsample_mode mode, bool align_corners, fr_module **m) {
    const fr_resize_state r = {h, w, mode, align_corners};
    if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        return fr_fail(FR_EINVAL, "Resize: to %lld x %lld pixels; 1..2^31 each", (long long)h, (long long)w);
    return make_layer(&resize_class, &r, sizeof r, m);
}

/* Rows [N, h w C] become images [N, h, w, C]. */
static fr_status unflatten(const int64_t size[2], fr_tensor **x) {
    const int64_t n = fr_tensor_dim(*x, 0), features = fr_tensor_dim(*x, 1), pixels = size[0] * size[1];
    if (fr_tensor_rank(*x) != 2 || features % pixels != 0)
        return fr_fail(FR_ESHAPE, "Unflatten: rank %d, %lld features; rows of %lld x %lld pixels are needed",
                       fr_tensor_rank(*x), (long long)features, (long long)size[0], (long long)size[1]);
    return fr_reshape(*x, 4, (int64_t[]){n, size[0], size[1], features / pixels}, x);
}
OP_LAYER(unflatten, "Unflatten", int64_t, FR_LAYER_PER_IMAGE, unflatten(s, x))
fr_status fri_nn_unflatten(int64_t h, int64_t w, fr_module **m) {
    const int64_t size[2] = {h, w};
    if (h < 1 || w < 1 || h > 1 << 20 || w > 1 << 20)
        return fr_fail(FR_EINVAL, "Unflatten: to %lld x %lld pixels; 1..2^20 each", (long long)h, (long long)w);
    return make_layer(&unflatten_class, size, sizeof size, m);
}

/* x[start:end:step] of a dimension of [N, H, W, C]. */
OP_LAYER(slice, "Slice", fr_slice_state, FR_LAYER_PER_IMAGE, fr_slice(*x, s->dim, s->start, s->end, s->step, x))
fr_status fri_nn_slice(int dim, int64_t start, int64_t end, int64_t step, fr_module **m) {
    const fr_slice_state s = {dim, start, end, step};
    if (dim < 1 || dim > 2)
        return fr_fail(FR_EINVAL, "Slice: dim is %d; it must be 1 (height) or 2 (width); fr_net_narrow cuts channels",
                       dim);
    return make_layer(&slice_class, &s, sizeof s, m);
}

OP_LAYER(scale, "Scale", double, ACTIVATION, fr_scale(*x, *s, x))
OP_LAYER(add_scalar, "AddScalar", double, ACTIVATION, fr_add_scalar(*x, *s, x))
CREATE(scale, double alpha, make_layer(&scale_class, &alpha, sizeof alpha, m))
CREATE(add_scalar, double alpha, make_layer(&add_scalar_class, &alpha, sizeof alpha, m))

static fr_status identity_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    (void)x;
    return FR_OK;
}
static const fr_module_class identity_class = {.name = "Identity", .forward = identity_forward, .traits = ACTIVATION};

fr_status fri_nn_identity(fr_module **m) {
    return make_layer(&identity_class, NULL, 0, m);
}

/* ---- layers with several inputs ------------------------------------------------------------------------------ */

/* Returns the result of a sum or product, computed in in[0], whose storage may be reused. */
static fr_status in_first(fr_status s, fr_tensor **in, fr_tensor **out) {
    if (s < 0) return s;
    FRI_MOVE(&out[0], in[0]);
    return FR_OK;
}

static fr_status add_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    (void)m;
    (void)n_in;
    (void)n_out;
    return in_first(fr_add(in[0], in[1], &in[0]), in, out);
}
static const fri_layer_call add_fused = {FRI_LAYER_ADD, NULL};
const fr_module_class fri_add_class = {.name = "Add", .run = add_run, .traits = ACTIVATION, .fri_call = &add_fused};

#define BINARY_LAYER(word, class_name)                                                                \
    static fr_status word##_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) { \
        (void)m;                                                                                      \
        (void)n_in;                                                                                   \
        (void)n_out;                                                                                  \
        return in_first(fr_##word(in[0], in[1], &in[0]), in, out);                                    \
    }                                                                                                 \
    const fr_module_class fri_##word##_class = {.name = class_name, .run = word##_run, .traits = ACTIVATION};
BINARY_LAYER(sub, "Sub")
BINARY_LAYER(mul, "Mul")
BINARY_LAYER(div, "Div")

static fr_status concat_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    (void)m;
    (void)n_out;
    return fr_concat(in, n_in, out);
}
static const fri_layer_call concat_fused = {FRI_LAYER_CONCAT, NULL};
const fr_module_class fri_concat_class = {.name = "Concat",
                                          .run = concat_run,
                                          .fri_call = &concat_fused,
                                          .traits = FR_LAYER_CONCATENATES | FR_LAYER_PER_IMAGE};

static fr_status upsample_to_run(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    const int64_t p = fr_tensor_dim(in[1], 1), q = fr_tensor_dim(in[1], 2);
    fr_tensor_release(&in[1]);
    return in_first(fr_upsample(in[0], p, q, *(fr_upsample_mode *)m->state, false, &in[0]), in, out);
}
const fr_module_class fri_upsample_to_class = {.name = "Upsample",
                                               .run = upsample_to_run,
                                               .traits = FR_LAYER_PER_IMAGE};
