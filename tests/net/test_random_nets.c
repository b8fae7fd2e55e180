/* test_random_nets.c - random lists of all layers: the bits under every switch and checkpoint, the planned bytes, and
 * PyTorch's gradients (tests/golden/random_nets.txt, by make_random_nets.py).
 *
 * FRUGAL_RANDOM_NETS: how many networks (300 if unset). FRUGAL_RANDOM_NETS_OUT: a file for their descriptions, which
 * the script reads. */
#include "plan/section.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/plan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "autograd/run.h"

enum { VALUES = 24, LAYERS = 10, CLASSES = 4, TENSORS = 64, GOLDEN = 200 };

typedef struct drawing {
    fr_net *net;
    unsigned state;
    fr_value value[VALUES];
    bool read[VALUES];
    int count;
    bool random;  /* dropout and similar layers are drawn, too */
    char conv[8]; /* name of a convolution that may run again, "" if none */
    int64_t conv_in, conv_stride;
    FILE *out;
} drawing;

static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int64_t below(drawing *d, int64_t n) {
    return (int64_t)(next(&d->state) % (unsigned)n);
}

static float number(unsigned *state) {
    return (float)next(state) / (1 << 23) - 1;
}

static int64_t dim(const drawing *d, int i, int k) {
    return fr_net_dim(d->net, d->value[i], k);
}

/* "relu 3 | 1 2": a layer of value 3, and its numbers. */
static void say(drawing *d, const char *layer, int a, int b, int n, const double *numbers) {
    if (d->out == NULL) return;
    fprintf(d->out, "%s %d %d |", layer, a, b);
    for (int i = 0; i < n; i++) fprintf(d->out, " %.9g", numbers[i]);
    fprintf(d->out, "\n");
}
#define SAY(layer, a, b, ...) \
    say(d, layer, a, b, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), (const double[]){__VA_ARGS__})

static void keep(drawing *d, fr_value v) {
    d->value[d->count] = v;
    d->read[d->count++] = false;
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

static bool draw_pointwise(drawing *d, int x) {
    typedef fr_value layer(fr_net * n, const char *name, fr_value x);
    static layer *const layers[] = {fr_net_relu,      fr_net_relu6,       fr_net_sigmoid,     fr_net_tanh,
                                    fr_net_silu,      fr_net_hardsigmoid, fr_net_hardswish,   fr_net_gelu,
                                    fr_net_gelu_tanh, fr_net_softmax,     fr_net_log_softmax, fr_net_identity};
    static const char *const names[] = {"relu",      "relu6", "sigmoid",   "tanh",    "silu",        "hardsigmoid",
                                        "hardswish", "gelu",  "gelu_tanh", "softmax", "log_softmax", "identity"};
    const int i = (int)below(d, 14);
    if (i < 12) {
        SAY(names[i], x, 0, 0);
        keep(d, layers[i](d->net, NULL, d->value[x]));
    } else if (i == 12) {
        SAY("leaky_relu", x, 0, 0.125);
        keep(d, fr_net_leaky_relu(d->net, NULL, d->value[x], 0.125));
    } else {
        SAY("clamp", x, 0, -0.75, 1.5);
        keep(d, fr_net_clamp(d->net, NULL, d->value[x], -0.75, 1.5));
    }
    return true;
}

static bool draw_conv(drawing *d, int x) {
    const int64_t c = dim(d, x, 3), side = dim(d, x, 1) < dim(d, x, 2) ? dim(d, x, 1) : dim(d, x, 2);
    const int64_t kind = below(d, 4), kernel = 1 + below(d, side < 3 ? side : 3), stride = 1 + below(d, 2);
    const int64_t groups = kind == 1 ? c : kind == 2 && c % 2 == 0 ? 2 : 1, out = kind == 1 ? c : 4 + 2 * below(d, 5);
    const int64_t dilation = kernel > 1 && side >= 5 ? 1 + below(d, 2) : 1, bias = below(d, 2);
    const int64_t padding = (kernel - 1) * dilation / 2;
    SAY("conv2d", x, 0, out, kernel, stride, padding, dilation, groups, bias);
    snprintf(d->conv, sizeof d->conv, "c%d", d->count);
    d->conv_in = c;
    d->conv_stride = kernel;
    keep(d, fr_net_conv2d(d->net, d->conv, d->value[x], out, kernel,
                          FR_CONV2D_OPTS(.stride = stride, .padding = padding, .dilation = dilation, .groups = groups),
                          bias));
    return true;
}

static bool draw_transposed(drawing *d, int x) {
    const int64_t stride = 1 + below(d, 2), out = 4 + 2 * below(d, 3), extra = below(d, stride);
    if (dim(d, x, 1) > 6 || dim(d, x, 2) > 6) return false;
    SAY("conv_transpose2d", x, 0, out, 2, stride, extra);
    keep(d, fr_net_conv_transpose2d(d->net, NULL, d->value[x], out, 2,
                                    FR_CONV_TRANSPOSE2D_OPTS(.stride = stride, .output_padding = extra), true));
    return true;
}

/* The last convolution again, on another value of as many channels. */
static bool draw_again(drawing *d, int x) {
    fr_value y;
    if (d->conv[0] == '\0' || dim(d, x, 3) != d->conv_in || dim(d, x, 1) < 5 || dim(d, x, 2) < 5) return false;
    SAY("again", x, 0, 0);
    fr_net_again(d->net, d->conv, &d->value[x], 1, &y, 1);
    keep(d, y);
    return true;
}

static bool draw_norm(drawing *d, int x) {
    const int64_t c = dim(d, x, 3), pixels = dim(d, x, 1) * dim(d, x, 2), kind = below(d, 5);
    if (pixels < 6 || c < 4) return false;
    if (kind == 0 || kind == 1) {
        SAY("batchnorm2d", x, 0, 0);
        keep(d, fr_net_batchnorm2d(d->net, NULL, d->value[x], NULL));
    } else if (kind == 2) {
        SAY("inplace_abn", x, 0, 0.25);
        keep(d, fr_net_inplace_abn(d->net, NULL, d->value[x], 0.25));
    } else if (kind == 3) {
        SAY("group_norm", x, 0, c % 2 == 0 ? 2 : 1);
        keep(d, fr_net_group_norm(d->net, NULL, d->value[x], c % 2 == 0 ? 2 : 1, 1e-5));
    } else {
        SAY("layer_norm", x, 0, 0);
        keep(d, fr_net_layer_norm(d->net, NULL, d->value[x], 1e-5));
    }
    return true;
}

static bool draw_pool(drawing *d, int x) {
    const int64_t kind = below(d, 3), padding = below(d, 2), ceil = below(d, 2), p = 1 + below(d, 3);
    if (dim(d, x, 1) < 3 || dim(d, x, 2) < 3) return false;
    const fr_pool2d_opts o = *FR_POOL2D_OPTS(.stride = 2, .padding = padding, .ceil_mode = ceil);
    SAY(kind == 0   ? "maxpool2d"
        : kind == 1 ? "avgpool2d"
                    : "adaptive_avgpool2d",
        x, 0, kind == 2 ? p : 3, padding, ceil);
    keep(d, kind == 0   ? fr_net_maxpool2d(d->net, NULL, d->value[x], 3, &o)
            : kind == 1 ? fr_net_avgpool2d(d->net, NULL, d->value[x], 3, &o)
                        : fr_net_adaptive_avgpool2d(d->net, NULL, d->value[x], p, p));
    return true;
}

static bool draw_resize(drawing *d, int x) {
    const int64_t kind = below(d, 5), h = dim(d, x, 1), w = dim(d, x, 2), c = dim(d, x, 3);
    if (kind < 2 && h <= 5 && w <= 5) {
        SAY("upsample", x, 0, kind, 2);
        keep(d, fr_net_upsample(d->net, NULL, d->value[x], 2, kind ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST));
    } else if (kind == 2) {
        SAY("zero_pad2d", x, 0, 1, 0, 0, 1);
        keep(d, fr_net_zero_pad2d(d->net, NULL, d->value[x], (const int64_t[]){1, 0, 0, 1}));
    } else if (kind == 3 && c % 4 == 0 && h <= 5 && w <= 5) {
        SAY("pixel_shuffle", x, 0, 2);
        keep(d, fr_net_pixel_shuffle(d->net, NULL, d->value[x], 2));
    } else if (kind == 4 && h % 2 == 0 && w % 2 == 0 && c <= 6) {
        SAY("pixel_unshuffle", x, 0, 2);
        keep(d, fr_net_pixel_unshuffle(d->net, NULL, d->value[x], 2));
    } else {
        return false;
    }
    return true;
}

/* Two values of equal size, an image and its squeezed copy, or two side by side. */
static bool draw_two(drawing *d, int x) {
    typedef fr_value layer(fr_net * n, const char *name, fr_value a, fr_value b);
    static layer *const layers[] = {fr_net_add, fr_net_sub, fr_net_mul};
    static const char *const names[] = {"add", "sub", "mul"};
    const int kind = (int)below(d, 3), y = (int)below(d, d->count), how = (int)below(d, 3);
    const bool image = dim(d, x, 1) == dim(d, y, 1) && dim(d, x, 2) == dim(d, y, 2), all = dim(d, x, 3) == dim(d, y, 3);
    const bool run = all && dim(d, y, 1) == 1 && dim(d, y, 2) == 1;
    if (how == 0 && image && dim(d, x, 3) + dim(d, y, 3) <= 24) {
        SAY("concat", x, y, 0);
        keep(d, fr_net_concat(d->net, NULL, (const fr_value[]){d->value[x], d->value[y]}, 2));
    } else if (how == 1 && !image) {
        SAY("upsample_to", x, y, 0);
        keep(d, fr_net_upsample_to(d->net, NULL, d->value[x], d->value[y], FR_UPSAMPLE_NEAREST));
    } else if ((image && all) || run) {
        SAY(names[kind], x, y, 0);
        keep(d, layers[kind](d->net, NULL, d->value[x], d->value[y]));
    } else {
        return false;
    }
    d->read[y] = true;
    return true;
}

/* Up to four values of equal size side by side, a batch norm, an activation or none, and sometimes another reader of
 * the joined value or of a part. */
static bool draw_dense(drawing *d, int x) {
    typedef fr_value layer(fr_net * n, const char *name, fr_value x);
    static layer *const acts[] = {fr_net_relu, fr_net_relu6, fr_net_hardswish, fr_net_silu};
    fr_value parts[4] = {d->value[x]};
    int n = 1;
    int64_t c = dim(d, x, 3);
    if (dim(d, x, 1) * dim(d, x, 2) < 6) return false;
    for (int i = 0; i < d->count && n < 4; i++) {
        if (i == x || dim(d, i, 1) != dim(d, x, 1) || dim(d, i, 2) != dim(d, x, 2) || c + dim(d, i, 3) > 40) continue;
        c += dim(d, i, 3);
        parts[n++] = d->value[i];
        d->read[i] = true;
    }
    const fr_value joined = fr_net_concat(d->net, NULL, parts, n);
    const int64_t act = below(d, 6), reader = below(d, 4);
    fr_value y = fr_net_batchnorm2d(d->net, NULL, joined, NULL);
    if (act < 4) y = acts[act](d->net, NULL, y);
    keep(d, fr_net_conv2d(d->net, NULL, y, 4, 1, NULL, FR_NO_BIAS));
    if (reader == 0) keep(d, fr_net_conv2d(d->net, NULL, joined, 4, 1, NULL, FR_NO_BIAS));
    if (reader == 1) keep(d, fr_net_relu(d->net, NULL, parts[n - 1]));
    return true;
}

static bool draw_other(drawing *d, int x) {
    const int64_t kind = below(d, d->random ? 8 : 3);
    fr_value y;
    switch (kind) {
    case 0:
        SAY("layer_scale", x, 0, 0);
        keep(d, fr_net_layer_scale(d->net, NULL, d->value[x], 0.5));
        return true;
    case 1:
        SAY("linear", x, 0, 6);
        keep(d, fr_net_linear(d->net, NULL, d->value[x], 6, true));
        return true;
    case 2: /* a quotient by numbers far from 0 */
        SAY("div_clamped", x, 0, 0);
        y = fr_net_clamp(d->net, NULL, fr_net_sigmoid(d->net, NULL, d->value[x]), 0.25, 2);
        keep(d, fr_net_div(d->net, NULL, d->value[x], y));
        return true;
    case 3: keep(d, fr_net_dropout(d->net, NULL, d->value[x], 0.25)); return true;
    case 4: keep(d, fr_net_dropout2d(d->net, NULL, d->value[x], 0.25)); return true;
    case 5: keep(d, fr_net_stochastic_depth(d->net, NULL, d->value[x], 0.25)); return true;
    default: return draw_dense(d, x);
    }
}

/* ---- networks --------------------------------------------------------------------------------------------------- */

typedef struct network {
    fr_module *m;
    int64_t shape[4];
    fr_dtype input;
} network;

static void draw_layers(drawing *d) {
    typedef bool layer(drawing * d, int x);
    static layer *const layers[] = {draw_conv, draw_conv, draw_transposed, draw_again,     draw_norm,
                                    draw_norm, draw_pool, draw_pointwise,  draw_pointwise, draw_resize,
                                    draw_two,  draw_two,  draw_other};
    const int wanted = 3 + (int)below(d, LAYERS - 3);
    for (int tries = 0, made = 0; made < wanted && tries < 60 && d->count < VALUES - 2; tries++) {
        const int x = below(d, 4) > 0 ? d->count - 1 : (int)below(d, d->count);
        if (!layers[below(d, sizeof layers / sizeof *layers)](d, x)) continue;
        d->read[x] = true;
        made++;
    }
}

/* All unread values, as averages side by side, make the classes. */
static fr_value draw_head(drawing *d) {
    fr_value parts[VALUES];
    int n = 0;
    for (int i = 0; i < d->count; i++)
        if (!d->read[i]) parts[n++] = fr_net_adaptive_avgpool2d(d->net, NULL, d->value[i], 1, 1);
    const fr_value all = n > 1 ? fr_net_concat(d->net, NULL, parts, n) : parts[0];
    return fr_net_linear(d->net, NULL, fr_net_flatten(d->net, NULL, all, 1), CLASSES, true);
}

static network draw_network(int seed, fr_device device, FILE *out) {
    drawing d = {.net = fr_net_begin(device),
                 .state = (unsigned)seed * 7919u + 17u,
                 .random = seed % 2 == 1,
                 .out = out};
    network net = {.input = seed % 8 == 6 ? FR_I64 : FR_F32};
    net.shape[0] = 2 + below(&d, 2);
    net.shape[1] = 4 + below(&d, 6);
    net.shape[2] = 4 + below(&d, 6);
    net.shape[3] = 3 + below(&d, 6);
    fr_value x = fr_net_input(d.net, net.input, net.input == FR_I64 ? 3 : 4, net.shape);
    if (out != NULL)
        fprintf(out, "net %d %d %d %d %d %d\n", seed, net.input == FR_I64, (int)net.shape[0], (int)net.shape[1],
                (int)net.shape[2], (int)net.shape[3]);
    if (net.input == FR_I64) x = fr_net_embedding(d.net, NULL, x, 5, net.shape[3]);
    keep(&d, x);
    draw_layers(&d);
    const fr_value y = draw_head(&d);
    const fr_status s = fr_net_end(&d.net, &y, 1, &net.m);
    cr_assert_eq(s, FR_OK, "network %d: %s", seed, fr_last_error());
    if (out != NULL) fprintf(out, "end\n");
    return net;
}

/* Weights by their fan-in, vectors around 1/2. */
static fr_status set_numbers(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const int64_t n = fr_tensor_numel(t), fan_in = fr_tensor_rank(t) > 1 ? n / fr_tensor_dim(t, 0) : 0;
    float *v = calloc((size_t)n + 1, sizeof *v);
    (void)path;
    if (is_parameter) {
        for (int64_t i = 0; i < n; i++) v[i] = number(ctx);
        for (int64_t i = 0; i < n; i++) v[i] = fan_in > 0 ? v[i] * sqrtf(3 / (float)fan_in) : 0.5f + 0.25f * v[i];
        host_to(t, v);
    }
    free(v);
    return FR_OK;
}

static fr_tensor *input_of(const network *net, unsigned *state) {
    const int64_t n = net->shape[0] * net->shape[1] * net->shape[2] * (net->input == FR_I64 ? 1 : net->shape[3]);
    fr_tensor *x = NULL;
    float *v = calloc((size_t)n, sizeof *v);
    int64_t *index = calloc((size_t)n, sizeof *index);
    for (int64_t i = 0; i < n; i++) v[i] = number(state);
    for (int64_t i = 0; i < n; i++) index[i] = (int64_t)((v[i] + 1) * 2.5f);
    must(fr_tensor_from_host(net->input == FR_I64 ? (void *)index : v, net->input == FR_I64 ? 3 : 4, net->shape,
                             net->input, test_device(), &x));
    free(v);
    free(index);
    return x;
}

/* ---- a step ----------------------------------------------------------------------------------------------------- */

typedef struct step {
    double loss;
    float *gradient[TENSORS]; /* of parameters, and of buffers after the step */
    size_t bytes[TENSORS];
    bool parameter[TENSORS];
    int n;
} step;

static fr_status take(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    step *s = ctx;
    fr_tensor *of = is_parameter ? fr_tensor_get_grad(t) : t;
    (void)path;
    cr_assert_lt(s->n, TENSORS);
    s->parameter[s->n] = is_parameter;
    s->bytes[s->n] = of != NULL ? fr_tensor_nbytes(of) : 0;
    s->gradient[s->n] = calloc(s->bytes[s->n] / 4 + 2, 4);
    if (of != NULL) must(fr_tensor_to_host(of, s->gradient[s->n]));
    s->n++;
    return FR_OK;
}

/* Forward and backward; how: -1 plain, else the kind of segments. */
static fr_status run_step(const network *net, fr_device device, int how, fr_tensor *x, fr_tensor **loss) {
    fr_tensor *y = NULL, *target = NULL;
    fr_status s = how < 0 ? fr_module_forward(net->m, x, &y)
                          : fr_checkpoint_segments(net->m, (fr_segmentation)how, 1, NULL, x, &y);
    if (s == FR_OK) s = fr_tensor_zeros(1, net->shape, FR_I64, device, &target);
    if (s == FR_OK) s = fr_cross_entropy(y, target, NULL, loss);
    fr_tensor_release(&y);
    if (s == FR_OK) s = fr_backward(*loss, NULL);
    fr_tensor_release(&target);
    return s;
}

/* A new network of the seed takes a step. */
static step first_step(int seed, fr_switches switches, int how, fr_memory_stats *memory) {
    step result = {0};
    unsigned state = (unsigned)seed + 1;
    fr_tensor *loss = NULL;
    fr_switches_set(switches);
    fr_seed((uint64_t)seed);
    network net = draw_network(seed, test_device(), NULL);
    must(fr_module_each_tensor(net.m, set_numbers, &state));
    fr_tensor *x = input_of(&net, &state);
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
    const fr_status s = run_step(&net, test_device(), how, x, &loss);
    cr_assert_eq(s, FR_OK, "network %d: %s", seed, fr_last_error());
    if (memory != NULL) must(fr_memory_stats_get(test_device(), memory));
    must(fr_tensor_item(loss, &result.loss));
    must(fr_module_each_tensor(net.m, take, &result));
    fr_tensor_release(&loss);
    fr_tensor_release(&x);
    fr_module_release(&net.m);
    fr_switches_set(fr_switches_default());
    return result;
}

static void drop(step *s) {
    for (int i = 0; i < s->n; i++) free(s->gradient[i]);
}

static void expect_equal(int seed, const char *what, const step *a, step b) {
    cr_expect(memcmp(&a->loss, &b.loss, sizeof a->loss) == 0, "network %d, %s: loss %.9g, not %.9g", seed, what, b.loss,
              a->loss);
    for (int i = 0; i < a->n; i++)
        cr_expect(a->bytes[i] == b.bytes[i] && memcmp(a->gradient[i], b.gradient[i], a->bytes[i]) == 0,
                  "network %d, %s: tensor %d differs", seed, what, i);
    drop(&b);
}

/* A plan runs the step on meta. */
static void expect_planned(int seed, fr_switches switches, const fr_memory_stats *run) {
    fr_plan *plan = NULL;
    fr_plan_section_stats planned;
    fr_tensor *x = NULL, *loss = NULL;
    fr_switches_set(switches);
    fr_seed((uint64_t)seed);
    must(fr_plan_begin(test_device(), &plan));
    must(fr_plan_section(plan, "setup"));
    network net = draw_network(seed, FR_META, NULL);
    must(fr_tensor_empty(net.input == FR_I64 ? 3 : 4, net.shape, net.input, FR_META, &x));
    must(fr_plan_section(plan, "step"));
    must(run_step(&net, FR_META, -1, x, &loss));
    fr_tensor_release(&loss);
    fr_tensor_release(&x);
    fr_module_release(&net.m);
    must(fr_plan_end(plan));
    must(fr_plan_section_get(plan, 1, &planned));
    cr_expect_eq(planned.memory.peak_requested, run->peak_requested, "network %d: planned %zu bytes, measured %zu",
                 seed, planned.memory.peak_requested, run->peak_requested);
    cr_expect_eq(planned.memory.peak_allocated, run->peak_allocated,
                 "network %d: planned %zu blocks' bytes, measured %zu", seed, planned.memory.peak_allocated,
                 run->peak_allocated);
    fr_plan_release(&plan);
    fr_switches_set(fr_switches_default());
}

static int networks(void) {
    const char *wanted = getenv("FRUGAL_RANDOM_NETS");
    return wanted != NULL ? atoi(wanted) : 300;
}

Test(random_nets, bits_and_planned_bytes_under_switches, .timeout = 3600) {
    fr_switches kept = fr_switches_default(), offload = kept;
    kept.rebuild = false;
    offload.offload = true;
    for (int seed = 0; seed < networks(); seed++) {
        fr_memory_stats memory;
        const step plain = first_step(seed, fr_switches_all_off(), -1, &memory);
        expect_planned(seed, fr_switches_all_off(), &memory);
        expect_equal(seed, "defaults", &plain, first_step(seed, fr_switches_default(), -1, &memory));
        expect_planned(seed, fr_switches_default(), &memory);
        expect_equal(seed, "no rebuild", &plain, first_step(seed, kept, -1, &memory));
        expect_planned(seed, kept, &memory);
        expect_equal(seed, "checkpoint of all", &plain,
                     first_step(seed, fr_switches_default(), FR_SEGMENTS_EACH, NULL));
        expect_equal(seed, "checkpoint, no rebuild", &plain, first_step(seed, kept, FR_SEGMENTS_SQRT, NULL));
        if (seed % 4 == 0) expect_equal(seed, "offload", &plain, first_step(seed, offload, -1, NULL));
        for (int one = 0; fri_switch_at(one) != NULL && seed % 4 == 1; one++) { /* each alone */
            fr_switches s = fr_switches_all_off();
            *fri_switch_field(fri_switch_at(one), &s) = fri_switch_at(one)->saves;
            expect_equal(seed, fri_switch_at(one)->name, &plain, first_step(seed, s, -1, NULL));
        }
        drop((step *)(uintptr_t)&plain);
    }
    fr_offload_close();
    expect_nothing_left();
}

/* PyTorch's numbers of each even network: the loss, the gradients' norm and their sum with pseudo-random factors. */
Test(random_nets, gradients_as_pytorch) {
    char path[1024];
    const char *root = getenv("FRUGAL_SOURCE_ROOT"), *out = getenv("FRUGAL_RANDOM_NETS_OUT");
    int seed, checked = 0;
    double loss, norm, sum;
    if (out != NULL) {
        FILE *f = fopen(out, "w");
        cr_assert_not_null(f);
        for (int i = 0; i < GOLDEN; i++) {
            network net = draw_network(2 * i, FR_META, f);
            fr_module_release(&net.m);
        }
        fclose(f);
        return;
    }
    snprintf(path, sizeof path, "%s/tests/golden/random_nets.txt", root != NULL ? root : ".");
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    while (fscanf(f, "%d %lf %lf %lf", &seed, &loss, &norm, &sum) == 4) {
        step s = first_step(seed, fr_switches_default(), -1, NULL);
        unsigned state = 5;
        double squares = 0, signs = 0;
        for (int i = 0; i < s.n; i++)
            for (size_t k = 0; k < s.bytes[i] / 4 && s.parameter[i]; k++) {
                const double g = (double)s.gradient[i][k];
                squares += g * g;
                signs += (double)number(&state) * g;
            }
        cr_expect(fabs(s.loss - loss) <= 1e-4 * fmax(1, fabs(loss)), "network %d: loss %.9g, PyTorch's %.9g", seed,
                  s.loss, loss);
        cr_expect(fabs(sqrt(squares) - norm) <= 1e-3 * fmax(norm, 0.01), "network %d: norm %.9g, PyTorch's %.9g", seed,
                  sqrt(squares), norm);
        cr_expect(fabs(signs - sum) <= 1e-3 * fmax(norm, 0.01), "network %d: sum %.9g, PyTorch's %.9g", seed, signs,
                  sum);
        drop(&s);
        checked++;
    }
    fclose(f);
    cr_expect_eq(checked, GOLDEN);
    expect_nothing_left();
}
