/* freeze.c - freezes parameters: no gradients, and batch norms use their running values. */
#include "net/list.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512, NEAR = 3 };

/* ---- one parameter, one tree --------------------------------------------------------------------------------- */

/* Refuses while a graph leads to the leaf: a later backward would give a frozen leaf a gradient. */
static fr_status check_tensor(const fr_tensor *t, const char *name) {
    const fri_leaf *l = fri_leaf_of(t);
    if (l == NULL || l->references <= 1) return FR_OK;
    return fr_fail(
        FR_EUSAGE,
        "freeze: a graph is alive that leads to '%s'; freeze before the forward pass or after the backward pass", name);
}

static void freeze_tensor(fr_tensor *t, bool on) {
    if (on && fr_tensor_get_grad(t) != NULL) (void)fr_tensor_set_grad(t, NULL);
    (void)fr_tensor_set_requires_grad(t, !on); /* cannot fail: the leaf exists since the parameter was created */
}

static fr_status check_below(const fr_module *m) {
    for (int i = 0; i < m->n_tensors; i++) {
        FRI_TRY(m->tensors[i].is_parameter ? check_tensor(m->tensors[i].tensor, m->tensors[i].name) : FR_OK);
    }
    for (int i = 0; i < m->n_children; i++) {
        FRI_TRY(check_below(m->children[i]));
    }
    return FR_OK;
}

static void freeze_below(fr_module *m, bool on) {
    m->frozen = on;
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].is_parameter) freeze_tensor(m->tensors[i].tensor, on);
    for (int i = 0; i < m->n_children; i++) freeze_below(m->children[i], on);
}

/* ---- unknown prefixes -------------------------------------------------------------------------------------- */

typedef struct nearest {
    const char *wanted;
    int n, distance[NEAR];
    char path[NEAR][PATH_BYTES];
} nearest;

static void consider_name(nearest *c, const char *path) {
    const int d = fr_text_distance(c->wanted, path);
    int at = c->n;
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->path[i], path) == 0) return;
    while (at > 0 && c->distance[at - 1] > d) at--;
    if (at == NEAR) return;
    if (c->n < NEAR) c->n++;
    memmove(c->path[at + 1], c->path[at], (size_t)(c->n - at - 1) * PATH_BYTES);
    memmove(&c->distance[at + 1], &c->distance[at], (size_t)(c->n - at - 1) * sizeof *c->distance);
    snprintf(c->path[at], PATH_BYTES, "%s", path);
    c->distance[at] = d;
}

/* Considers the path and all its prefixes. */
static fr_status consider_paths(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    char part[PATH_BYTES];
    (void)t;
    if (!is_parameter) return FR_OK;
    snprintf(part, sizeof part, "%s", path);
    for (char *end = part; end != NULL;) {
        consider_name(ctx, part);
        end = strrchr(part, '.');
        if (end != NULL) *end = '\0';
    }
    return FR_OK;
}

static fr_status fail_unknown(fr_module *m, const char *prefix) {
    nearest *c = calloc(1, sizeof *c);
    char names[NEAR * 80] = "";
    if (c == NULL) return fr_fail(FR_ENOMEM, "freeze: out of host memory");
    c->wanted = prefix;
    fr_status s = fr_module_each_tensor(m, consider_paths, c);
    for (int i = 0, at = 0; i < c->n; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%.64s", i > 0 ? ", " : "", c->path[i]);
    free(c);
    return s < 0 ? s
                 : fr_fail(FR_EINVAL, "freeze: no layer or parameter is called '%.200s'; near it: %s", prefix, names);
}

/* ---- public ------------------------------------------------------------------------------------------------ */

/* Parameter at the path, or NULL. */
static fr_tensor *parameter_at(fr_module *m, char *path) {
    char *dot = strrchr(path, '.');
    const char *name = dot != NULL ? dot + 1 : path;
    if (dot != NULL) {
        *dot = '\0';
        m = fr_module_find(m, path);
        *dot = '.';
    }
    for (int i = 0; m != NULL && i < m->n_tensors; i++)
        if (m->tensors[i].is_parameter && strcmp(m->tensors[i].name, name) == 0) return m->tensors[i].tensor;
    return NULL;
}

fr_status fr_module_freeze(fr_module *m, const char *prefix, bool on) {
    FRI_NOT_NULL(m);
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s", prefix != NULL ? prefix : "");
    if (n > 0 && n < PATH_BYTES && path[n - 1] == '.') path[n - 1] = '\0';
    fr_module *whole = path[0] != '\0' ? fr_module_find(m, path) : m;
    fr_tensor *single = whole == NULL ? parameter_at(m, path) : NULL;
    if (n >= PATH_BYTES || (whole == NULL && single == NULL)) return fail_unknown(m, path);
    if (on) FRI_TRY(whole != NULL ? check_below(whole) : check_tensor(single, path));
    if (whole != NULL)
        freeze_below(whole, on);
    else
        freeze_tensor(single, on);
    return FR_OK;
}

static fr_status count_trained(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (is_parameter && t->requires_grad) *(int64_t *)ctx += fri_numel(t);
    return FR_OK;
}

int64_t fr_module_trained_count(fr_module *m) {
    if (m == NULL) return 0;
    int64_t n = 0;
    (void)fr_module_each_tensor(m, count_trained, &n);
    return n;
}
