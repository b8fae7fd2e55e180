/* layers.c - layers with parameters: convolutions, linear, embedding, norms and layer scale. */
#include "net/layers.h"
#include "net/list.h"
#include "ops/conv2d.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Default of torch's Conv2d and Linear: kaiming uniform with a = sqrt(5) is U(-1/sqrt(fan_in), 1/sqrt(fan_in)); the
 * bias has the same bound. */
static fr_status default_init(fr_tensor *weight, fr_tensor *bias, int64_t fan_in) {
    double bound = fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
    fr_status s = fr_init_uniform(weight, -bound, bound);
    return s < 0 || bias == NULL ? s : fr_init_uniform(bias, -bound, bound);
}

/* Creates a module with a state, "weight" of this shape and, unless `bias` is 0, "bias" of length `bias`. fan_in:
 * product of all dimensions of the weight but the first. */
static fr_status create_weighted(const fr_module_class *class_, const void *state, size_t bytes, int rank,
                                 const int64_t *shape, int64_t bias, fr_device device, fr_module **m) {
    FRI_OWNED(fr_module_release) fr_module *c = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *b = NULL, *w = NULL;
    FRI_TRY(fr_module_create(class_, bytes, &c));
    if (bytes > 0) memcpy(c->state, state, bytes);
    FRI_TRY(fri_parameter_new(rank, shape, FR_F32, device, &w));
    if (bias > 0) FRI_TRY(fri_parameter_new(1, &bias, FR_F32, device, &b));
    FRI_TRY(default_init(w, b, fri_numel(w) / shape[0]));
    FRI_TRY(fr_module_add_parameter(c, "weight", &w));
    if (b != NULL) FRI_TRY(fr_module_add_parameter(c, "bias", &b));
    fr_module_release(m);
    FRI_MOVE(m, c);
    return FR_OK;
}

static fr_tensor *layer_weight(const fr_module *m) {
    return m->tensors[0].tensor;
}

static fr_tensor *layer_bias(const fr_module *m) {
    return m->n_tensors > 1 ? m->tensors[1].tensor : NULL;
}

static fr_status check_conv(const char *class_, int64_t in, int64_t out, int64_t kernel, int64_t groups) {
    if (in >= 1 && out >= 1 && kernel >= 1 && groups >= 1 && in % groups == 0 && out % groups == 0) return FR_OK;
    return fr_fail(FR_EINVAL,
                   "%s: %lld -> %lld channels, kernel %lld, groups %lld: all must be >= 1 and groups must divide both "
                   "channel counts",
                   class_, (long long)in, (long long)out, (long long)kernel, (long long)groups);
}

/* ---- Conv2d ------------------------------------------------------------------------------------------------ */

static fr_status conv2d_forward(fr_module *m, fr_tensor **x) {
    return fr_conv2d(*x, layer_weight(m), layer_bias(m), m->state, x);
}

static const fri_layer_call conv2d_fused = {FRI_LAYER_CONV2D, NULL};
static const fr_module_class conv2d_class = {.name = "Conv2d",
                                             .forward = conv2d_forward,
                                             .traits = FR_LAYER_PER_IMAGE | FR_LAYER_CASTS,
                                             .fri_call = &conv2d_fused};

fr_status fri_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const fr_conv2d_opts *opts, bool bias,
                        fr_device device, fr_module **m) {
    const fr_conv2d_opts *o = opts != NULL ? opts : FR_CONV2D_OPTS();
    const int64_t kernel_w = o->kernel_w >= 0 ? o->kernel_w : kernel;
    FRI_TRY(check_conv("Conv2d", in, out, kernel < kernel_w ? kernel : kernel_w, o->groups));
    return create_weighted(&conv2d_class, o, sizeof *o, 4, (int64_t[]){out, kernel, kernel_w, in / o->groups},
                           bias ? out : 0, device, m);
}

/* ---- ConvTranspose2d --------------------------------------------------------------------------------------- */

static fr_status conv_transpose2d_forward(fr_module *m, fr_tensor **x) {
    return fr_conv_transpose2d(*x, layer_weight(m), layer_bias(m), m->state, x);
}

static const fr_module_class conv_transpose2d_class = {.name = "ConvTranspose2d",
                                                       .forward = conv_transpose2d_forward,
                                                       .traits = FR_LAYER_PER_IMAGE | FR_LAYER_CASTS};

fr_status fri_nn_conv_transpose2d(int64_t in, int64_t out, int64_t kernel, const fr_conv_transpose2d_opts *opts,
                                  bool bias, fr_device device, fr_module **m) {
    const fr_conv_transpose2d_opts *o = opts != NULL ? opts : FR_CONV_TRANSPOSE2D_OPTS();
    FRI_TRY(check_conv("ConvTranspose2d", in, out, kernel, o->groups));
    /* PyTorch also uses the second dimension of [in, out / groups, R, S] for the fan-in */
    return create_weighted(&conv_transpose2d_class, o, sizeof *o, 4, (int64_t[]){in, kernel, kernel, out / o->groups},
                           bias ? out : 0, device, m);
}

/* ---- Linear ------------------------------------------------------------------------------------------------ */

static fr_status linear_forward(fr_module *m, fr_tensor **x) {
    return fr_linear(*x, layer_weight(m), layer_bias(m), x);
}

static const fr_module_class linear_class = {.name = "Linear",
                                             .forward = linear_forward,
                                             .traits = FR_LAYER_COLUMNS | FR_LAYER_PER_IMAGE | FR_LAYER_CASTS};

fr_status fri_nn_linear(int64_t in, int64_t out, bool bias, fr_device device, fr_module **m) {
    if (in < 1 || out < 1)
        return fr_fail(FR_EINVAL, "Linear: %lld -> %lld features; both must be >= 1", (long long)in, (long long)out);
    return create_weighted(&linear_class, NULL, 0, 2, (int64_t[]){out, in}, bias ? out : 0, device, m);
}

/* ---- Embedding --------------------------------------------------------------------------------------------- */

static fr_status embedding_forward(fr_module *m, fr_tensor **x) {
    return fr_embedding(*x, layer_weight(m), x);
}

static const fr_module_class embedding_class = {.name = "Embedding",
                                                .forward = embedding_forward,
                                                .traits = FR_LAYER_PER_IMAGE};

fr_status fri_nn_embedding(int64_t rows, int64_t dim, fr_device device, fr_module **m) {
    FRI_OWNED(fr_module_release) fr_module *e = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *w = NULL;
    if (rows < 1 || dim < 1)
        return fr_fail(FR_EINVAL, "Embedding: %lld rows of %lld; both must be >= 1", (long long)rows, (long long)dim);
    FRI_TRY(fr_module_create(&embedding_class, 0, &e));
    FRI_TRY(fri_parameter_new(2, (int64_t[]){rows, dim}, FR_F32, device, &w));
    FRI_TRY(fr_init_normal(w, 0, 1));
    FRI_TRY(fr_module_add_parameter(e, "weight", &w));
    fr_module_release(m);
    FRI_MOVE(m, e);
    return FR_OK;
}

/* ---- BatchNorm2d, InPlaceABN ------------------------------------------------------------------------------- */

/* Operands and options, which *o holds. */
static fri_norm norm_of(const fr_module *m, fr_batchnorm2d_opts *o) {
    const fr_norm_state *n = m->state;
    const fri_named_tensor *t = m->tensors;
    *o = (fr_batchnorm2d_opts){.train = fri_norm_trains(m), .eps = n->eps, .momentum = n->momentum};
    return (fri_norm){.gamma = t[FR_NORM_WEIGHT].tensor,
                      .beta = t[FR_NORM_BIAS].tensor,
                      .running_mean = t[FR_NORM_MEAN].tensor,
                      .running_var = t[FR_NORM_VAR].tensor,
                      .batches = t[FR_NORM_BATCHES].tensor,
                      .opts = o};
}

static fr_status batchnorm2d_call(fr_module *m, const fri_layer_args *args, fr_tensor **x) {
    fr_batchnorm2d_opts o;
    const fri_norm norm = norm_of(m, &o);
    return args->parts > 0 ? fri_norm_parts(args->part, args->parts, &norm, args->act, x)
                           : fri_norm_act(*x, &norm, args->addend, args->act, x);
}

static fr_status batchnorm2d_forward(fr_module *m, fr_tensor **x) {
    return batchnorm2d_call(m, &(fri_layer_args){0}, x);
}

static fr_status inplace_abn_forward(fr_module *m, fr_tensor **x) {
    fr_batchnorm2d_opts o;
    const fri_norm norm = norm_of(m, &o);
    return fri_inplace_abn(*x, &norm, ((const fr_norm_state *)m->state)->slope, x);
}

enum { NORM_TRAITS = FR_LAYER_KEEPS_LAYOUT | FR_LAYER_KEEPS_F32 | FR_LAYER_PER_IMAGE };
static const fri_layer_call batchnorm2d_fused = {FRI_LAYER_NORM, batchnorm2d_call};
static const fri_layer_call inplace_abn_fused = {FRI_LAYER_INPLACE_NORM, NULL};
static const fr_module_class batchnorm2d_class = {.name = "BatchNorm2d",
                                                  .forward = batchnorm2d_forward,
                                                  .traits = NORM_TRAITS,
                                                  .fri_call = &batchnorm2d_fused};
static const fr_module_class inplace_abn_class = {.name = "InPlaceABN",
                                                  .forward = inplace_abn_forward,
                                                  .traits = NORM_TRAITS,
                                                  .fri_call = &inplace_abn_fused};

/* Creates the first n tensors of a norm in PyTorch's order. */
static fr_status create_norm(const fr_module_class *class_, int64_t channels, const void *state, size_t bytes, int n,
                             fr_device device, fr_module **m) {
    static const struct {
        const char *name;
        double value;
    } part[] = {{"weight", 1}, {"bias", 0}, {"running_mean", 0}, {"running_var", 1}, {"num_batches_tracked", 0}};
    FRI_OWNED(fr_module_release) fr_module *b = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    if (channels < 1) return fr_fail(FR_EINVAL, "%s: %lld channels; at least 1", class_->name, (long long)channels);
    FRI_TRY(fr_module_create(class_, bytes, &b));
    memcpy(b->state, state, bytes);
    for (int i = 0; i < n; i++) {
        const bool counts = i == FR_NORM_BATCHES;
        FRI_TRY(fri_parameter_new(counts ? 0 : 1, &channels, counts ? FR_I64 : FR_F32, device, &t));
        FRI_TRY(fr_tensor_fill(t, part[i].value));
        FRI_TRY((i <= FR_NORM_BIAS ? fr_module_add_parameter : fr_module_add_buffer)(b, part[i].name, &t));
    }
    fr_module_release(m);
    FRI_MOVE(m, b);
    return FR_OK;
}

fr_status fri_nn_batchnorm2d(int64_t channels, const fr_batchnorm2d_opts *opts, fr_device device, fr_module **m) {
    const fr_batchnorm2d_opts *o = opts != NULL ? opts : FR_BATCHNORM2D_OPTS();
    const fr_norm_state state = {o->eps, o->momentum, 0};
    return create_norm(&batchnorm2d_class, channels, &state, sizeof state, 5, device, m);
}

fr_status fri_nn_inplace_abn(int64_t channels, double slope, fr_device device, fr_module **m) {
    if (!(slope > 0) && slope != FR_ABN_ELU)
        return fr_fail(FR_EINVAL, "InPlaceABN: slope is %g; it must be > 0", slope);
    const fr_batchnorm2d_opts *o = FR_BATCHNORM2D_OPTS();
    const fr_norm_state state = {o->eps, o->momentum, slope};
    return create_norm(&inplace_abn_class, channels, &state, sizeof state, 5, device, m);
}

/* ---- GroupNorm, LayerNorm ---------------------------------------------------------------------------------- */

static fr_status group_norm_forward(fr_module *m, fr_tensor **x) {
    const fr_group_norm_state *o = m->state;
    return o->groups > 0 ? fr_group_norm(*x, o->groups, layer_weight(m), layer_bias(m), o->eps, x)
                         : fr_layer_norm(*x, layer_weight(m), layer_bias(m), o->eps, x);
}

static const fr_module_class group_norm_class = {.name = "GroupNorm",
                                                 .forward = group_norm_forward,
                                                 .traits = NORM_TRAITS};
static const fr_module_class layer_norm_class = {.name = "LayerNorm",
                                                 .forward = group_norm_forward,
                                                 .traits = NORM_TRAITS};

fr_status fri_nn_group_norm(int64_t channels, int64_t groups, double eps, fr_device device, fr_module **m) {
    if (groups < 1 || channels % groups != 0)
        return fr_fail(FR_EINVAL, "GroupNorm: %lld groups for %lld channels; groups must divide channels",
                       (long long)groups, (long long)channels);
    const fr_group_norm_state state = {groups, eps};
    return create_norm(&group_norm_class, channels, &state, sizeof state, 2, device, m);
}

fr_status fri_nn_layer_norm(int64_t channels, double eps, fr_device device, fr_module **m) {
    const fr_group_norm_state state = {0, eps};
    return create_norm(&layer_norm_class, channels, &state, sizeof state, 2, device, m);
}

/* ---- LayerScale, PReLU ------------------------------------------------------------------------------------- */

/* A factor, or a summand, per channel. */
static fr_status per_channel_forward(fr_module *m, fr_tensor **x);
static fr_status prelu_forward(fr_module *m, fr_tensor **x);
enum { SCALE_TRAITS = FR_LAYER_POINTWISE | FR_LAYER_KEEPS_LAYOUT | FR_LAYER_PER_IMAGE };
static const fr_module_class layer_scale_class = {"LayerScale", .forward = per_channel_forward, .traits = SCALE_TRAITS};
static const fr_module_class layer_shift_class = {"LayerShift", .forward = per_channel_forward, .traits = SCALE_TRAITS};
static const fr_module_class prelu_class = {"PReLU", .forward = prelu_forward, .traits = SCALE_TRAITS};

static fr_status per_channel_forward(fr_module *m, fr_tensor **x) {
    fr_tensor *v = NULL;
    fr_status s = fr_reshape(m->tensors[0].tensor, 1, (int64_t[]){-1}, &v);
    if (s == FR_OK) s = m->class_ == &layer_scale_class ? fr_mul(*x, v, x) : fr_add(*x, v, x);
    fr_tensor_release(&v);
    return s;
}

/* max(x, 0) + slope min(x, 0), with the slope as the gradient at 0, as in PyTorch; the bound is above 0 for it. */
static fr_status prelu_forward(fr_module *m, fr_tensor **x) {
    FRI_OWNED(fr_tensor_release) fr_tensor *positive = NULL, *rest = NULL;
    FRI_TRY(fr_relu(*x, &positive));
    FRI_TRY(fr_clamp(*x, -INFINITY, FLT_MIN, &rest));
    FRI_TRY(fr_mul(rest, m->tensors[0].tensor, &rest));
    return fr_add(rest, positive, x);
}

static fr_status per_channel(const fr_module_class *class_, int64_t channels, int64_t numbers, double init,
                             fr_device device, fr_module **m) {
    FRI_OWNED(fr_module_release) fr_module *l = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    const bool own = class_ != &prelu_class;
    if (channels < 1 || (numbers != 1 && numbers != channels) || !isfinite(init))
        return fr_fail(FR_EINVAL, "%s: %lld channels, %lld numbers, init %g; 1 or one per channel, and a finite number",
                       class_->name, (long long)channels, (long long)numbers, init);
    FRI_TRY(fr_module_create(class_, 0, &l));
    FRI_TRY(fri_parameter_new(own ? 3 : 1, (int64_t[]){numbers, 1, 1}, FR_F32, device, &t));
    FRI_TRY(fr_tensor_fill(t, init));
    FRI_TRY(own ? fri_module_add_own(l, &t) : fr_module_add_parameter(l, "weight", &t));
    fr_module_release(m);
    FRI_MOVE(m, l);
    return FR_OK;
}

fr_status fri_nn_layer_scale(int64_t channels, double init, fr_device device, fr_module **m) {
    return per_channel(&layer_scale_class, channels, channels, init, device, m);
}

fr_status fri_nn_layer_shift(int64_t channels, double init, fr_device device, fr_module **m) {
    return per_channel(&layer_shift_class, channels, channels, init, device, m);
}

fr_status fri_nn_prelu(int64_t channels, int64_t slopes, double init, fr_device device, fr_module **m) {
    return per_channel(&prelu_class, channels, slopes, init, device, m);
}

/* ---- definitions (net.h): each creates the module for its input and adds the layer ------ */

/* Adds *m, created by the caller with status s, as a layer of one input and one result. */
static fr_value add_layer(fr_net *n, const char *name, fr_status s, fr_module **m, fr_value x) {
    fr_value y = {-1};
    fr_net_try(n, s);
    fr_net_module(n, name, m, &x, 1, &y, 1);
    return y;
}

/* A failed definition creates no modules, so that no random numbers are drawn. */
static bool is_open(const fr_net *n) {
    return fr_net_status(n) == FR_OK;
}

/* Channels or features of x. */
static int64_t width_of(const fr_net *n, fr_value x) {
    return fr_net_dim(n, x, -1);
}

static fr_status begin_weights(fr_module *m, fr_net_init_rule rule) {
    fr_tensor *bias = fr_module_tensor(m, "bias");
    if (rule == FR_NET_INIT_DEFAULT) return FR_OK;
    fr_status s = fri_init_kaiming_normal(fr_module_tensor(m, "weight"), rule == FR_NET_INIT_FAN_OUT);
    return s == FR_OK && bias != NULL ? fr_tensor_fill(bias, 0) : s;
}

fr_value fr_net_conv2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, const fr_conv2d_opts *opts,
                       bool bias) {
    fr_module *m = NULL;
    fr_status s = is_open(n) ? fri_nn_conv2d(width_of(n, x), out, kernel, opts, bias, fri_net_device(n), &m) : FR_OK;
    if (m != NULL) s = begin_weights(m, fri_net_rule(n));
    return add_layer(n, name, s, &m, x);
}

fr_value fr_net_embedding(fr_net *n, const char *name, fr_value index, int64_t rows, int64_t dim) {
    fr_module *m = NULL;
    fr_status s = is_open(n) ? fri_nn_embedding(rows, dim, fri_net_device(n), &m) : FR_OK;
    return add_layer(n, name, s, &m, index);
}

#define CHANNEL_LAYER(word, parameters, ...)                                                            \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, parameters) {                       \
        fr_module *m = NULL;                                                                            \
        const int64_t channels = width_of(n, x);                                                        \
        fr_status s = is_open(n) ? fri_nn_##word(channels, __VA_ARGS__, fri_net_device(n), &m) : FR_OK; \
        return add_layer(n, name, s, &m, x);                                                            \
    }
FRI_CHANNEL_LAYERS(CHANNEL_LAYER)

/* ---- converting -------------------------------------------------------------------------------------------- */

fr_status fr_module_to_dtype(fr_module *m, fr_dtype dtype) {
    FRI_NOT_NULL(m);
    if (dtype != FR_F32 && dtype != FR_F16 && dtype != FR_BF16)
        return fr_fail(FR_EDTYPE, "to_dtype: the type is %s; f32, f16 or bf16 is needed", fr_dtype_name(dtype));
    for (int i = 0; i < m->n_children; i++) {
        fr_status s = fr_module_to_dtype(m->children[i], dtype);
        if (s < 0) return s;
    }
    if ((m->class_->traits & FR_LAYER_KEEPS_F32) != 0) return FR_OK;
    for (int i = 0; i < m->n_tensors; i++) {
        fri_named_tensor *n = &m->tensors[i];
        fr_tensor *t = NULL;
        if (!fr_dtype_is_float(n->tensor->dtype) || n->tensor->dtype == dtype) continue;
        fr_status s = fri_tensor_clone_as(n->tensor, dtype, FR_MEM_PARAMETER, &t);
        if (s == FR_OK && n->is_parameter) s = fr_tensor_set_requires_grad(t, true);
        if (s == FR_OK && !n->tensor->requires_grad) s = fr_tensor_set_requires_grad(t, false);
        if (s == FR_OK) fri_tensor_put(&t, &n->tensor);
        fr_tensor_release(&t);
        if (s < 0) return s;
    }
    return FR_OK;
}
