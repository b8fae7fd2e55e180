/* test_step_counts.c - Adam counts the steps of each parameter, as torch.optim does: late gradients, counts in
 * training states, overflowing steps, and steps of a fused optimizer. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optimizer.h"
#include "support/golden.h"

enum { N = 4096, LATE = 100 }; /* elements: from 4096 on adam8 keeps 8 bits */

static fr_status no_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    (void)x;
    return FR_OK;
}
static const fr_module_class pair_class = {.name = "Pair", .forward = no_forward};

/* Two parameters of ones, "early" and "late". */
static fr_module *pair(void) {
    static const char *const names[] = {"early", "late"};
    fr_module *m = NULL;
    fr_tensor *w = NULL;
    must(fr_module_create(&pair_class, 0, &m));
    for (int i = 0; i < 2; i++) {
        must(fr_tensor_full(1, (int64_t[]){N}, 1, FR_F32, test_device(), &w));
        must(fr_module_add_parameter(m, names[i], &w));
    }
    return m;
}

static void set_gradient(fr_module *m, const char *name, double value) {
    fr_tensor *g = NULL;
    must(fr_tensor_full(1, (int64_t[]){N}, value, FR_F32, test_device(), &g));
    must(fr_tensor_set_grad(fr_module_tensor(m, name), g));
    fr_tensor_release(&g);
}

static double first_element(fr_module *m, const char *name) {
    float w[N];
    must(fr_tensor_to_host(fr_module_tensor(m, name), w));
    return (double)w[0];
}

typedef fr_status make_fn(fr_module *m, fr_optimizer **o);

static fr_status adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, NULL, o);
}
static fr_status adamw(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, NULL, o);
}
static fr_status adam8(fr_module *m, fr_optimizer **o) {
    return fr_adam8(m, NULL, o);
}
static make_fn *const kinds[] = {adam, adamw, adam8};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Steps first .. first + count - 1: "early" has a gradient in each, "late" from step `from` on. */
static void train(fr_module *m, fr_optimizer *o, int first, int count, int from) {
    for (int t = first; t < first + count; t++) {
        set_gradient(m, "early", 0.5 + 0.01 * t);
        if (t >= from) set_gradient(m, "late", 0.25 + 0.02 * (t - from));
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
    }
}

/* Late parameters take a first step of length lr, as in a new optimizer: 0.001, not the 0.013 of a 101st step. */
Test(step_counts, a_late_gradient_makes_a_first_step) {
    for (int k = 0; k < KINDS; k++) {
        fr_module *m = pair(), *alone = pair();
        fr_optimizer *o = NULL, *fresh = NULL;
        must(kinds[k](m, &o));
        train(m, o, 0, LATE, LATE);
        cr_expect_eq(first_element(m, "late"), 1.0);
        train(m, o, LATE, 1, LATE);
        const double moved = 1 - first_element(m, "late"), decay = k == 1 ? 1e-5 : 0;
        cr_expect(fabs(moved - decay - 1e-3) < 1e-6, "%s: the first step is %.6g long", fr_optimizer_name(o), moved);
        train(m, o, LATE + 1, 5, LATE);
        must(kinds[k](alone, &fresh));
        train(alone, fresh, 0, 6, 0);
        cr_expect_eq(first_element(m, "late"), first_element(alone, "late"), "%s: other bits than a fresh optimizer's",
                     fr_optimizer_name(o));
        cr_expect_eq(fr_optimizer_steps(o), LATE + 6);
        fr_optimizer_release(&o);
        fr_optimizer_release(&fresh);
        fr_module_release(&m);
        fr_module_release(&alone);
    }
    expect_nothing_left();
}

/* ---- training states ------------------------------------------------------------------------------------------- */

struct saved {
    int n, asked;
    char name[16][32];
    char data[16][N * sizeof(float)];
    bool old; /* as states were written before parameters counted: answers FR_END for ".step" */
};

static fr_status save(void *ctx, const char *name, fr_tensor *t) {
    struct saved *s = ctx;
    cr_assert_lt(s->n, 16);
    snprintf(s->name[s->n], sizeof s->name[0], "%s", name);
    must(fr_tensor_to_host(t, s->data[s->n++]));
    return FR_OK;
}

static fr_status restore(void *ctx, const char *name, fr_tensor *t) {
    struct saved *s = ctx;
    const char *last = strrchr(name, '.');
    const bool step = last != NULL && strcmp(last, ".step") == 0;
    s->asked += step;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0 && !(step && s->old)) {
            host_to(t, s->data[i]);
            return FR_OK;
        }
    return FR_END;
}

static const char *const moments = "late.exp_avg";

static bool holds(const struct saved *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0) return true;
    return false;
}

static fr_status restore_weights(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return restore(ctx, path, t);
}

static fr_status save_weights(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return save(ctx, path, t);
}

/* A count equal to the optimizer's is not saved, a different count is, and training continues with equal bits. */
Test(step_counts, move_with_the_state) {
    for (int k = 0; k < KINDS; k++) {
        static struct saved state, weights;
        fr_module *m = pair(), *other = pair();
        fr_optimizer *o = NULL, *next = NULL;
        state = weights = (struct saved){0};
        must(kinds[k](m, &o));
        train(m, o, 0, 7, 4);
        must(fri_optimizer_each_state(o, save, &state));
        must(fr_module_each_tensor(m, save_weights, &weights));
        cr_expect(!holds(&state, "early.step"));
        cr_expect(holds(&state, "late.step"));
        must(kinds[k](other, &next));
        train(other, next, 0, 2, 0); /* the previous state is replaced */
        must(fr_module_each_tensor(other, restore_weights, &weights));
        must(fri_optimizer_set_state(next, 7, restore, &state));
        cr_expect_eq(state.asked, 2);
        train(m, o, 7, 3, 4);
        train(other, next, 7, 3, 4);
        cr_expect_eq(first_element(m, "early"), first_element(other, "early"));
        cr_expect_eq(first_element(m, "late"), first_element(other, "late"), "%s: 'late' goes on with other bits",
                     fr_optimizer_name(o));
        fr_optimizer_release(&o);
        fr_optimizer_release(&next);
        fr_module_release(&m);
        fr_module_release(&other);
    }
    expect_nothing_left();
}

/* Old states hold a single count for all parameters with a state; parameters without a state start at 0. */
Test(step_counts, an_old_state_has_one_count) {
    static struct saved state;
    fr_module *m = pair(), *uniform = pair(), *other = pair();
    fr_optimizer *o = NULL, *same = NULL, *next = NULL;
    must(adam(m, &o));
    train(m, o, 0, 5, 5); /* "late" has no state */
    state.old = true;
    must(fri_optimizer_each_state(o, save, &state));
    cr_expect(!holds(&state, moments));
    must(adam(other, &next));
    must(fri_optimizer_set_state(next, 5, restore, &state));
    train(other, next, 5, 1, 5);
    cr_expect(fabs(1 - first_element(other, "late") - 1e-3) < 1e-6);

    state = (struct saved){.old = true};
    must(adam(uniform, &same));
    train(uniform, same, 0, 5, 0);
    must(fri_optimizer_each_state(same, save, &state));
    must(fri_optimizer_set_state(next, 5, restore, &state));
    must(fr_tensor_fill(fr_module_tensor(other, "late"), first_element(uniform, "late")));
    train(other, next, 5, 2, 0);
    train(uniform, same, 5, 2, 0);
    cr_expect_eq(first_element(other, "late"), first_element(uniform, "late"));
    fr_optimizer_release(&o);
    fr_optimizer_release(&same);
    fr_optimizer_release(&next);
    fr_module_release(&m);
    fr_module_release(&uniform);
    fr_module_release(&other);
    expect_nothing_left();
}

Test(step_counts, a_count_above_the_optimizers_is_refused) {
    static const float wrong[] = {8, -1, 2.5f, NAN};
    static struct saved state;
    fr_module *m = pair();
    fr_optimizer *o = NULL;
    must(adam(m, &o));
    train(m, o, 0, 7, 4);
    must(fri_optimizer_each_state(o, save, &state));
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < state.n; i++)
            if (strcmp(state.name[i], "late.step") == 0) memcpy(state.data[i], &wrong[k], sizeof wrong[k]);
        expect_refused(fri_optimizer_set_state(o, 7, restore, &state), FR_EINVAL, "late.step", "0..7", NULL);
        cr_expect_eq(fr_optimizer_steps(o), 7);
    }
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- overflowing steps --------------------------------------------------------------------------------------- */

/* A skipped step counts for no parameter, and one that is skipped first hides no state from a training state. */
Test(step_counts, a_skipped_step_counts_for_nobody) {
    for (int k = 0; k < KINDS; k++) {
        static struct saved state;
        fr_module *m = pair(), *clean = pair();
        fr_optimizer *o = NULL, *other = NULL;
        fr_grad_scaler *g = NULL;
        state = (struct saved){0};
        must(kinds[k](m, &o));
        must(kinds[k](clean, &other));
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1, .dynamic = false), test_device(), &g));
        for (int t = 0; t < 6; t++) {
            const bool overflow = t % 3 == 0;
            set_gradient(m, "early", overflow ? INFINITY : 0.5);
            if (t >= 2) set_gradient(m, "late", 0.25);
            must(fr_grad_scaler_step(g, o));
            must(fr_grad_scaler_update(g, NULL));
            fr_optimizer_zero_grad(o);
            if (overflow) continue;
            set_gradient(clean, "early", 0.5);
            if (t >= 2) set_gradient(clean, "late", 0.25);
            must(fr_optimizer_step(other));
            fr_optimizer_zero_grad(other);
        }
        cr_expect_eq(fr_optimizer_steps(o), 4);
        cr_expect_eq(first_element(m, "early"), first_element(clean, "early"));
        cr_expect_eq(first_element(m, "late"), first_element(clean, "late"));
        must(fri_optimizer_each_state(o, save, &state));
        cr_expect(holds(&state, "early.exp_avg") && holds(&state, moments) && holds(&state, "late.step"),
                  "%s: state is missing after a first step that was skipped", fr_optimizer_name(o));
        fr_grad_scaler_release(&g);
        fr_optimizer_release(&o);
        fr_optimizer_release(&other);
        fr_module_release(&m);
        fr_module_release(&clean);
    }
    expect_nothing_left();
}

/* Counts obey the device's decision whether a step takes place. */
Test(step_counts, obey_what_the_device_found) {
    for (int k = 0; k < KINDS; k++) {
        fr_module *m = pair(), *clean = pair();
        fr_optimizer *o = NULL, *other = NULL;
        fr_tensor *found = NULL;
        must(kinds[k](m, &o));
        must(kinds[k](clean, &other));
        must(fr_tensor_zeros(0, NULL, FR_F32, test_device(), &found));
        for (int t = 0; t < 6; t++) {
            must(fr_tensor_fill(found, t % 2 == 0 ? 1 : 0));
            set_gradient(m, "early", 0.5);
            must(fri_optimizer_step(o, NULL, found));
            if (t % 2 == 0) continue;
            set_gradient(clean, "early", 0.5);
            must(fr_optimizer_step(other));
        }
        cr_expect_eq(first_element(m, "early"), first_element(clean, "early"), "%s", fr_optimizer_name(o));
        cr_expect_eq(fr_optimizer_steps(o), 3);
        fr_tensor_release(&found);
        fr_optimizer_release(&o);
        fr_optimizer_release(&other);
        fr_module_release(&m);
        fr_module_release(&clean);
    }
    expect_nothing_left();
}

/* ---- the fused step --------------------------------------------------------------------------------------------- */

/* loss = sum of the parameters' products with themselves. */
static fr_status backward(fr_module *m, bool late) {
    static const char *const names[] = {"early", "late"};
    for (int i = 0; i < (late ? 2 : 1); i++) {
        fr_tensor *y = NULL, *w = fr_module_tensor(m, names[i]);
        must(fr_mul(w, w, &y));
        must(fr_mean(y, &y));
        fr_status s = fr_backward(y, NULL);
        fr_tensor_release(&y);
        if (s < 0) return s;
    }
    return FR_OK;
}

/* The start of a fused step is implicit: each step scope is a step, for the optimizer and for each parameter. */
Test(step_counts, a_fused_step_begins_by_itself) {
    for (int k = 0; k < KINDS; k++) {
        double w[2][2];
        for (int fused = 0; fused < 2; fused++) {
            fr_module *m = pair();
            fr_optimizer *o = NULL;
            must(kinds[k](m, &o));
            must(fr_optimizer_fuse(o, fused));
            for (int t = 0; t < 5; t++) {
                fr_step_scope scope;
                must(fr_step_begin(&scope));
                must(backward(m, t >= 3));
                must(fr_optimizer_step(o));
                fr_optimizer_zero_grad(o);
                must(fr_step_end(&scope));
            }
            cr_expect_eq(fr_optimizer_steps(o), 5);
            w[fused][0] = first_element(m, "early");
            w[fused][1] = first_element(m, "late");
            fr_optimizer_release(&o);
            fr_module_release(&m);
        }
        cr_expect_eq(memcmp(w[0], w[1], sizeof w[0]), 0, "kind %d: %.9g %.9g, fused %.9g %.9g", k, w[0][0], w[0][1],
                     w[1][0], w[1][1]);
    }
    expect_nothing_left();
}

Test(step_counts, a_fused_step_without_a_step_scope_is_refused) {
    fr_module *m = pair();
    fr_optimizer *o = NULL;
    fr_step_scope scope;
    must(adam(m, &o));
    must(fr_optimizer_fuse(o, true));
    expect_refused(backward(m, true), FR_EUSAGE, "fr_step_begin", "adam", NULL);
    cr_expect_eq(first_element(m, "early"), 1.0);
    fr_optimizer_zero_grad(o);
    must(fr_step_begin(&scope));
    must(backward(m, true));
    must(fr_step_end(&scope));
    expect_refused(backward(m, true), FR_EUSAGE, "fr_step_begin", "adam", NULL);
    cr_expect_eq(fr_optimizer_steps(o), 1);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}
