/* test_switch_bytes.c - what each switch saves, in bytes: the formulas of docs/memory.md, "Each switch in bytes",
 * computed here from shapes and compared with what the allocator counted.
 *
 * Requested bytes on FR_META without a target: shapes, sizes and order of allocations of a run, no library scratch. A
 * map of n elements has R(4 n) bytes, R rounding up to 512. Parameters and inputs are labelled as such, so "activation"
 * is what backward keeps. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory/event.h"
#include "support/golden.h"
#include "tensor/tensor.h"

enum { N = 2, H = 24, W = 20, C = 12 }; /* the images of most tests: [2, 24, 20, 12] */

static size_t rounded(int64_t bytes) {
    return (size_t)(bytes + 511) / 512 * 512;
}

static size_t map_bytes(int64_t channels) {
    return rounded((int64_t)4 * N * H * W * channels);
}

/* ---- tensors and counts -------------------------------------------------------------------------------------- */

static fr_tensor *labelled(int rank, const int64_t *shape, fr_dtype dtype, fr_category category) {
    fr_tensor *t = NULL;
    must(fr_tensor_empty(rank, shape, dtype, FR_META, &t));
    fr_tensor_category_set(t, category);
    if (category == FR_MEM_PARAMETER) must(fr_tensor_set_requires_grad(t, true));
    return t;
}

static fr_tensor *weight(int64_t out, int64_t kernel, int64_t in) {
    return labelled(4, (int64_t[]){out, kernel, kernel, in}, FR_F32, FR_MEM_PARAMETER);
}

static fr_tensor *image(int64_t channels) {
    return labelled(4, (int64_t[]){N, H, W, channels}, FR_F32, FR_MEM_INPUT);
}

static void conv(fr_tensor **x, fr_tensor *w) {
    must(fr_conv2d(*x, w, NULL, FR_CONV2D_OPTS(.padding = fr_tensor_dim(w, 1) / 2), x));
}

static size_t live(fr_category c) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.requested_by[c];
}

static size_t live_total(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.requested;
}

/* The peak since `begin` beyond what was live then. */
static size_t begin(void) {
    must(fr_memory_reset_peak(FR_META));
    return live_total();
}

static size_t rise(size_t before) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.peak_requested - before;
}

static void nothing_left(void) {
    cr_expect_eq(live_total(), 0u, "%zu bytes live at the end", live_total());
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

static void expect_bytes(size_t got, size_t formula, const char *what, ...) {
    char text[128];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    cr_expect_eq(got, formula, "%s: %zu bytes, the formula says %zu", text, got, formula);
}

/* ---- in-place ------------------------------------------------------------------------------------------------ */

static fr_status by_relu(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    (void)z;
    return fr_relu(x, y);
}
static fr_status by_leaky_relu(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    (void)z;
    return fr_leaky_relu(x, 0.1, y);
}
static fr_status by_scale(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    (void)z;
    return fr_scale(x, 3, y);
}
static fr_status by_dropout(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    (void)z;
    return fr_dropout(x, 0.5, true, y);
}
static fr_status by_add(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    return fr_add(x, z, y);
}
static fr_status by_mul(fr_tensor *x, fr_tensor *z, fr_tensor **y) {
    return fr_mul(x, z, y);
}

/* What a backward does with dy: hands it on, may write dx over it, or needs a map for dx. */
typedef enum dy_use { HANDS_ON, WRITES_OVER, NEEDS_MAP } dy_use;

static const struct {
    const char *name;
    fr_status (*run)(fr_tensor *x, fr_tensor *z, fr_tensor **y);
    bool mask; /* dropout keeps a byte mask when encode is off */
    dy_use use;
} elementwise[] = {{"relu", by_relu, false, WRITES_OVER},   {"leaky_relu", by_leaky_relu, false, WRITES_OVER},
                   {"scale", by_scale, false, WRITES_OVER}, {"dropout", by_dropout, true, WRITES_OVER},
                   {"add", by_add, false, HANDS_ON},        {"mul", by_mul, false, NEEDS_MAP}};

/* Forward: x = op(x) needs no second map. Backward: dx takes dy's place, if early release lets go of dy; then the
 * convolution's dw comes on top. */
static void one_elementwise(int i, bool on, bool early) {
    size_t map = map_bytes(C), mask = rounded((int64_t)N * H * W * C), dw = rounded((int64_t)4 * C * 3);
    bool one_map = elementwise[i].use == HANDS_ON || (elementwise[i].use == WRITES_OVER && on && early);
    fr_switches s = fr_switches_all_off();
    s.inplace = on;
    s.early_release = early;
    fr_switches_set(s);
    fr_tensor *x = image(3), *z = image(C), *w = weight(C, 1, 3), *loss = NULL;
    conv(&x, w);
    size_t before = begin();
    must(elementwise[i].run(x, z, &x));
    expect_bytes(rise(before), (on ? 0 : map) + (elementwise[i].mask ? mask : 0), "%s forward, in-place %d",
                 elementwise[i].name, on);
    must(fr_sum(x, &loss));
    fr_tensor_release(&x);
    before = begin();
    must(fr_backward(loss, NULL));
    expect_bytes(rise(before), one_map ? map + dw : 2 * map, "%s backward, in-place %d, early release %d",
                 elementwise[i].name, on, early);
    fr_tensor_release(&loss);
    fr_tensor_release(&z);
    fr_tensor_release(&w);
}

Test(switch_bytes, inplace_saves_one_map_forward_and_one_backward) {
    for (int i = 0; i < (int)(sizeof elementwise / sizeof *elementwise); i++)
        for (int on = 0; on < 2; on++)
            for (int early = 0; early < 2; early++) one_elementwise(i, on, early);
    nothing_left();
}

/* The defaults save what costs no time; all off is PyTorch's set, whose autocast caches its casts. */
Test(switch_bytes, defaults_and_all_off) {
    static const struct {
        const char *name;
        bool standard, all_off;
    } cells[] = {{"inplace", true, false},  {"encode", true, false},   {"early-release", true, false},
                 {"rebuild", false, false}, {"offload", false, false}, {"cache-casts", false, true}};
    fr_switches standard = fr_switches_default(), all_off = fr_switches_all_off();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const fr_switch *w = NULL;
        for (int k = 0; (w = fr_switch_at(k)) != NULL && strcmp(w->name, cells[i].name) != 0; k++) continue;
        cr_assert_not_null(w, "%s is not listed", cells[i].name);
        cr_expect_eq(*fr_switch_field(w, &standard), cells[i].standard, "%s by default", cells[i].name);
        cr_expect_eq(*fr_switch_field(w, &all_off), cells[i].all_off, "%s of all off", cells[i].name);
    }
    cr_expect_null(fr_switch_at(-1));
}

/* ---- batch norm and its activation ------------------------------------------------------------------------------- */

/* conv - batch norm - activation - conv. Besides the batch statistics, mean and 1 / std:
 *   all off       the norm's input, and the activation's output (the next convolution's input)
 *   rebuild       the norm's input; the rest is made again from it
 *   inplace_abn   the output only, and |gamma| + eps */
Test(switch_bytes, batch_norm_and_activation) {
    enum { OFF, RECOMPUTE, ABN, FORMS };
    size_t map = map_bytes(C), statistics = 2 * rounded(4 * C);
    size_t formula[FORMS] = {2 * map + statistics, map + statistics, map + statistics + rounded(4 * C)};
    for (int form = OFF; form < FORMS; form++) {
        fr_switches s = fr_switches_all_off();
        s.rebuild = form == RECOMPUTE;
        s.inplace = form == ABN;
        fr_switches_set(s);
        fr_tensor *x = image(3), *w = weight(C, 3, 3), *w2 = weight(8, 3, C);
        fr_tensor *gamma = labelled(1, (int64_t[]){C}, FR_F32, FR_MEM_PARAMETER);
        fr_tensor *beta = labelled(1, (int64_t[]){C}, FR_F32, FR_MEM_PARAMETER);
        conv(&x, w);
        size_t before = begin();
        if (form == ABN) {
            must(fr_inplace_abn(x, gamma, beta, NULL, NULL, NULL, 0.01, &x));
            /* |gamma| + eps needs a vector for eps while it is made */
            expect_bytes(rise(before), statistics + 2 * rounded(4 * C), "inplace_abn in place");
        } else {
            must(fr_batchnorm2d(x, gamma, beta, NULL, NULL, NULL, &x));
            must(fr_leaky_relu(x, 0.01, &x));
        }
        conv(&x, w2);
        expect_bytes(live(FR_MEM_ACTIVATION), formula[form], "batch norm and activation, form %d", form);
        fr_tensor_release(&x);
        fr_tensor_release(&w);
        fr_tensor_release(&w2);
        fr_tensor_release(&gamma);
        fr_tensor_release(&beta);
    }
    nothing_left();
}

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* relu behind which nobody keeps the values: the map, or one bit per element. Before a convolution, which keeps them
 * anyway, the switch saves nothing. */
Test(switch_bytes, encode_relu) {
    for (int on = 0; on < 2; on++)
        for (int before_conv = 0; before_conv < 2; before_conv++) {
            fr_switches s = fr_switches_all_off();
            s.encode = on;
            fr_switches_set(s);
            fr_tensor *x = image(3), *w = weight(C, 3, 3), *w2 = weight(8, 3, C), *loss = NULL;
            conv(&x, w);
            must(fr_relu(x, &x));
            if (before_conv) conv(&x, w2);
            must(fr_sum(x, &loss));
            fr_tensor_release(&x);
            expect_bytes(live(FR_MEM_ACTIVATION), on && !before_conv ? rounded((N * H * W * C + 7) / 8) : map_bytes(C),
                         "relu, encode %d", on);
            fr_tensor_release(&loss);
            fr_tensor_release(&w);
            fr_tensor_release(&w2);
        }
    nothing_left();
}

/* Max pooling 2 x 2 of n elements into n / 4: with encode one byte per output, else an index of pool_index per output
 * and its input. */
Test(switch_bytes, encode_maxpool) {
    static const struct {
        bool encode;
        fr_dtype index;
        int bytes;
    } forms[] = {{false, FR_I64, 8}, {false, FR_I32, 4}, {false, FR_U8, 1}, {true, FR_I64, 1}};
    int64_t n = (int64_t)N * H * W * C;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        fr_switches s = fr_switches_all_off();
        s.encode = forms[i].encode;
        s.pool_index = forms[i].index;
        fr_switches_set(s);
        fr_tensor *x = image(3), *w = weight(C, 3, 3), *loss = NULL;
        conv(&x, w);
        must(fr_maxpool2d(x, 2, NULL, &x));
        must(fr_sum(x, &loss));
        fr_tensor_release(&x);
        expect_bytes(live(FR_MEM_ACTIVATION), rounded(n / 4 * forms[i].bytes) + (forms[i].encode ? 0 : map_bytes(C)),
                     "max pool, form %d", (int)i);
        fr_tensor_release(&loss);
        fr_tensor_release(&w);
    }
    nothing_left();
}

Test(switch_bytes, encode_dropout) {
    for (int on = 0; on < 2; on++) {
        fr_switches s = fr_switches_all_off();
        s.encode = on;
        fr_switches_set(s);
        fr_tensor *x = image(3), *w = weight(C, 3, 3), *loss = NULL;
        conv(&x, w);
        must(fr_dropout(x, 0.3, true, &x));
        must(fr_sum(x, &loss));
        fr_tensor_release(&x);
        expect_bytes(live(FR_MEM_ACTIVATION), on ? 0 : rounded((int64_t)N * H * W * C), "dropout, encode %d", on);
        fr_tensor_release(&loss);
        fr_tensor_release(&w);
    }
    nothing_left();
}

/* ---- rebuild ------------------------------------------------------------------------------------------------- */

/* A DenseNet layer: concat(a, b) - batch norm - relu - conv. All off keeps the concatenation and relu's output; rebuild
 * makes both again from a and b, which the convolutions before keep nothing of, so they stay. */
Test(switch_bytes, rebuild_dense_layer) {
    for (int on = 0; on < 2; on++) {
        fr_switches s = fr_switches_all_off();
        s.rebuild = on;
        fr_switches_set(s);
        fr_tensor *a = image(3), *b = image(3), *y = NULL, *wa = weight(C, 3, 3), *wb = weight(4, 3, 3);
        fr_tensor *w = weight(8, 3, C + 4), *gamma = labelled(1, (int64_t[]){C + 4}, FR_F32, FR_MEM_PARAMETER);
        fr_tensor *beta = labelled(1, (int64_t[]){C + 4}, FR_F32, FR_MEM_PARAMETER);
        conv(&a, wa);
        conv(&b, wb);
        must(fr_concat((fr_tensor *[]){a, b}, 2, &y));
        must(fr_batchnorm2d(y, gamma, beta, NULL, NULL, NULL, &y));
        must(fr_relu(y, &y));
        conv(&y, w);
        fr_tensor_release(&a);
        fr_tensor_release(&b);
        size_t statistics = 2 * rounded(4 * (C + 4));
        expect_bytes(live(FR_MEM_ACTIVATION), statistics + (on ? map_bytes(C) + map_bytes(4) : 2 * map_bytes(C + 4)),
                     "dense layer, rebuild %d", on);
        fr_tensor_release(&y);
        fr_tensor *all[] = {wa, wb, w, gamma, beta};
        for (size_t i = 0; i < 5; i++) fr_tensor_release(&all[i]);
    }
    nothing_left();
}

/* ---- early release ----------------------------------------------------------------------------------------------- */

/* conv - conv - sum. In the second one's backward dy, dw and dx are made beside its saved input x; with early release x
 * is gone when dx is made. */
Test(switch_bytes, early_release_convolution) {
    size_t x_bytes = map_bytes(C), dy = map_bytes(8), dw = rounded((int64_t)4 * 8 * 3 * 3 * C);
    for (int on = 0; on < 2; on++) {
        fr_switches s = fr_switches_all_off();
        s.early_release = on;
        fr_switches_set(s);
        fr_tensor *x = image(3), *w = weight(C, 3, 3), *w2 = weight(8, 3, C), *loss = NULL;
        conv(&x, w);
        conv(&x, w2);
        must(fr_sum(x, &loss));
        fr_tensor_release(&x);
        size_t before = begin();
        must(fr_backward(loss, NULL));
        expect_bytes(rise(before), dy + dw + (on ? 0 : x_bytes), "two convolutions, early release %d", on);
        fr_tensor_release(&loss);
        fr_tensor_release(&w);
        fr_tensor_release(&w2);
    }
    nothing_left();
}

/* ---- offload ------------------------------------------------------------------------------------------------- */

/* conv - conv - conv: of the two inputs kept, that of at least 64 KiB goes to the file. On the CPU the file is looked
 * at, too. */
Test(switch_bytes, offload_moves_large_maps) {
    const fr_device devices[] = {FR_META, test_device()};
    size_t large = map_bytes(24), small = map_bytes(2);
    cr_assert(large >= 65536 && small < 65536);
    for (int d = 0; d < 2; d++)
        for (int on = 0; on < 2; on++) {
            fr_switches s = fr_switches_all_off();
            fr_memory_stats t;
            s.offload = on;
            fr_switches_set(s);
            fr_tensor *x = NULL, *loss = NULL, *w[3] = {0};
            static const int64_t channels[] = {3, 24, 2, 5};
            must(fr_tensor_uniform(4, (int64_t[]){N, H, W, 3}, -1, 1, FR_F32, devices[d], &x));
            fr_tensor_category_set(x, FR_MEM_INPUT);
            for (int i = 0; i < 3; i++) {
                must(fr_tensor_uniform(4, (int64_t[]){channels[i + 1], 3, 3, channels[i]}, -1, 1, FR_F32, devices[d],
                                       &w[i]));
                fr_tensor_category_set(w[i], FR_MEM_PARAMETER);
                must(fr_tensor_set_requires_grad(w[i], true));
            }
            for (int i = 0; i < 3; i++) conv(&x, w[i]);
            must(fr_sum(x, &loss));
            fr_tensor_release(&x);
            must(fr_memory_stats_get(devices[d], &t));
            expect_bytes(t.requested_by[FR_MEM_ACTIVATION], small + (on ? 0 : large), "offload %d on device %d", on, d);
            if (on && devices[d] == test_device()) {
                must(fr_offload_stats_get(&t));
                expect_bytes(t.requested, large, "in the file");
                must(fr_backward(loss, NULL));
                must(fr_offload_stats_get(&t));
                expect_bytes(t.requested, 0, "in the file after backward");
            }
            fr_tensor_release(&loss);
            for (int i = 0; i < 3; i++) fr_tensor_release(&w[i]);
        }
    fr_offload_close();
    nothing_left();
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* A chain of units linear - relu - linear on [B, F]. A unit keeps two maps: its input and relu's output. */
enum { UNITS = 12, B = 16, F = 48 };

static fr_module *chain_of_units(int first[UNITS]) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){B, F});
    for (int i = 0; i < UNITS; i++) {
        first[i] = 3 * i;
        x = fr_net_relu(n, NULL, fr_net_linear(n, NULL, x, F, FR_BIAS));
        x = fr_net_linear(n, NULL, x, F, FR_BIAS);
    }
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static size_t kept_by(fr_module *m, const int *first, int segments) {
    fr_tensor *x = labelled(2, (int64_t[]){B, F}, FR_F32, FR_MEM_INPUT), *loss = NULL;
    fr_unit_range range[UNITS];
    fr_unit_plan plan = {.units = UNITS, .range = range, .first = first};
    if (segments > 0) must(fr_unit_segments(FR_SEGMENTS_COUNT, segments, UNITS, NULL, range, &plan.ranges));
    must(segments == 0 ? fr_module_forward(m, x, &x) : fr_checkpoint_plan(m, &plan, x, &x));
    must(fr_sum(x, &loss));
    fr_tensor_release(&x);
    size_t bytes = live(FR_MEM_ACTIVATION);
    fr_tensor_release(&loss);
    return bytes;
}

/* Of all but the last segment the input stays, and the first one's is the batch; the last segment keeps everything. */
Test(switch_bytes, checkpoint_segments) {
    size_t map = rounded(4 * B * F);
    fr_switches_set(fr_switches_all_off());
    int first[UNITS];
    fr_module *m = chain_of_units(first);
    expect_bytes(kept_by(m, first, 0), (2 * UNITS - 1) * map, "plain");
    for (int segments = 2; segments <= UNITS; segments++) {
        int last = UNITS - (segments - 1) * (UNITS / segments);
        expect_bytes(kept_by(m, first, segments), (size_t)(segments - 2 + 2 * last) * map, "%d segments", segments);
    }
    fr_module_release(&m);
    nothing_left();
}

/* ---- gradients and the optimizer's step -------------------------------------------------------------------------- */

/* The most bytes a category had, and the most bytes of f16 casts, since the watch began. */
typedef struct watch {
    size_t now[FR_CATEGORY_COUNT], most[FR_CATEGORY_COUNT];
    size_t casts, most_casts;
    uint64_t cast[64]; /* serial numbers of live blocks */
} watch;

static void count_cast(watch *w, const fr_event *e) {
    for (int i = 0; i < 64; i++) {
        if (e->kind == FR_EVENT_ALLOC && w->cast[i] == 0) {
            if (strcmp(e->tag.op, "cast") != 0 || e->tag.dtype != FR_F16) return;
            w->cast[i] = e->block;
            w->casts += e->requested;
            if (w->casts > w->most_casts) w->most_casts = w->casts;
            return;
        }
        if (e->kind == FR_EVENT_FREE && w->cast[i] == e->block) {
            w->cast[i] = 0;
            w->casts -= e->requested;
            return;
        }
    }
}

static void observe(void *ctx, const fr_event *e) {
    watch *w = ctx;
    if (e->device != FR_META) return;
    if (e->kind == FR_EVENT_ALLOC) w->now[e->tag.category] += e->requested;
    if (e->kind == FR_EVENT_FREE) w->now[e->tag.category] -= e->requested;
    if (e->kind == FR_EVENT_RELABEL) {
        w->now[e->from] -= e->requested;
        w->now[e->tag.category] += e->requested;
    }
    for (int i = 0; i < FR_CATEGORY_COUNT; i++)
        if (w->now[i] > w->most[i]) w->most[i] = w->now[i];
    if (e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE) count_cast(w, e);
}

static const int64_t widths[] = {30, 70, 50, 90, 10};
enum { LAYERS = sizeof widths / sizeof *widths - 1 };

static fr_module *chain_of_linear(bool bias) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, widths[0]});
    for (int i = 0; i < LAYERS; i++) x = fr_net_linear(n, NULL, x, widths[i + 1], bias);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static size_t layer_bytes(int i, int element, bool bias) {
    return rounded(element * widths[i] * widths[i + 1]) + (bias ? rounded(element * widths[i + 1]) : 0);
}

static size_t all_layers(int element, bool bias) {
    size_t n = 0;
    for (int i = 0; i < LAYERS; i++) n += layer_bytes(i, element, bias);
    return n;
}

static size_t largest_layer(int element, bool bias) {
    size_t n = 0;
    for (int i = 0; i < LAYERS; i++) n = layer_bytes(i, element, bias) > n ? layer_bytes(i, element, bias) : n;
    return n;
}

static void forward_backward(fr_module *m, fr_dtype dtype) {
    fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, dtype, FR_MEM_INPUT);
    must(fr_module_forward(m, x, &x));
    must(fr_sum(x, &x));
    must(fr_backward(x, NULL));
    fr_tensor_release(&x);
}

/* Released between steps: nothing of them lives through the next forward. Kept and cleared: all do. */
Test(switch_bytes, gradients_released_or_kept) {
    fr_module *m = chain_of_linear(true);
    fr_optimizer *o = NULL;
    must(fr_sgd(m, NULL, &o));
    forward_backward(m, FR_F32);
    expect_bytes(live(FR_MEM_GRADIENT), all_layers(4, true), "gradients after backward");
    must(fr_optimizer_step(o));
    expect_bytes(live(FR_MEM_GRADIENT), all_layers(4, true), "gradients that are kept");
    fr_optimizer_zero_grad(o);
    expect_bytes(live(FR_MEM_GRADIENT), 0, "gradients that are released");
    fr_optimizer_release(&o);
    fr_module_release(&m);
    nothing_left();
}

/* Over a whole step: parameters, state, and at most one gradient, the largest weight's (a bias's is gone before the
 * weight's is made); state is none, one or two copies and the
 * count of steps. */
Test(switch_bytes, fused_step) {
    for (int k = 0; k < 3; k++)
        for (int bias = 0; bias < 2; bias++)
            for (int fused = 0; fused < 2; fused++) {
                watch w = {0};
                must(fr_event_subscribe(observe, &w));
                fr_module *m = chain_of_linear(bias);
                fr_optimizer *o = NULL;
                must(k == 0   ? fr_sgd(m, NULL, &o)
                     : k == 1 ? fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o)
                              : fr_adam(m, NULL, &o));
                must(fr_optimizer_fuse(o, fused));
                for (int i = 0; i < 2; i++) {
                    fr_step_scope scope;
                    must(fr_step_begin(&scope));
                    forward_backward(m, FR_F32);
                    must(fr_optimizer_step(o));
                    must(fr_step_end(&scope));
                    fr_optimizer_zero_grad(o);
                }
                size_t p = all_layers(4, bias);
                expect_bytes(w.most[FR_MEM_PARAMETER], p, "parameters, optimizer %d", k);
                expect_bytes(w.most[FR_MEM_OPTIMIZER], (size_t)k * p + (k == 2 ? 512 : 0), "state, optimizer %d", k);
                expect_bytes(w.most[FR_MEM_GRADIENT], fused ? largest_layer(4, false) : p,
                             "gradients, optimizer %d, bias %d, fused %d", k, bias, fused);
                fr_optimizer_release(&o);
                fr_module_release(&m);
                fr_event_unsubscribe(observe, &w);
            }
    nothing_left();
}

/* Under a loss scale, in two passes: the same, and 512 bytes each for the scale's inverse and the flag. */
Test(switch_bytes, fused_step_in_two_passes) {
    for (int two = 0; two < 2; two++) {
        watch w = {0};
        must(fr_event_subscribe(observe, &w));
        fr_module *m = chain_of_linear(1);
        fr_optimizer *o = NULL;
        fr_grad_scaler *g = NULL;
        must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 2), FR_META, &g));
        must(fr_optimizer_fuse(o, two));
        for (int i = 0; i < 2; i++) {
            bool found = true;
            fr_step_scope scope;
            must(fr_step_begin(&scope));
            if (two) {
                must(fr_grad_scaler_check_begin(g, o));
                forward_backward(m, FR_F32);
                must(fr_grad_scaler_check_end(g, o, &found));
                cr_expect(!found);
            }
            forward_backward(m, FR_F32);
            if (!two) must(fr_grad_scaler_step(g, o));
            must(fr_grad_scaler_update(g, NULL));
            fr_optimizer_zero_grad(o);
            must(fr_step_end(&scope));
        }
        size_t p = all_layers(4, 1);
        expect_bytes(w.most[FR_MEM_PARAMETER], p, "parameters");
        expect_bytes(w.most[FR_MEM_OPTIMIZER], p, "state");
        expect_bytes(w.most[FR_MEM_GRADIENT], two ? largest_layer(4, false) : p, "gradients, two passes %d", two);
        expect_bytes(w.most[FR_MEM_OTHER], 2 * 512, "scaler");
        fr_grad_scaler_release(&g);
        fr_optimizer_release(&o);
        fr_module_release(&m);
        fr_event_unsubscribe(observe, &w);
    }
    nothing_left();
}

/* ---- autocast ---------------------------------------------------------------------------------------------------- */

/* A weight's f16 copy lives while an op runs, forward and backward: the largest layer's at most. Cached, the copies
 * live from their first use to backward, but for the first layer's: its input wants no gradient, so backward needs no
 * weight there. */
Test(switch_bytes, autocast_casts) {
    for (int cached = 0; cached < 2; cached++) {
        watch w = {0};
        size_t cache = all_layers(2, false) - layer_bytes(0, 2, false);
        fr_autocast_state was = {0};
        fr_switches s = fr_switches_default();
        s.cache_casts = cached;
        fr_switches_set(s);
        fr_module *m = chain_of_linear(false);
        must(fr_event_subscribe(observe, &w));
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F16, FR_MEM_INPUT);
        must(fr_autocast_begin(FR_F16, &was));
        must(fr_module_forward(m, x, &x));
        fr_autocast_end(was);
        expect_bytes(w.casts, cached ? cache : 0, "casts alive after forward, cached %d", cached);
        must(fr_sum(x, &x));
        must(fr_backward(x, NULL));
        expect_bytes(w.most_casts, cached ? cache : largest_layer(2, false), "most casts, cached %d", cached);
        expect_bytes(w.casts, 0, "casts alive at the end");
        fr_tensor_release(&x);
        fr_event_unsubscribe(observe, &w);
        fr_module_release(&m);
    }
    nothing_left();
}

/* ---- graphs that should not be, or are forgotten ----------------------------------------------------------------- */

/* Training keeps every layer's input but the batch; without a graph nothing is kept, and two neighbouring maps are all
 * that ever lives. */
Test(switch_bytes, no_grad) {
    size_t saved = 0, pair = 0;
    for (int i = 1; i < LAYERS; i++) saved += rounded(4 * B * widths[i]);
    for (int i = 1; i < LAYERS; i++) {
        size_t both = rounded(4 * B * widths[i]) + rounded(4 * B * widths[i + 1]);
        pair = both > pair ? both : pair;
    }
    fr_module *m = chain_of_linear(true);
    fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT), *y = NULL;
    must(fr_module_forward(m, x, &y));
    expect_bytes(live(FR_MEM_ACTIVATION), saved, "with a graph");
    fr_tensor_release(&y);
    size_t before = begin();
    bool was = fr_no_grad_begin();
    must(fr_module_forward(m, x, &y));
    fr_no_grad_end(was);
    expect_bytes(live(FR_MEM_ACTIVATION), 0, "without");
    expect_bytes(rise(before), pair, "peak without");
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    nothing_left();
}

/* total = total + loss keeps the graph of every step that went into total: one step's saved maps and its batch more
 * per step. Without the graph (item) nothing stays. */
Test(switch_bytes, summing_losses) {
    size_t saved = 0, batch = rounded(4 * B * widths[0]);
    for (int i = 1; i < LAYERS; i++) saved += rounded(4 * B * widths[i]);
    fr_module *m = chain_of_linear(true);
    fr_tensor *total = NULL;
    size_t parameters = live_total();
    must(fr_tensor_zeros(0, NULL, FR_F32, FR_META, &total));
    for (int step = 1; step <= 5; step++) {
        fr_step_scope scope;
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT);
        must(fr_step_begin(&scope));
        must(fr_module_forward(m, x, &x));
        must(fr_sum(x, &x));
        must(fr_add(total, x, &total));
        fr_tensor_release(&x);
        must(fr_step_end(&scope));
        cr_expect_eq(fr_graph_stats_get().growing_steps, (uint64_t)step);
        expect_bytes(live(FR_MEM_ACTIVATION), (size_t)step * saved, "saved after %d steps", step);
        expect_bytes(live_total() - parameters, (size_t)step * (saved + batch) + 512, "all after %d steps", step);
    }
    fr_tensor_release(&total);
    expect_bytes(live_total(), parameters, "when the sum is gone");
    for (int step = 1; step <= 4; step++) { /* a graph that dies with its step does not grow */
        fr_step_scope scope;
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT);
        must(fr_step_begin(&scope));
        must(fr_module_forward(m, x, &x));
        fr_tensor_release(&x);
        must(fr_step_end(&scope));
        cr_expect_eq(fr_graph_stats_get().growing_steps, 0);
    }
    fr_module_release(&m);
    nothing_left();
}
