/* test_switch_bytes.c - bytes saved by each switch: the formulas of docs/memory.md, "Each switch in bytes", computed
 * here from shapes and compared with the allocator's count.
 *
 * Bytes of a step's gradients, optimizer and casts: test_step_bytes.c. */
#include "autograd/run.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <stdio.h>
#include <string.h>

#include "autograd/bytes.h"
#include "support/golden.h"
#include "tensor/tensor.h"
#include "net/units.h"

enum { N = 2, H = 24, W = 20, C = 12 }; /* the images of most tests: [2, 24, 20, 12] */

static size_t map_bytes(int64_t channels) {
    return rounded((int64_t)4 * N * H * W * channels);
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

/* Use of dy in a backward: handed on, overwritten by dx, or beside a new map for dx. */
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
    RELEASE_ALL(&loss, &z, &w);
}

Test(switch_bytes, inplace_saves_one_map_forward_and_one_backward) {
    for (int i = 0; i < (int)(sizeof elementwise / sizeof *elementwise); i++)
        for (int on = 0; on < 2; on++)
            for (int early = 0; early < 2; early++) one_elementwise(i, on, early);
    nothing_left();
}

/* norm(conv(x)) + conv(x): both inputs share the sum's gradient, so dx cannot take its place. dx takes the place of
 * the norm's saved map, whose last reader is done, if early release lets go of the map. */
static size_t norm_over_x(bool group, bool inplace, bool early) {
    fr_switches s = fr_switches_all_off();
    s.inplace = inplace;
    s.early_release = early;
    fr_switches_set(s);
    fr_tensor *x = image(3), *y = fr_tensor_retain(x), *w = weight(C, 1, 3), *w2 = weight(C, 1, 3);
    fr_tensor *ones = NULL;
    must(fr_tensor_full(1, (int64_t[]){C}, 1, FR_F32, FR_META, &ones));
    conv(&y, w);
    conv(&x, w2);
    must(group ? fr_group_norm(y, 4, ones, ones, 1e-5, &y) : fr_batchnorm2d(y, NULL, NULL, NULL, NULL, NULL, &y));
    must(fr_add(y, x, &y));
    fr_tensor_release(&x);
    must(fr_sum(y, &y));
    size_t before = begin();
    must(fr_backward(y, NULL));
    size_t bytes = rise(before);
    RELEASE_ALL(&ones, &y, &w, &w2);
    return bytes;
}

Test(switch_bytes, norm_over_x) {
    const size_t map = map_bytes(C), dw = rounded((int64_t)4 * C * 3);
    for (int i = 0; i < 8; i++)
        expect_bytes(norm_over_x(i & 1, i & 2, i & 4), (i & 6) == 6 ? map + dw : 2 * map,
                     "%s, in-place %d, early release %d", i & 1 ? "group norm" : "batch norm", (i & 2) / 2,
                     (i & 4) / 4);
    nothing_left();
}

/* The defaults save bytes that stay in memory; all off is PyTorch's set, whose autocast caches its casts. */
Test(switch_bytes, defaults_and_all_off) {
    static const struct {
        const char *name;
        bool standard, all_off;
    } cells[] = {{"inplace", true, false},        {"encode", true, false},   {"early-release", true, false},
                 {"rebuild", true, false},        {"offload", false, false}, {"cache-casts", false, true},
                 {"half-gradients", false, false}};
    fr_switches standard = fr_switches_default(), all_off = fr_switches_all_off();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const fri_switch *w = NULL;
        for (int k = 0; (w = fri_switch_at(k)) != NULL && strcmp(w->name, cells[i].name) != 0; k++) continue;
        cr_assert_not_null(w, "%s is not listed", cells[i].name);
        cr_expect_eq(*fri_switch_field(w, &standard), cells[i].standard, "%s by default", cells[i].name);
        cr_expect_eq(*fri_switch_field(w, &all_off), cells[i].all_off, "%s of all off", cells[i].name);
    }
    cr_expect_null(fri_switch_at(-1));
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
            /* |gamma| + eps takes a vector for eps meanwhile */
            expect_bytes(rise(before), statistics + 2 * rounded(4 * C), "inplace_abn in place");
        } else {
            must(fr_batchnorm2d(x, gamma, beta, NULL, NULL, NULL, &x));
            must(fr_leaky_relu(x, 0.01, &x));
        }
        conv(&x, w2);
        expect_bytes(live(FR_MEM_ACTIVATION), formula[form], "batch norm and activation, form %d", form);
        RELEASE_ALL(&x, &w, &w2, &gamma, &beta);
    }
    nothing_left();
}

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* relu without a later op that keeps the values: the map, or 1 bit per element. A convolution keeps the values anyway:
 * before a convolution the switch saves no byte. */
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
            RELEASE_ALL(&loss, &w, &w2);
        }
    nothing_left();
}

/* Max pooling 2 x 2 of n elements into n / 4: with encode a byte per output, else an index of pool_index per output
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
        RELEASE_ALL(&loss, &w, &w2);
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
                must(fri_offload_stats_get(&t));
                expect_bytes(t.requested, large, "in the file");
                must(fr_backward(loss, NULL));
                must(fri_offload_stats_get(&t));
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
    if (segments > 0) must(fri_unit_segments(FR_SEGMENTS_COUNT, segments, UNITS, NULL, range, &plan.ranges));
    must(segments == 0 ? fr_module_forward(m, x, &x) : fr_checkpoint_plan(m, &plan, x, &x));
    must(fr_sum(x, &loss));
    fr_tensor_release(&x);
    size_t bytes = live(FR_MEM_ACTIVATION);
    fr_tensor_release(&loss);
    return bytes;
}

/* Inputs of all segments but the last stay, and the first input is the batch; the last segment keeps all its
 * tensors. */
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
