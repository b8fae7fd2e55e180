/* test_adam8.c - Adam with 8-bit moments: steps equal tests/golden/make_8bit.py code for code; bytes and bounds. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/allocator.h"
#include "optim/optimizer.h"
#include "support/golden.h"

enum { BLOCK = 256 };

static fr_status no_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    (void)x;
    return FR_OK;
}
static const fr_module_class bag_class = {.name = "Bag", .forward = no_forward};

/* A module with a single parameter "w", taken over. */
static fr_module *bag(fr_tensor *w) {
    fr_module *m = NULL;
    must(fr_module_create(&bag_class, 0, &m));
    must(fr_module_add_parameter(m, "w", &w));
    return m;
}

static void give_gradient(fr_module *m, fr_tensor *g) {
    must(fr_tensor_set_grad(fr_module_tensor(m, "w"), g));
    fr_tensor_release(&g);
}

/* ---- golden values -------------------------------------------------------------------------------------------- */

/* The state that golden fields are compared with: one lookup by name. */
struct wanted {
    const char *name;
    fr_tensor *t;
};

static fr_status find(void *ctx, const char *name, fr_tensor *t) {
    struct wanted *w = ctx;
    if (strcmp(name, w->name) == 0) w->t = t;
    return FR_OK;
}

static fr_tensor *state(fr_optimizer *o, const char *name) {
    struct wanted w = {.name = name};
    must(fri_optimizer_each_state(o, find, &w));
    return w.t;
}

static void expect_codes(const golden *g, const char *field, fr_tensor *t) {
    const fri_safetensors_entry *e = golden_field(g, field);
    cr_assert_not_null(e);
    cr_assert_not_null(t, "%s: no state for %s", g->name, field);
    cr_assert_eq(fr_tensor_dtype(t), FR_U8);
    cr_assert_eq((size_t)fr_tensor_nbytes(t), e->bytes);
    const uint8_t *got = host_of(t), *want = e->data;
    int wrong = 0;
    for (size_t i = 0; i < e->bytes; i++) wrong += got[i] != want[i];
    cr_expect_eq(wrong, 0, "%s: %d of %zu codes of %s differ", g->name, wrong, e->bytes, field);
}

/* Gradients of the case, and the parameter afterwards. */
static void take_steps(golden *g, fr_module *m, fr_optimizer *o) {
    for (int64_t t = 0; t < golden_int(g, "steps", 0); t++) {
        char field[24];
        snprintf(field, sizeof field, "g%d", (int)t);
        give_gradient(m, golden_tensor(g, field, FR_F32, test_device()));
        must(fr_optimizer_step(o));
    }
    golden_expect(g, "p_after", fr_module_tensor(m, "w"), FR_F32);
}

Test(adam8, matches_the_golden_file) {
    golden g = golden_open("adam8");
    int cases = 0;
    while (golden_next(&g)) {
        fr_module *m = bag(golden_tensor(&g, "p", FR_F32, test_device()));
        fr_optimizer *o = NULL;
        must(fr_adam8(m,
                      FR_ADAM_OPTS(.lr = golden_real(&g, "lr"), .beta1 = golden_real(&g, "beta1"),
                                   .beta2 = golden_real(&g, "beta2"), .eps = golden_real(&g, "eps"),
                                   .weight_decay = golden_real(&g, "weight_decay")),
                      &o));
        take_steps(&g, m, o);
        if (golden_field(&g, "m_code") != NULL) {
            expect_codes(&g, "m_code", state(o, "w.exp_avg"));
            expect_codes(&g, "v_code", state(o, "w.exp_avg_sq"));
            golden_expect(&g, "m_absmax", state(o, "w.exp_avg_absmax"), FR_F32);
            golden_expect(&g, "v_absmax", state(o, "w.exp_avg_sq_absmax"), FR_F32);
        } else {
            golden_expect(&g, "m_after", state(o, "w.exp_avg"), FR_F32);
            golden_expect(&g, "v_after", state(o, "w.exp_avg_sq"), FR_F32);
            cr_expect_null(state(o, "w.exp_avg_absmax"));
        }
        fr_optimizer_release(&o);
        fr_module_release(&m);
        cases++;
    }
    cr_expect_eq(cases, 3);
    expect_nothing_left();
}

/* The largest value is 1; the published map is made in f32, so two roundings of a value below 1 may differ. */
Test(adam8, has_the_published_maps) {
    golden g = golden_open("adam8");
    float map[FRI_MAP_VALUES];
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const fri_safetensors_entry *e = fri_safetensors_find(g.file, is_signed ? "maps.signed" : "maps.unsigned");
        cr_assert_not_null(e);
        const float *want = e->data;
        fri_dynamic_map(is_signed, map);
        for (int i = 0; i < FRI_MAP_VALUES; i++) {
            cr_expect(fabsf(map[i] - want[i]) <= 1.2e-7f * fabsf(want[i]), "value %d is %.9g, not %.9g", i,
                      (double)map[i], (double)want[i]);
            cr_expect(i == 0 || map[i] > map[i - 1]);
        }
    }
    while (golden_next(&g)) continue;
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) {
    return (bytes + 511) / 512 * 512;
}

/* Bytes of a parameter of n elements by the documentation, each tensor rounded up to 512. */
static size_t formula(int64_t n) {
    size_t blocks = (size_t)(n + BLOCK - 1) / BLOCK;
    if (n < 4096) return 2 * rounded(4 * (size_t)n);
    return 2 * rounded((size_t)n) + 2 * rounded(4 * blocks);
}

Test(adam8, keeps_two_bytes_and_scales_per_parameter) {
    static const int64_t sizes[] = {1, 512, 4095, 4096, 4097, 65536, 1000003};
    size_t expected = rounded(4) + 2 * FRI_MAP_VALUES * sizeof(float); /* the count of steps, the maps */
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_memory_stats t;
    must(fr_module_create(&bag_class, 0, &m));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[16];
        fr_tensor *w = NULL, *g = NULL;
        snprintf(name, sizeof name, "w%d", (int)i);
        must(fr_tensor_zeros(1, &sizes[i], FR_F32, FR_META, &w));
        must(fr_tensor_zeros(1, &sizes[i], FR_F32, FR_META, &g));
        must(fr_module_add_parameter(m, name, &w));
        must(fr_tensor_set_grad(fr_module_tensor(m, name), g));
        fr_tensor_release(&g);
        expected += formula(sizes[i]);
    }
    must(fr_adam8(m, NULL, &o));
    must(fr_memory_reset_peak(FR_META));
    must(fr_memory_stats_get(FR_META, &t));
    size_t before = t.requested;
    must(fr_optimizer_step(o));
    must(fr_memory_stats_get(FR_META, &t));
    cr_expect_eq(t.requested_by[FR_MEM_OPTIMIZER], expected, "%zu bytes of state, formula %zu",
                 t.requested_by[FR_MEM_OPTIMIZER], expected);
    cr_expect_eq(t.peak_requested, before + expected, "the step had temporaries");
    fr_optimizer_release(&o);
    fr_module_release(&m);
    must(fr_memory_stats_get(FR_META, &t));
    cr_expect_eq(t.requested, 0u);
}

/* ---- how far from Adam ---------------------------------------------------------------------------------------- */

static fr_tensor *normal(int64_t n, fr_dtype dtype) {
    fr_tensor *t = NULL;
    must(fr_tensor_normal(1, &n, 0, 1, dtype, test_device(), &t));
    return t;
}

/* First updates, without a state, are AdamW's, bit for bit; the moments it leaves are off by half a gap of the map at
 * most: 0.45 / 64 of the block's largest for the first, 0.45 / 128 for the second. */
Test(adam8, first_step_is_adamw_and_moments_are_near) {
    enum { N = 20 * BLOCK + 17 };
    fr_module *m[2];
    fr_optimizer *o[2] = {0};
    for (int k = 0; k < 2; k++) {
        fr_seed(5);
        m[k] = bag(normal(N, FR_F32));
        must(k == 0 ? fr_adamw(m[k], FR_ADAMW_OPTS(.weight_decay = 0.1), &o[k])
                    : fr_adam8(m[k], FR_ADAM_OPTS(.weight_decay = 0.1), &o[k]));
        give_gradient(m[k], normal(N, FR_F32));
        must(fr_optimizer_step(o[k]));
    }
    cr_expect_eq(memcmp(host_of(fr_module_tensor(m[0], "w")), host_of(fr_module_tensor(m[1], "w")), 4 * N), 0);
    for (int which = 0; which < 2; which++) {
        const float *exact = host_of(state(o[0], which == 0 ? "w.exp_avg" : "w.exp_avg_sq"));
        const uint8_t *code = host_of(state(o[1], which == 0 ? "w.exp_avg" : "w.exp_avg_sq"));
        const float *absmax = host_of(state(o[1], which == 0 ? "w.exp_avg_absmax" : "w.exp_avg_sq_absmax"));
        double bound = 0.45 / (which == 0 ? 64 : 128) + 1e-6;
        float map[FRI_MAP_VALUES];
        fri_dynamic_map(which == 0, map);
        for (int i = 0; i < N; i++) {
            double scale = (double)absmax[i / BLOCK], off = fabs((double)map[code[i]] * scale - (double)exact[i]);
            cr_expect(off <= bound * scale, "moment %d, element %d is off by %g of the scale", which, i, off / scale);
        }
    }
    for (int k = 0; k < 2; k++) {
        fr_optimizer_release(&o[k]);
        fr_module_release(&m[k]);
    }
    expect_nothing_left();
}

/* f16 and f64 parameters: the former in 8 bits, the latter as Adam. All move along the gradient. */
Test(adam8, serves_every_float_type) {
    static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F64};
    const int kinds = test_device() == FR_CPU ? 3 : 2; /* CUDA has no arithmetic in f64 */
    for (int k = 0; k < kinds; k++) {
        fr_module *m = bag(normal(5000, types[k]));
        fr_optimizer *o = NULL;
        fr_tensor *w = fr_module_tensor(m, "w");
        double *before = values_of(w);
        must(fr_adam8(m, FR_ADAM_OPTS(.lr = 0.25), &o));
        give_gradient(m, normal(5000, types[k]));
        must(fr_optimizer_step(o));
        double *after = values_of(w), *g = values_of(fr_tensor_get_grad(w));
        cr_expect_eq(state(o, "w.exp_avg_absmax") != NULL, types[k] != FR_F64);
        /* 0.25 against the sign of g; rounding of |w| < 8 to 8 bits is 2^-6 at most */
        for (int j = 0; j < 5000; j++)
            cr_expect(fabs(after[j] - before[j] + copysign(0.25, g[j])) <= 0.016, "%s: element %d went from %g to %g",
                      fr_dtype_name(types[k]), j, before[j], after[j]);
        free(before);
        free(after);
        free(g);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* A scaler that finds inf leaves parameter, codes and scales unchanged. */
Test(adam8, skips_with_the_scaler) {
    enum { N = 4096 };
    static unsigned char kept[3][4 * N];
    fr_module *m = bag(normal(N, FR_F32));
    fr_optimizer *o = NULL;
    fr_grad_scaler *s = NULL;
    must(fr_adam8(m, NULL, &o));
    must(fr_grad_scaler_create(NULL, test_device(), &s));
    for (int step = 0; step < 2; step++) {
        fr_tensor *g = normal(N, FR_F32);
        if (step == 1) {
            float values[1 << 14];
            cr_assert_leq(fr_tensor_nbytes(g), sizeof values);
            must(fr_tensor_to_host(g, values));
            values[77] = INFINITY;
            host_to(g, values);
        }
        give_gradient(m, g);
        must(fr_grad_scaler_step(s, o));
        must(fr_grad_scaler_update(s, NULL));
        fr_tensor *now[] = {fr_module_tensor(m, "w"), state(o, "w.exp_avg"), state(o, "w.exp_avg_absmax")};
        for (int i = 0; i < 3; i++) {
            if (step == 1) cr_expect_eq(memcmp(kept[i], host_of(now[i]), fr_tensor_nbytes(now[i])), 0);
            memcpy(kept[i], host_of(now[i]), fr_tensor_nbytes(now[i]));
        }
    }
    cr_expect_eq(fr_grad_scaler_skipped(s), 1);
    cr_expect_eq(fr_optimizer_steps(o), 1);
    fr_grad_scaler_release(&s);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(adam8, refuses_what_adam_refuses) {
    fr_module *m = bag(normal(4, FR_F32));
    fr_optimizer *o = NULL;
    cr_expect_eq(fr_adam8(m, FR_ADAM_OPTS(.beta1 = 1), &o), FR_EINVAL);
    cr_expect(strstr(fr_last_error(), "Adam8: beta1 is 1") != NULL, "%s", fr_last_error());
    cr_expect_null(o);
    must(fr_adam8(m, NULL, &o));
    cr_expect_str_eq(fr_optimizer_name(o), "adam8");
    fr_optimizer_release(&o);
    fr_module_release(&m);
}
