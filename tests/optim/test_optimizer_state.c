/* test_optimizer_state.c - an optimizer's state by name: values from fri_optimizer_each_state, restored by
 * fri_optimizer_set_state, continue with equal bits; partial, refused and missing states. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/optim.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "optim/optimizer.h"

enum { WIDTH = 64, MOST = 32, BEFORE = 3, AFTER = 2 };

/* 64 x 64 weights (8-bit moments under adam8) and biases (f32 moments). */
static fr_module *chain(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, WIDTH});
    for (int i = 0; i < 2; i++) x = fr_net_linear(n, NULL, x, WIDTH, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static void train(fr_module *m, fr_optimizer *o, int first, int steps) {
    for (int i = first; i < first + steps; i++) {
        fr_tensor *x = NULL;
        fr_seed(100 + (uint64_t)i);
        must(fr_tensor_uniform(2, (int64_t[]){8, WIDTH}, -1, 1, FR_F32, test_device(), &x));
        must(fr_module_forward(m, x, &x));
        must(fr_mul(x, x, &x));
        must(fr_mean(x, &x));
        must(fr_backward(x, NULL));
        fr_tensor_release(&x);
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
    }
}

typedef fr_status make_fn(fr_module *m, fr_optimizer **o);

static fr_status sgd(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.05), o);
}
static fr_status momentum(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9), o);
}
static fr_status rmsprop(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 1e-3, .momentum = 0.9, .centered = true), o);
}
static fr_status adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, NULL, o);
}
static fr_status adamw(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, NULL, o);
}
static fr_status adam8(fr_module *m, fr_optimizer **o) {
    return fr_adam8(m, NULL, o);
}

static const struct {
    const char *name;
    make_fn *make;
    int tensors; /* of the four parameters together */
    const char *first;
} kinds[] = {{"sgd", sgd, 0, NULL},
             {"momentum", momentum, 4, "0.weight.momentum_buffer"},
             {"rmsprop", rmsprop, 12, "0.weight.square_avg"},
             {"adam", adam, 8, "0.weight.exp_avg"},
             {"adamw", adamw, 8, "0.weight.exp_avg"},
             {"adam8", adam8, 12, "0.weight.exp_avg"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- a state on the host -------------------------------------------------------------------------------------- */

struct saved {
    int n, asked;
    char name[MOST][64];
    fr_dtype dtype[MOST];
    size_t bytes[MOST];
    void *data[MOST];
    const char *missing; /* restore returns FR_END for this name */
    int fail_at;         /* restore fails at this call, counted from 1; 0: never */
};

static fr_status save(void *ctx, const char *name, fr_tensor *t) {
    struct saved *s = ctx;
    cr_assert_lt(s->n, MOST);
    cr_assert_lt(strlen(name), sizeof s->name[0]);
    memcpy(s->name[s->n], name, strlen(name) + 1);
    s->dtype[s->n] = fr_tensor_dtype(t);
    s->bytes[s->n] = fr_tensor_nbytes(t);
    s->data[s->n] = malloc(s->bytes[s->n]);
    must(fr_tensor_to_host(t, s->data[s->n++]));
    return FR_OK;
}

static fr_status restore(void *ctx, const char *name, fr_tensor *t) {
    struct saved *s = ctx;
    const char *last = strrchr(name, '.');
    if (last != NULL && strcmp(last, ".step") == 0) return FR_END; /* all parameters made all steps */
    if (++s->asked == s->fail_at) return FR_EIO;
    if (s->missing != NULL && strcmp(name, s->missing) == 0) return FR_END;
    for (int i = 0; i < s->n; i++) {
        if (strcmp(name, s->name[i]) != 0) continue;
        cr_expect_eq(fr_tensor_dtype(t), s->dtype[i], "%s", name);
        cr_assert_eq(fr_tensor_nbytes(t), s->bytes[i], "%s", name);
        host_to(t, s->data[i]);
        return FR_OK;
    }
    cr_assert(false, "asked for %s, which was never saved", name);
    return FR_EIO;
}

static void forget(struct saved *s) {
    for (int i = 0; i < s->n; i++) free(s->data[i]);
    *s = (struct saved){0};
}

static fr_status save_module(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return save(ctx, path, t);
}

static fr_status restore_module(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return restore(ctx, path, t);
}

static void expect_same(const struct saved *a, const struct saved *b, const char *what) {
    cr_assert_eq(a->n, b->n, "%s: %d tensors, not %d", what, b->n, a->n);
    for (int i = 0; i < a->n; i++) {
        cr_expect_str_eq(a->name[i], b->name[i], "%s", what);
        cr_assert_eq(a->bytes[i], b->bytes[i], "%s", what);
        cr_expect_eq(memcmp(a->data[i], b->data[i], a->bytes[i]), 0, "%s: %s differs", what, a->name[i]);
    }
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

/* Training goes on in another optimizer over another module as if nothing had happened. */
Test(optimizer_state, moves_to_another_optimizer) {
    for (int k = 0; k < KINDS; k++) {
        struct saved state = {0}, weights = {0}, a = {0}, b = {0};
        fr_module *m = chain(), *other = chain();
        fr_optimizer *o = NULL, *next = NULL;
        must(kinds[k].make(m, &o));
        must(fri_optimizer_each_state(o, save, &state));
        cr_expect_eq(state.n, 0, "%s has state before its first step", kinds[k].name);
        train(m, o, 0, BEFORE);
        must(fri_optimizer_each_state(o, save, &state));
        must(fr_module_each_tensor(m, save_module, &weights));
        cr_assert_eq(state.n, kinds[k].tensors, "%s shows %d tensors", kinds[k].name, state.n);
        if (state.n > 0) cr_expect_str_eq(state.name[0], kinds[k].first);

        must(kinds[k].make(other, &next));
        train(other, next, 7, 1); /* the previous state is replaced */
        must(fr_module_each_tensor(other, restore_module, &weights));
        must(fri_optimizer_set_state(next, fr_optimizer_steps(o), restore, &state));
        cr_expect_eq(state.asked, kinds[k].tensors);
        cr_expect_eq(fr_optimizer_steps(next), BEFORE);
        train(m, o, BEFORE, AFTER);
        train(other, next, BEFORE, AFTER);
        must(fr_module_each_tensor(m, save_module, &a));
        must(fri_optimizer_each_state(o, save, &a));
        must(fr_module_each_tensor(other, save_module, &b));
        must(fri_optimizer_each_state(next, save, &b));
        expect_same(&a, &b, kinds[k].name);
        forget(&state);
        forget(&weights);
        forget(&a);
        forget(&b);
        fr_optimizer_release(&o);
        fr_optimizer_release(&next);
        fr_module_release(&m);
        fr_module_release(&other);
    }
    expect_nothing_left();
}

/* A failure at any call, or a refusal, leaves state and count unchanged and leaks nothing. */
Test(optimizer_state, a_failed_restore_changes_nothing) {
    for (int k = 1; k < KINDS; k++) {
        struct saved state = {0}, after = {0};
        fr_memory_stats before, now;
        fr_module *m = chain();
        fr_optimizer *o = NULL;
        must(kinds[k].make(m, &o));
        train(m, o, 0, BEFORE);
        must(fri_optimizer_each_state(o, save, &state));
        must(fr_memory_stats_get(test_device(), &before));
        for (int at = 1; at <= kinds[k].tensors; at++) {
            state.asked = 0;
            state.fail_at = at;
            cr_expect_eq(fri_optimizer_set_state(o, 99, restore, &state), FR_EIO);
            cr_expect_eq(fr_optimizer_steps(o), BEFORE);
        }
        expect_refused(fri_optimizer_set_state(o, -1, restore, &state), FR_EINVAL, "-1 steps", "at least 0", NULL);
        must(fri_optimizer_each_state(o, save, &after));
        expect_same(&state, &after, kinds[k].name);
        must(fr_memory_stats_get(test_device(), &now));
        cr_expect_eq(now.requested, before.requested, "%s: %zu bytes, %zu before", kinds[k].name, now.requested,
                     before.requested);
        forget(&state);
        forget(&after);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* A tensor that did not exist is not created before a step needs it. */
Test(optimizer_state, what_did_not_exist_stays_away) {
    struct saved state = {.missing = "1.bias.momentum_buffer"}, after = {0};
    fr_module *m = chain();
    fr_optimizer *o = NULL;
    must(momentum(m, &o));
    train(m, o, 0, 1);
    must(fri_optimizer_each_state(o, save, &state));
    must(fri_optimizer_set_state(o, 0, restore, &state));
    cr_expect_eq(fr_optimizer_steps(o), 0);
    must(fri_optimizer_each_state(o, save, &after));
    cr_expect_eq(after.n, state.n - 1);
    for (int i = 0; i < after.n; i++) cr_expect_str_neq(after.name[i], state.missing);
    forget(&after);
    train(m, o, 1, 1);
    must(fri_optimizer_each_state(o, save, &after));
    cr_expect_eq(after.n, state.n);
    forget(&state);
    forget(&after);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}
