/* test_settling.c - every combination of memory switches trains to the same bits, and meta needs the same bytes.
 *
 * A small DenseNet (lists of features, concat, batch norm before relu) and a small U-Net (skips, pooling, upsampling),
 * each behind a stem with leaky relu, max pooling and dropout, train three steps under all 2^6 settings of {in-place,
 * encode, rebuild, early release, cached casts, offload}, without and with checkpoints, in f32; every third setting
 * under f16 autocast, too.
 * Losses, parameters and running statistics must equal those of all switches off, bit for bit; and the same program on
 * FR_META, standing for the CPU, must report the same peaks, total and by category. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <setjmp.h>
#include <string.h>

#include "memory/allocator.h"
#include "meta/meta.h"
#include "support/golden.h"

enum { STEPS = 3, BATCH = 4, SIZE = 16, SWITCHES = 6, SETTINGS = 1 << SWITCHES, CHECKPOINTS = 3 };

typedef enum kind { DENSENET, UNET, KINDS } kind;

/* ---- the nets ------------------------------------------------------------------------------------------------ */

static fr_module *make_net(kind k, fr_device device) {
    fr_module *m = NULL, *last = NULL;
    const fr_model_opts *o =
        FR_MODEL_OPTS(.classes = 5, .in_channels = 8, .image_size = 8, .growth = 4, .device = device);
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3});
    x = fr_net_conv2d(n, NULL, x, 6, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_leaky_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL), 0.1);
    x = fr_net_conv2d(n, NULL, x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_maxpool2d(n, NULL, fr_net_relu(n, NULL, x), 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1));
    x = fr_net_dropout2d(n, NULL, x, 0.2);
    must(k == DENSENET ? fr_densenet(16, o, &last) : fr_unet(1, o, &last));
    fr_net_module(n, NULL, &last, &x, 1, &x, 1);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

/* ---- a setting -------------------------------------------------------------------------------------------------- */

typedef struct setting {
    kind k;
    int switches, checkpoint;
    bool autocast;
} setting;

static fr_switches switches_of(int bits) {
    fr_switches s = fr_switches_all_off();
    s.inplace = bits & 1;
    s.encode = bits >> 1 & 1;
    s.rebuild = bits >> 2 & 1;
    s.early_release = bits >> 3 & 1;
    s.cache_casts = bits >> 4 & 1;
    s.offload = bits >> 5 & 1;
    s.half_gradients = bits / 3 & 1; /* of every other setting under autocast */
    return s;
}

/* No checkpoint; two segments, the first checkpointed; every unit a checkpoint of its own. */
static fr_status forward(fr_module *m, int checkpoint, fr_tensor *x, fr_tensor **y) {
    static const int two[] = {0, 4}, each[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const fr_unit_range range[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}};
    const fr_unit_plan plan[] = {{.units = 2, .ranges = 1, .range = range, .first = two},
                                 {.units = 8, .ranges = 8, .range = range, .first = each}};
    if (checkpoint > 0) return fr_checkpoint_plan(m, &plan[checkpoint - 1], x, y);
    return fr_module_forward(m, x, y);
}

static void step(fr_module *m, fr_optimizer *o, const setting *c, fr_device device, double *loss_out) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL;
    fr_step_scope scope;
    fr_autocast_state was = {0};
    must(fr_step_begin(&scope));
    must(fr_tensor_uniform(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, -1, 1, FR_F32, device, &x));
    if (c->k == DENSENET)
        must(fr_tensor_full(1, (int64_t[]){BATCH}, 2, FR_I64, device, &target));
    else
        must(fr_tensor_full(3, (int64_t[]){BATCH, SIZE / 2, SIZE / 2}, 2, FR_I64, device, &target));
    if (c->autocast) must(fr_autocast_begin(FR_F16, &was));
    must(forward(m, c->checkpoint, x, &y));
    fr_tensor_release(&x);
    must(fr_cross_entropy(y, target, NULL, &loss));
    fr_tensor_release(&y);
    if (c->autocast) fr_autocast_end(was);
    must(fr_backward(loss, NULL));
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    *loss_out = 0;
    if (device != FR_META) must(fr_tensor_item(loss, loss_out));
    fr_tensor_release(&target);
    fr_tensor_release(&loss);
    must(fr_step_end(&scope));
}

static uint64_t fnv(uint64_t h, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static fr_status hash_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *h = ctx;
    (void)path;
    (void)is_parameter;
    *h = fnv(*h, host_of(t), fr_tensor_nbytes(t));
    return FR_OK;
}

typedef struct outcome {
    double loss[STEPS];
    uint64_t bits; /* of losses, parameters and running statistics */
    fr_memory_stats memory;
} outcome;

static outcome train(const setting *c, fr_device device) {
    outcome r = {.bits = 14695981039346656037u};
    fr_optimizer *o = NULL;
    must(fr_memory_empty_cache(device));
    must(fr_memory_reset_peak(device));
    fr_seed(21);
    fr_switches_set(switches_of(c->switches));
    fr_module *m = make_net(c->k, device);
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9), &o));
    for (int i = 0; i < STEPS; i++) step(m, o, c, device, &r.loss[i]);
    must(fr_memory_stats_get(device, &r.memory));
    r.bits = fnv(r.bits, r.loss, sizeof r.loss);
    if (device != FR_META) must(fr_module_each_tensor(m, hash_tensor, &r.bits));
    fr_optimizer_release(&o);
    fr_module_release(&m);
    return r;
}

static void expect_same_bytes(const setting *c, const outcome *run, const outcome *meta) {
    const fr_memory_stats *a = &run->memory, *b = &meta->memory;
    cr_expect_eq(a->peak_requested, b->peak_requested,
                 "net %d switches %d checkpoint %d amp %d: cpu %zu, meta %zu requested", c->k, c->switches,
                 c->checkpoint, c->autocast, a->peak_requested, b->peak_requested);
    cr_expect_eq(a->peak_allocated, b->peak_allocated,
                 "net %d switches %d checkpoint %d amp %d: cpu %zu, meta %zu allocated", c->k, c->switches,
                 c->checkpoint, c->autocast, a->peak_allocated, b->peak_allocated);
    cr_expect_eq(memcmp(a->at_peak_allocated, b->at_peak_allocated, sizeof a->at_peak_allocated), 0,
                 "net %d switches %d checkpoint %d amp %d: categories at the peak differ", c->k, c->switches,
                 c->checkpoint, c->autocast);
}

static void all_settings(kind k) {
    fri_meta_target_set(fri_backend_get(test_device()));
    for (int amp = 0; amp < 2; amp++) {
        setting c = {.k = k, .autocast = amp};
        outcome off = train(&c, test_device());
        cr_assert(off.loss[0] > 0 && off.loss[2] == off.loss[2], "the reference run lost its loss");
        for (c.checkpoint = 0; c.checkpoint < CHECKPOINTS; c.checkpoint++)
            for (c.switches = 0; c.switches < SETTINGS; c.switches += amp ? 3 : 1) {
                outcome r = train(&c, test_device()), dry = train(&c, FR_META);
                cr_expect_eq(r.bits, off.bits,
                             "net %d switches %d checkpoint %d amp %d: losses %.9g %.9g %.9g, not %.9g %.9g %.9g", k,
                             c.switches, c.checkpoint, amp, r.loss[0], r.loss[1], r.loss[2], off.loss[0], off.loss[1],
                             off.loss[2]);
                expect_same_bytes(&c, &r, &dry);
            }
    }
    fri_meta_target_set(NULL);
    fr_switches_set(fr_switches_default());
    fr_offload_close();
    expect_nothing_left();
}

Test(settling, densenet_under_all_switches, .timeout = 250) {
    all_settings(DENSENET);
}

Test(settling, unet_under_all_switches, .timeout = 250) {
    all_settings(UNET);
}

/* relu's mask may move into the codes of its only reader: a pool beside another reader leaves the mask in place. */
Test(settling, a_relu_with_two_readers_keeps_its_mask) {
    for (int encode = 0; encode < 2; encode++) {
        const float values[] = {-3, 1, -2, 4};
        fr_switches s = fr_switches_default();
        fr_tensor *x = NULL, *y = NULL, *a = NULL, *p = NULL;
        float dx[4];
        s.encode = encode;
        fr_switches_set(s);
        must(fr_tensor_from_host(values, 4, (int64_t[]){1, 2, 2, 1}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_relu(x, &y));
        must(fr_scale(y, 10, &a));
        must(fr_maxpool2d(y, 2, NULL, &p));
        fr_tensor_release(&y); /* settles: the pool is the last reader */
        must(fr_sum(a, &a));
        must(fr_sum(p, &p));
        must(fr_add(a, p, &a));
        must(fr_backward(a, NULL));
        must(fr_tensor_to_host(fr_tensor_get_grad(x), dx));
        const float want[] = {0, 10, 0, 11};
        for (int i = 0; i < 4; i++) cr_expect_eq(dx[i], want[i], "encode %d: dx[%d] is %g", encode, i, dx[i]);
        RELEASE_ALL(&x, &a, &p);
        expect_nothing_left();
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* conv - relu - max pool 2 on [N, H, W, C] -> K channels in f32: what stays for backward besides the input.
 *   all off   relu's output 4 n, pooled output 4 n / 4 (the next conv's), i64 index 8 n / 4        n = N H W K
 *   encode    pooled output 4 n / 4, codes n / 4; relu keeps nothing: the pool masks for it */
Test(settling, relu_and_pool_bytes_are_the_formula) {
    enum { H = 32, C = 3, K = 16 };
    size_t n = (size_t)BATCH * H * H * K;
    size_t expected[2] = {4 * n + n + 2 * n, n + n / 4};
    for (int on = 0; on < 2; on++) {
        fr_tensor *x = NULL, *w = NULL, *w2 = NULL;
        fr_memory_stats t;
        fr_switches_set(on ? fr_switches_default() : fr_switches_all_off());
        must(fr_tensor_uniform(4, (int64_t[]){BATCH, H, H, C}, -1, 1, FR_F32, test_device(), &x));
        must(fr_tensor_uniform(4, (int64_t[]){K, 3, 3, C}, -1, 1, FR_F32, test_device(), &w));
        must(fr_tensor_uniform(4, (int64_t[]){K, 3, 3, K}, -1, 1, FR_F32, test_device(), &w2));
        must(fr_tensor_set_requires_grad(w, true));
        must(fr_tensor_set_requires_grad(w2, true));
        must(fr_memory_stats_get(test_device(), &t));
        size_t before = t.requested_by[FR_MEM_ACTIVATION] + fri_round_bytes(fr_tensor_nbytes(x));
        must(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.padding = 1), &x));
        must(fr_relu(x, &x));
        must(fr_maxpool2d(x, 2, NULL, &x));
        must(fr_conv2d(x, w2, NULL, FR_CONV2D_OPTS(.padding = 1), &x));
        must(fr_memory_stats_get(test_device(), &t));
        size_t saved = t.requested_by[FR_MEM_ACTIVATION] - before;
        /* The weights are leaves made here, not parameters of a module: they count as saved once a conv holds
         * them. */
        saved -= fri_round_bytes(fr_tensor_nbytes(w2));
        cr_expect_eq(saved, expected[on], "%s: %zu bytes saved, formula %zu", on ? "encode" : "all off", saved,
                     expected[on]);
        RELEASE_ALL(&x, &w, &w2);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

static jmp_buf out_of_the_hook;

static fr_status jumping_hook(void *ctx, fr_tensor *leaf) {
    (void)ctx, (void)leaf;
    longjmp(out_of_the_hook, 1);
}

/* The jump stands for an exception of C++. fr_step_end ends the pass, and the thread trains on without the graph. */
Test(settling, a_jump_out_of_a_hook_does_not_bar_the_thread) {
    fr_tensor *volatile x = NULL;
    fr_tensor *made = NULL, *y = NULL;
    fr_step_scope scope;
    cr_assert_eq(fr_tensor_zeros(1, (int64_t[]){3}, FR_F32, FR_CPU, &made), FR_OK);
    x = made;
    cr_assert_eq(fr_tensor_set_requires_grad(x, true), FR_OK);
    cr_assert_eq(fr_tensor_set_grad_hook(x, jumping_hook, NULL), FR_OK);
    cr_assert_eq(fr_step_begin(&scope), FR_OK);
    if (setjmp(out_of_the_hook) == 0) {
        cr_assert_eq(fr_sum(x, &y), FR_OK);
        (void)fr_backward(y, NULL);
        cr_assert_fail("the hook was not called");
    }
    cr_assert_eq(fr_step_end(&scope), FR_OK);
    cr_assert_eq(fr_tensor_set_grad_hook(x, NULL, NULL), FR_OK);
    fr_tensor *z = NULL;
    cr_assert_eq(fr_scale(x, 2, &z), FR_OK);
    cr_assert_eq(fr_sum(z, &z), FR_OK);
    cr_assert_eq(fr_backward(z, NULL), FR_OK, "%s", fr_last_error());
}
