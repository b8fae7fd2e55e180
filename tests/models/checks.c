/* checks.c - see checks.h. */
#include "models/checks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

/* ---- names --------------------------------------------------------------------------------------------------- */

struct wanted_names {
    const char *const *names;
    int next, count;
};

static fr_status next_name(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct wanted_names *w = ctx;
    (void)t;
    (void)is_parameter;
    if (w->next < w->count && strcmp(path, w->names[w->next]) == 0) w->next++;
    return FR_OK;
}

void expect_names(model_fn *make, int depth, const fr_model_opts *o, const char *const *names, int count) {
    fr_module *m = NULL;
    struct wanted_names w = {names, 0, count};
    must(make(depth, o, &m));
    must(fr_module_each_tensor(m, next_name, &w));
    cr_expect_eq(w.next, count, "'%s' is missing, or not in this order", w.next < count ? names[w.next] : "");
    fr_module_release(&m);
}

/* ---- widths -------------------------------------------------------------------------------------------------- */

typedef struct shapes {
    int64_t dim[1024][FR_MAX_RANK];
    int rank[1024], n;
} shapes;

static fr_status note_shape(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    shapes *s = ctx;
    (void)path;
    (void)is_parameter;
    cr_assert_lt(s->n, 1024);
    s->rank[s->n] = fr_tensor_rank(t);
    for (int i = 0; i < fr_tensor_rank(t); i++) s->dim[s->n][i] = fr_tensor_dim(t, i);
    s->n++;
    return FR_OK;
}

static void shapes_of(const char *name, double width, shapes *s) {
    fr_module *m = NULL;
    must(fr_model(name, FR_MODEL_OPTS(.classes = 7, .image_size = 64, .width = width, .device = FR_META), &m));
    s->n = 0;
    must(fr_module_each_tensor(m, note_shape, s));
    fr_module_release(&m);
}

void expect_doubled(const char *name) {
    static shapes one, two;
    shapes_of(name, 1, &one);
    shapes_of(name, 2, &two);
    cr_assert_eq(one.n, two.n, "%s", name);
    for (int k = 0; k < one.n; k++)
        for (int d = 0; d < one.rank[k]; d++) {
            const bool side = one.rank[k] == 4 && (d == 1 || d == 2);
            const int64_t was = one.dim[k][d], want = side || was % 2 == 1 ? was : 2 * was;
            cr_expect_eq(two.dim[k][d], want, "%s: tensor %d has dim[%d] = %d, was %d", name, k, d, (int)two.dim[k][d],
                         (int)was);
        }
}

/* ---- initial values ------------------------------------------------------------------------------------------ */

struct check {
    struct wanted *rows;
    int n;
};

/* Mean and standard deviation within 6 standard errors. */
static fr_status check_moments(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct check *c = ctx;
    (void)is_parameter;
    for (int k = 0; k < c->n; k++) {
        struct wanted *w = &c->rows[k];
        if (strcmp(w->path, path) != 0) continue;
        double *v = values_of(t), mean = 0, square = 0, n = (double)fr_tensor_numel(t);
        for (int64_t i = 0; i < fr_tensor_numel(t); i++) mean += v[i] / n;
        for (int64_t i = 0; i < fr_tensor_numel(t); i++) square += (v[i] - mean) * (v[i] - mean) / n;
        cr_expect(fabs(mean - w->mean) <= 6 * w->std / sqrt(n), "%s: mean %g, expected %g", path, mean, w->mean);
        cr_expect(fabs(sqrt(square) - w->std) <= 6 * w->std / sqrt(2 * n), "%s: std %g, expected %g", path,
                  sqrt(square), w->std);
        w->seen = true;
        free(v);
    }
    return FR_OK;
}

void expect_initial(model_fn *make, int depth, const fr_model_opts *o, struct wanted *rows, int n) {
    fr_module *m = NULL;
    struct check c = {rows, n};
    fr_seed(41);
    must(make(depth, o, &m));
    must(fr_module_each_tensor(m, check_moments, &c));
    for (int i = 0; i < n; i++) cr_expect(rows[i].seen, "there is no %s", rows[i].path);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- shapes -------------------------------------------------------------------------------------------------- */

/* The side of what a layer makes of images of that size. */
int64_t side_at(fr_module *m, const char *layer, int64_t size) {
    fr_tensor *x = NULL, *y[2] = {NULL};
    must(fr_module_tap(m, layer));
    must(fr_tensor_empty(4, (int64_t[]){1, size, size, 3}, FR_F32, FR_META, &x));
    must(fr_module_forward_n(m, &x, 1, y, 2));
    const int64_t side = fr_tensor_dim(y[1], 1);
    for (int i = 0; i < 2; i++) fr_tensor_release(&y[i]);
    fr_tensor_release(&x);
    return side;
}

bool same_tree(fr_module *a, fr_module *b) {
    if (strcmp(fr_module_class_of(a)->name, fr_module_class_of(b)->name) != 0 ||
        fr_module_layers(a) != fr_module_layers(b))
        return false;
    for (int i = 0; i < fr_module_layers(a); i++) {
        fr_layer x, y;
        must(fr_module_layer_get(a, i, &x));
        must(fr_module_layer_get(b, i, &y));
        if (strcmp(x.name, y.name) != 0 ||
            strcmp(fr_module_class_of(x.module)->name, fr_module_class_of(y.module)->name) != 0 ||
            fr_module_parameter_count(x.module) != fr_module_parameter_count(y.module))
            return false;
    }
    return true;
}
