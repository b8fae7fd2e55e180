/* test_cast.c - conversions: PyTorch's bits for every pair of types, gradients, weights under autocast. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "meta/calls.h"
#include "ops/casts.h"
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

typedef struct calls {
    int casts, lists, listed;
} calls;

static void count_casts(void *ctx, const fri_kernel_call *c) {
    calls *n = ctx;
    n->casts += strcmp(c->name, "cast") == 0;
    n->lists += strcmp(c->name, "cast_list") == 0;
    if (strcmp(c->name, "cast_list") == 0) n->listed = (int)c->dim[1];
}

/* y = relu(x w + b) w, and again without b where `less`. */
static void forward_backward(fri_casts *list, fr_tensor *x, fr_tensor *w, fr_tensor *b, bool less) {
    fr_tensor *y = NULL, *h = NULL;
    fr_autocast_state was;
    must(fr_autocast_begin(FR_F16, &was));
    if (list != NULL) must(fri_casts_begin(list));
    must(fr_linear(x, w, less ? NULL : b, &h));
    must(fr_relu(h, &h));
    must(fr_linear(h, w, NULL, &y));
    if (list != NULL) fri_casts_end(list);
    fr_autocast_end(was);
    must(fr_mean(y, &y));
    must(fr_backward(y, NULL));
    RELEASE_ALL(&y, &h);
}

/* The first forward learns the weights; each later one casts all in one call. A weight that is read twice is cast a
 * second time; the copy of one that no op reads goes. */
Test(cast, the_weights_of_a_step_are_cast_by_one_call) {
    static const calls expected[] = {{6, 0, 0}, {4, 1, 2}, {3, 1, 2}};
    fr_switches switches = fr_switches_default();
    for (int cached = 0; cached < 2; cached++) {
        fr_tensor *x[2] = {NULL}, *w[2] = {NULL}, *b[2] = {NULL}, *single = NULL;
        fri_casts list[2] = {{0}};
        switches.cache_casts = cached;
        fr_switches_set(switches);
        for (int meta = 0; meta < 2; meta++) {
            const fr_device device = meta ? FR_META : test_device();
            must(fr_tensor_normal(2, (int64_t[]){32, 64}, 0, 1, FR_F16, device, &x[meta]));
            must(fr_tensor_normal(2, (int64_t[]){64, 64}, 0, 1, FR_F32, device, &w[meta]));
            must(fr_tensor_normal(1, (int64_t[]){64}, 0, 1, FR_F32, device, &b[meta]));
            must(fr_tensor_set_requires_grad(w[meta], true));
            must(fr_tensor_set_requires_grad(b[meta], true));
        }
        forward_backward(NULL, x[0], w[0], b[0], false);
        must(fr_tensor_detach(fr_tensor_get_grad(w[0]), &single));
        for (int step = 0; step < 3; step++) {
            calls n = {0};
            fri_call_listener was = fri_meta_listen((fri_call_listener){count_casts, &n});
            forward_backward(&list[1], x[1], w[1], b[1], step == 2);
            fri_meta_listen(was);
            cr_expect_eq(n.lists, cached ? expected[step].lists : 0, "step %d: %d lists", step, n.lists);
            if (cached)
                cr_expect(n.casts == expected[step].casts && n.listed == expected[step].listed,
                          "step %d: %d casts, %d in the list", step, n.casts, n.listed);
            must(fr_tensor_set_grad(w[0], NULL));
            forward_backward(&list[0], x[0], w[0], b[0], step == 2);
            if (step != 2) expect_same_values(fr_tensor_get_grad(w[0]), single, "gradient");
        }
        for (int meta = 0; meta < 2; meta++) {
            fri_casts_release(&list[meta]);
            RELEASE_ALL(&x[meta], &w[meta], &b[meta]);
        }
        fr_tensor_release(&single);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* A weight that changes between the list's call and the op is cast anew. */
Test(cast, a_copy_of_an_older_weight_is_not_read) {
    fr_tensor *w = NULL, *old = NULL, *now = NULL;
    fri_casts list = {0};
    fr_autocast_state was;
    fr_switches switches = fr_switches_default();
    switches.cache_casts = true;
    fr_switches_set(switches);
    must(fr_tensor_full(2, (int64_t[]){8, 8}, 1, FR_F32, test_device(), &w));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_autocast_begin(FR_BF16, &was));
    for (int step = 0; step < 2; step++) {
        must(fri_casts_begin(&list));
        if (step == 1) must(fr_tensor_fill(w, 2));
        must(fr_matmul(w, w, step == 0 ? &old : &now));
        fri_casts_end(&list);
    }
    fr_autocast_end(was);
    cr_expect_eq(list.n, 1);
    must(fr_scale(old, 4, &old));
    expect_same_values(now, old, "of the new weight");
    fri_casts_release(&list);
    RELEASE_ALL(&w, &old, &now);
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}
