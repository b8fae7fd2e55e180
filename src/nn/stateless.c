/* stateless.c - layers without parameters: each is a call to its op. */
#include "nn/module.h"

#include <math.h>
#include <stdio.h>

/* Makes the module and copies its options. */
static fr_status make(const fr_module_class *class_, const void *state, size_t bytes, fr_module **m) {
    fr_module *c = NULL;
    fr_status s = fr_module_create(class_, bytes, &c);
    if (s < 0) return s;
    if (bytes > 0) __builtin_memcpy(c->state, state, bytes);
    fr_module_release(m);
    *m = c;
    return FR_OK;
}

/* ---- activations ------------------------------------------------------------------------------------------- */

static fr_status relu_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    return fr_relu(*x, x);
}
static const fr_module_class relu_class = {.name = "ReLU", .forward = relu_forward};

fr_status fr_nn_relu(fr_module **m) {
    FRI_NOT_NULL(m);
    return make(&relu_class, NULL, 0, m);
}

static fr_status leaky_relu_forward(fr_module *m, fr_tensor **x) {
    return fr_leaky_relu(*x, *(double *)m->state, x);
}
static const fr_module_class leaky_relu_class = {.name = "LeakyReLU", .forward = leaky_relu_forward};

fr_status fr_nn_leaky_relu(double slope, fr_module **m) {
    FRI_NOT_NULL(m);
    if (!(slope >= 0) || !isfinite(slope))
        return fri_fail(FR_EINVAL, "LeakyReLU: slope %g must be >= 0 and finite", slope);
    return make(&leaky_relu_class, &slope, sizeof slope, m);
}

/* ---- pooling ----------------------------------------------------------------------------------------------- */

typedef struct pool_state {
    int64_t kernel;
    fr_pool2d_opts opts;
} pool_state;

static fr_status maxpool2d_forward(fr_module *m, fr_tensor **x) {
    const pool_state *p = m->state;
    return fr_maxpool2d(*x, p->kernel, &p->opts, x);
}
static const fr_module_class maxpool2d_class = {.name = "MaxPool2d", .forward = maxpool2d_forward};

fr_status fr_nn_maxpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    pool_state p = {kernel, opts != NULL ? *opts : *FR_POOL2D_OPTS()};
    return make(&maxpool2d_class, &p, sizeof p, m);
}

static fr_status avgpool2d_forward(fr_module *m, fr_tensor **x) {
    const pool_state *p = m->state;
    return fr_avgpool2d(*x, p->kernel, &p->opts, x);
}
static const fr_module_class avgpool2d_class = {.name = "AvgPool2d", .forward = avgpool2d_forward};

fr_status fr_nn_avgpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    pool_state p = {kernel, opts != NULL ? *opts : *FR_POOL2D_OPTS()};
    return make(&avgpool2d_class, &p, sizeof p, m);
}

static fr_status adaptive_forward(fr_module *m, fr_tensor **x) {
    const int64_t *size = m->state;
    return fr_adaptive_avgpool2d(*x, size[0], size[1], x);
}
static const fr_module_class adaptive_class = {.name = "AdaptiveAvgPool2d", .forward = adaptive_forward};

fr_status fr_nn_adaptive_avgpool2d(int64_t p, int64_t q, fr_module **m) {
    FRI_NOT_NULL(m);
    int64_t size[2] = {p, q};
    return make(&adaptive_class, size, sizeof size, m);
}

/* ---- dropout ----------------------------------------------------------------------------------------------- */

static fr_status dropout_forward(fr_module *m, fr_tensor **x) {
    return fr_dropout(*x, *(double *)m->state, m->training, x);
}
static const fr_module_class dropout_class = {.name = "Dropout", .forward = dropout_forward};

static fr_status dropout2d_forward(fr_module *m, fr_tensor **x) {
    return fr_dropout2d(*x, *(double *)m->state, m->training, x);
}
static const fr_module_class dropout2d_class = {.name = "Dropout2d", .forward = dropout2d_forward};

static fr_status make_dropout(const fr_module_class *class_, double p, fr_module **m) {
    if (!(p >= 0 && p <= 1)) return fri_fail(FR_EINVAL, "%s: p is %g; it must lie in 0..1", class_->name, p);
    return make(class_, &p, sizeof p, m);
}

fr_status fr_nn_dropout(double p, fr_module **m) {
    FRI_NOT_NULL(m);
    return make_dropout(&dropout_class, p, m);
}

fr_status fr_nn_dropout2d(double p, fr_module **m) {
    FRI_NOT_NULL(m);
    return make_dropout(&dropout2d_class, p, m);
}

/* ---- shape ------------------------------------------------------------------------------------------------- */

static fr_status flatten_forward(fr_module *m, fr_tensor **x) {
    return fr_flatten(*x, *(int *)m->state, x);
}
static const fr_module_class flatten_class = {.name = "Flatten", .forward = flatten_forward};

fr_status fr_nn_flatten(int start_dim, fr_module **m) {
    FRI_NOT_NULL(m);
    return make(&flatten_class, &start_dim, sizeof start_dim, m);
}

typedef struct upsample_state {
    int64_t factor;
    fr_upsample_mode mode;
} upsample_state;

static fr_status upsample_forward(fr_module *m, fr_tensor **x) {
    const upsample_state *u = m->state;
    return fr_upsample(*x, fr_tensor_dim(*x, 1) * u->factor, fr_tensor_dim(*x, 2) * u->factor, u->mode, false, x);
}
static const fr_module_class upsample_class = {.name = "Upsample", .forward = upsample_forward};

fr_status fr_nn_upsample(int64_t factor, fr_upsample_mode mode, fr_module **m) {
    FRI_NOT_NULL(m);
    upsample_state u = {factor, mode};
    if (factor < 1 || factor > INT32_MAX)
        return fri_fail(FR_EINVAL, "Upsample: factor %lld must be >= 1 and below 2^31", (long long)factor);
    return make(&upsample_class, &u, sizeof u, m);
}

static fr_status identity_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    (void)x;
    return FR_OK;
}
static const fr_module_class identity_class = {.name = "Identity", .forward = identity_forward};

fr_status fr_nn_identity(fr_module **m) {
    FRI_NOT_NULL(m);
    return make(&identity_class, NULL, 0, m);
}

/* ---- chains ------------------------------------------------------------------------------------------------ */

bool fri_layer_is_relu(const fr_module *m) {
    return m->class_ == &relu_class;
}

static bool may_run_in_place(const fr_module *m) {
    return m->inplace_set ? m->inplace : fr_switches_get().inplace;
}

static const char *path_of(const char *name) {
    const char *was = fri_scope_module_push(name), *path = fri_scope_module();
    fri_scope_module_pop(was);
    return path;
}

fr_status fri_module_run_chain(fr_module *m, const fri_norm_tail *tail, fr_tensor **x) {
    fr_tensor *sums = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < m->n_children && s == FR_OK; i++) {
        fr_module *child = m->children[i], *next = i + 1 < m->n_children ? m->children[i + 1] : NULL;
        fri_layer_args args = {.next = next, .sums = &sums, .tail = next == NULL ? tail : NULL};
        const bool relu = next != NULL && fri_layer_is_relu(next) && fri_layer_takes_tail(child) &&
                          may_run_in_place(child) == may_run_in_place(next);
        fri_norm_tail rectified = {.relu = true};
        if (relu) {
            rectified.module = path_of(m->names[i + 1]);
            args.tail = &rectified;
        }
        s = fri_layer_run(child, m->names[i], &args, x);
        if (relu && s == FR_OK) fri_module_ran(next, m->names[++i], *x);
    }
    fr_tensor_release(&sums);
    return s;
}

fr_status fri_module_run_children(fr_module *m, fr_tensor **x) {
    return fri_module_run_chain(m, NULL, x);
}

static int sequential_units(fr_module *m, fr_module **out, int n) {
    for (int i = 0; i < m->n_children && i < n; i++) out[i] = m->children[i];
    return m->n_children;
}

static const fr_module_class sequential_class = {.name = "Sequential",
                                                 .forward = fri_module_run_children,
                                                 .units = sequential_units};

fr_status fr_nn_sequential(fr_module **m) {
    FRI_NOT_NULL(m);
    return make(&sequential_class, NULL, 0, m);
}

fr_status fr_nn_append(fr_module *sequential, fr_module **child) {
    char name[16];
    fr_status s = FRI_CHECK_NULL(sequential, child);
    if (s == FR_OK && sequential->class_ != &sequential_class)
        s = fri_fail(FR_EINVAL,
                     "append: the module is a %s; children of a Sequential only form a chain, add others with "
                     "fr_module_add_child",
                     sequential->class_->name);
    if (s < 0) {
        fr_module_release(child); /* taken also on failure */
        return s;
    }
    snprintf(name, sizeof name, "%d", sequential->n_children);
    return fr_module_add_child(sequential, name, child);
}
