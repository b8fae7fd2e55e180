/* op_suite.c - see op_suite.h. */
#include "support/op_suite.h"

#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Poisons memory in every program that tests an op; the library reads the variable at its first call. */
__attribute__((constructor)) static void poison(void) {
    setenv("FRUGAL_POISON", "1", 1);
}

static void inputs_of(const op_suite *s, const golden *g, fr_dtype dtype, fr_tensor **in) {
    fr_device device = test_device();
    for (int i = 0; i < OP_INPUTS; i++) {
        in[i] = s->inputs[i] != NULL ? golden_tensor(g, s->inputs[i], dtype, device) : NULL;
        if (in[i] != NULL) must(fr_tensor_set_requires_grad(in[i], true));
    }
}

static void release_all(fr_tensor **t) {
    for (int i = 0; i < OP_INPUTS; i++) fr_tensor_release(&t[i]);
}

/* Forward, then backward with the case's dy. */
static void run(const op_suite *s, const golden *g, fr_tensor **in, fr_tensor **y) {
    must(s->run(g, in, y));
    fr_tensor *dy = golden_tensor(g, "dy", fr_tensor_dtype(*y), fr_tensor_device(*y));
    must(fr_backward(*y, dy));
    fr_tensor_release(&dy);
}

static const char *gradient_field(const char *input, char buf[16]) {
    snprintf(buf, 16, "d%s", input);
    return buf;
}

static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p != NULL && (p = strstr(p, name)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' ')) return true;
    return false;
}

static void against_golden(const op_suite *s, fr_dtype dtype) {
    char field[16];
    for (golden g = golden_open(s->op); golden_next(&g);) {
        if (dtype != FR_F32 && listed(s->not_half, g.name)) continue;
        fr_tensor *in[OP_INPUTS], *y = NULL;
        inputs_of(s, &g, dtype, in);
        run(s, &g, in, &y);
        golden_expect(&g, "y", y, dtype);
        for (int i = 0; i < OP_INPUTS; i++)
            if (in[i] != NULL) golden_expect(&g, gradient_field(s->inputs[i], field), fr_tensor_get_grad(in[i]), dtype);
        release_all(in);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}

void suite_forward_golden(const op_suite *s) {
    against_golden(s, FR_F32);
}

void suite_half_near_f32(const op_suite *s) {
    against_golden(s, FR_F16);
    against_golden(s, FR_BF16);
}

/* ---- gradcheck -------------------------------------------------------------------------------------------------- */

struct call {
    const op_suite *s;
    const golden *g;
};

static fr_status call_op(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const struct call *c = ctx;
    (void)n_in;
    (void)n_out;
    return c->s->run(c->g, in, out);
}

/* Replaces golden values by fresh ones without ties, at least `kink` away from a kink at 0. */
static void shake(fr_tensor *t, double kink) {
    fr_tensor *fresh = NULL;
    must(fr_tensor_normal(fr_tensor_rank(t), fr_tensor_shape(t), 0, 1, FR_F64, FR_CPU, &fresh));
    double *v = fr_tensor_data(t);
    const double *f = fr_tensor_data(fresh);
    for (int64_t i = 0; i < fr_tensor_numel(t); i++) v[i] = f[i] + (f[i] < 0 ? -kink : kink);
    fr_tensor_release(&fresh);
}

void suite_gradcheck(const op_suite *s) {
    enum { LARGEST = 1500 }; /* elements: each costs two forward passes */
    int checked = 0;
    if (test_device() != FR_CPU) cr_skip_test("gradient checks are in f64, which only the CPU computes");
    fr_seed(11);
    for (golden g = golden_open(s->op); golden_next(&g);) {
        fr_tensor *in[OP_INPUTS];
        int64_t elements = 0;
        struct call c = {s, &g};
        inputs_of(s, &g, FR_F64, in);
        for (int i = 0; i < OP_INPUTS; i++)
            if (in[i] != NULL) {
                shake(in[i], s->kink);
                elements += fr_tensor_numel(in[i]);
            }
        if (!listed(s->skip, g.name) && elements <= LARGEST) {
            fr_status status = fr_gradcheck(call_op, &c, in, OP_INPUTS, NULL);
            cr_expect_eq(status, FR_OK, "%s %s: %s", s->op, g.name, fr_last_error());
            checked++;
        }
        release_all(in);
    }
    cr_expect_gt(checked, 0, "%s: no case was checked", s->op);
    expect_nothing_left();
}

/* ---- accumulation, switches -------------------------------------------------------------------------------------- */

static void expect_same_bytes(const op_suite *s, const golden *g, const char *what, fr_tensor *a, fr_tensor *b) {
    cr_assert(a != NULL && b != NULL, "%s %s: %s is missing", s->op, g->name, what);
    void *bytes_a = malloc(fr_tensor_nbytes(a) + 1), *bytes_b = malloc(fr_tensor_nbytes(b) + 1);
    must(fr_tensor_to_host(a, bytes_a));
    must(fr_tensor_to_host(b, bytes_b));
    cr_expect_eq(memcmp(bytes_a, bytes_b, fr_tensor_nbytes(a)), 0, "%s %s: %s differs", s->op, g->name, what);
    free(bytes_a);
    free(bytes_b);
}

void suite_accumulates(const op_suite *s) {
    for (golden g = golden_open(s->op); golden_next(&g);) {
        fr_tensor *in[OP_INPUTS], *y = NULL, *once[OP_INPUTS] = {0};
        inputs_of(s, &g, FR_F32, in);
        run(s, &g, in, &y);
        for (int i = 0; i < OP_INPUTS; i++)
            if (in[i] != NULL) must(fr_scale(fr_tensor_get_grad(in[i]), 2, &once[i]));
        run(s, &g, in, &y);
        for (int i = 0; i < OP_INPUTS; i++) {
            if (in[i] == NULL) continue;
            double *a = values_of(once[i]), *b = values_of(fr_tensor_get_grad(in[i]));
            for (int64_t k = 0; k < fr_tensor_numel(in[i]); k++)
                if (!(a[k] == b[k] || (isnan(a[k]) && isnan(b[k])))) {
                    cr_expect(false, "%s %s: d%s[%lld] is %.9g after two passes, not %.9g", s->op, g.name, s->inputs[i],
                              (long long)k, b[k], a[k]);
                    break;
                }
            free(a);
            free(b);
        }
        release_all(in);
        release_all(once);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}

void suite_switches_agree(const op_suite *s) {
    char field[16];
    for (golden g = golden_open(s->op); golden_next(&g);) {
        fr_tensor *a[OP_INPUTS], *b[OP_INPUTS], *ya = NULL, *yb = NULL;
        fr_switches_set(fr_switches_all_off());
        inputs_of(s, &g, FR_F32, a);
        run(s, &g, a, &ya);
        fr_switches_set(fr_switches_default());
        inputs_of(s, &g, FR_F32, b);
        run(s, &g, b, &yb);
        expect_same_bytes(s, &g, "y", ya, yb);
        for (int i = 0; i < OP_INPUTS; i++)
            if (a[i] != NULL)
                expect_same_bytes(s, &g, gradient_field(s->inputs[i], field), fr_tensor_get_grad(a[i]),
                                  fr_tensor_get_grad(b[i]));
        release_all(a);
        release_all(b);
        fr_tensor_release(&ya);
        fr_tensor_release(&yb);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

void suite_inplace_equals_plain(fr_status (*op)(fr_tensor *, fr_tensor **), fr_status (*in_place)(fr_tensor *),
                                double mean, double deviation) {
    fr_tensor *reference = NULL, *reference_y = NULL;
    for (int way = 0; way < 3; way++) {
        fr_tensor *x = NULL, *h = NULL, *s = NULL;
        fr_switches switches = fr_switches_default();
        switches.inplace = way > 0;
        fr_switches_set(switches);
        fr_seed(4);
        must(fr_tensor_normal(1, (int64_t[]){1003}, mean, deviation, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_scale(x, 1.5, &h));
        must(way < 2 ? op(h, &h) : in_place(h));
        must(fr_mul(h, h, &s));
        must(fr_sum(s, &s));
        must(fr_backward(s, NULL));
        if (way == 0) {
            must(fr_tensor_clone(fr_tensor_get_grad(x), &reference));
            must(fr_tensor_clone(h, &reference_y));
        }
        cr_expect_eq(memcmp(host_of(h), host_of(reference_y), fr_tensor_nbytes(h)), 0);
        cr_expect_eq(memcmp(host_of(fr_tensor_get_grad(x)), host_of(reference), fr_tensor_nbytes(x)), 0);
        fr_tensor_release(&x);
        fr_tensor_release(&h);
        fr_tensor_release(&s);
    }
    fr_tensor_release(&reference);
    fr_tensor_release(&reference_y);
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}
