/* test_cast.c - conversions: PyTorch's bits for every pair of types, gradients, weights under autocast. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

/* The file's fields have their own types, and are not converted on the way in. */
static fr_tensor *raw(const golden *g, const char *field) {
    const fri_safetensors_entry *e = golden_field(g, field);
    fr_tensor *t = NULL;
    if (e != NULL) must(fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, e->dtype, test_device(), &t));
    return t;
}

/* Equal numbers; NaN payloads may differ. */
static void expect_equal(const golden *g, const char *field, const fr_tensor *got) {
    fr_tensor *want = raw(g, field);
    cr_assert_eq(fr_tensor_dtype(got), fr_tensor_dtype(want), "%s: %s has the wrong type", g->name, field);
    double *a = values_of(got), *b = values_of(want);
    for (int64_t i = 0; i < fr_tensor_numel(want); i++)
        cr_expect(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]), "%s: %s[%lld] is %.17g, expected %.17g", g->name,
                  field, (long long)i, a[i], b[i]);
    free(a);
    free(b);
    fr_tensor_release(&want);
}

Test(cast, forward_golden) {
    for (golden g = golden_open("cast"); golden_next(&g);) {
        fr_tensor *x = raw(&g, "x"), *want = raw(&g, "y"), *dy = raw(&g, "dy"), *y = NULL;
        if (dy != NULL) must(fr_tensor_set_requires_grad(x, true));
        must(fr_cast(x, fr_tensor_dtype(want), &y));
        expect_equal(&g, "y", y);
        if (dy != NULL) {
            must(fr_backward(y, dy));
            expect_equal(&g, "dx", fr_tensor_get_grad(x));
        }
        RELEASE_ALL(&x, &want, &dy, &y);
    }
    expect_nothing_left();
}

/* Low-precision weights exist only while an op runs: between forward and backward no byte of it is held, unless casts
 * are cached. Weight [64, 64] in f16 is 8,192 bytes. */
Test(cast, weight_casts_are_rebuilt_unless_cached) {
    size_t held[2];
    for (int cached = 0; cached < 2; cached++) {
        fr_tensor *x = NULL, *w = NULL, *y = NULL;
        fr_autocast_state was;
        fr_memory_stats t;
        fr_switches switches = fr_switches_default();
        switches.cache_casts = cached;
        fr_switches_set(switches);
        must(fr_tensor_normal(2, (int64_t[]){32, 64}, 0, 1, FR_F16, test_device(), &x));
        must(fr_tensor_normal(2, (int64_t[]){64, 64}, 0, 1, FR_F32, test_device(), &w));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_tensor_set_requires_grad(w, true));
        must(fr_autocast_begin(FR_F16, &was));
        must(fr_linear(x, w, NULL, &y));
        fr_autocast_end(was);
        must(fr_memory_stats_get(test_device(), &t));
        held[cached] = t.requested;
        must(fr_mean(y, &y));
        must(fr_backward(y, NULL));
        cr_expect_eq(fr_tensor_dtype(fr_tensor_get_grad(w)), FR_F32);
        RELEASE_ALL(&x, &w, &y);
    }
    cr_expect_eq(held[1] - held[0], 8192u, "a cached cast holds %zu bytes", held[1] - held[0]);
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}
