/* module.c - the module tree: ownership, names, visiting, running. */
#include "net/module.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fr_status fr_module_create(const fr_module_class *class_, size_t state_bytes, fr_module **out) {
    FRI_NOT_NULL(class_, out);
    fr_module *m = calloc(1, sizeof *m);
    if (m == NULL) return fr_fail(FR_ENOMEM, "module %s: out of host memory", class_->name);
    m->references = 1;
    m->class_ = class_;
    m->training = true;
    if (state_bytes > 0 && (m->state = calloc(1, state_bytes)) == NULL) {
        free(m);
        return fr_fail(FR_ENOMEM, "module %s: out of host memory", class_->name);
    }
    fr_module *old = *out;
    *out = m;
    fr_module_release(&old);
    return FR_OK;
}

fr_module *fr_module_retain(fr_module *m) {
    if (m != NULL) m->references++;
    return m;
}

void fr_module_release(fr_module **p) {
    if (p == NULL) return;
    fr_module *m = *p;
    *p = NULL;
    if (m == NULL || --m->references > 0) return;
    for (int i = 0; i < m->n_children; i++) {
        fr_module_release(&m->children[i]);
        free(m->names[i]);
    }
    for (int i = 0; i < m->n_tensors; i++) {
        fr_tensor_release(&m->tensors[i].tensor);
        free(m->tensors[i].name);
    }
    if (m->class_->free_state != NULL && m->state != NULL) m->class_->free_state(m->state);
    free(m->state);
    free(m->children);
    free(m->names);
    free(m->tensors);
    free(m);
}

void *fr_module_state(fr_module *m) {
    return m != NULL ? m->state : NULL;
}

const fr_module_class *fr_module_class_of(const fr_module *m) {
    return m != NULL ? m->class_ : NULL;
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

static fr_status check_name(const fr_module *m, const char *name, const void *part) {
    if (part == NULL) return fr_fail(FR_EINVAL, "module %s: part '%s' is NULL", m->class_->name, name);
    if (name[0] == '\0' || strchr(name, '.') != NULL)
        return fr_fail(FR_EINVAL, "module %s: '%s' cannot be the name of a part", m->class_->name, name);
    for (int i = 0; i < m->n_children; i++)
        if (strcmp(m->names[i], name) == 0)
            return fr_fail(FR_EINVAL, "module %s: a child is called '%s' already", m->class_->name, name);
    for (int i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return fr_fail(FR_EINVAL, "module %s: a tensor is called '%s' already", m->class_->name, name);
    return FR_OK;
}

static fr_status no_memory(const fr_module *m) {
    return fr_fail(FR_ENOMEM, "module %s: out of host memory", m->class_->name);
}

/* True if `part` is m or below m. */
static bool is_inside(const fr_module *m, const fr_module *part) {
    if (m == part) return true;
    for (int i = 0; i < m->n_children; i++)
        if (is_inside(m->children[i], part)) return true;
    return false;
}

fr_status fr_module_add_child(fr_module *m, const char *name, fr_module **child) {
    fr_status s = FRI_CHECK_NULL(m, name, child);
    if (s == FR_OK) s = check_name(m, name, *child);
    if (s == FR_OK && is_inside(*child, m))
        s = fr_fail(FR_EINVAL, "module %s: the child '%s' (%s) is the module itself or contains it", m->class_->name,
                    name, (*child)->class_->name);
    char *copy = s == FR_OK ? strdup(name) : NULL;
    if (s == FR_OK && copy == NULL) s = no_memory(m);
    if (s == FR_OK) s = FRI_ROOM(m->children, m->n_children, m->class_->name);
    if (s == FR_OK) s = FRI_ROOM(m->names, m->n_children, m->class_->name);
    if (s < 0) {
        free(copy);
        fr_module_release(child);
        return s;
    }
    m->children[m->n_children] = *child;
    m->names[m->n_children++] = copy;
    *child = NULL;
    return FR_OK;
}

/* Adds a tensor. s: status of the caller's checks. */
static fr_status add_tensor(fr_status s, fr_module *m, const char *name, fr_tensor **t, bool is_parameter) {
    char *copy = s == FR_OK ? strdup(name) : NULL;
    if (s == FR_OK && copy == NULL) s = no_memory(m);
    if (s == FR_OK) s = FRI_ROOM(m->tensors, m->n_tensors, m->class_->name);
    if (s == FR_OK && is_parameter) s = fr_tensor_set_requires_grad(*t, true);
    if (s < 0) {
        free(copy);
        fr_tensor_release(t);
        return s;
    }
    fr_tensor_category_set(*t, FR_MEM_PARAMETER);
    m->tensors[m->n_tensors++] = (fri_named_tensor){copy, *t, is_parameter};
    *t = NULL;
    return FR_OK;
}

fr_status fr_module_add_parameter(fr_module *m, const char *name, fr_tensor **t) {
    fr_status s = FRI_CHECK_NULL(m, name, t);
    return add_tensor(s == FR_OK ? check_name(m, name, *t) : s, m, name, t, true);
}

fr_status fr_module_add_buffer(fr_module *m, const char *name, fr_tensor **t) {
    fr_status s = FRI_CHECK_NULL(m, name, t);
    return add_tensor(s == FR_OK ? check_name(m, name, *t) : s, m, name, t, false);
}

fr_status fri_module_add_own(fr_module *m, fr_tensor **t) {
    return add_tensor(FR_OK, m, "", t, true);
}

fr_module *fr_module_child(fr_module *m, int i) {
    if (m == NULL) return NULL;
    return i >= 0 && i < m->n_children ? m->children[i] : NULL;
}

fr_tensor *fr_module_tensor(fr_module *m, const char *name) {
    if (m == NULL || name == NULL) return NULL;
    for (int i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return m->tensors[i].tensor;
    return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------- */

/* True if the sentence already begins with this path or a longer one. */
static bool names_path(const char *sentence, const char *path) {
    size_t n = strlen(path);
    return strncmp(sentence, path, n) == 0 && (sentence[n] == '.' || strncmp(sentence + n, " (", 2) == 0);
}

fri_module_watch fri_module_watch_set(fri_module_watch w) {
    fri_module_watch was = fri_here.modules;
    fri_here.modules = w;
    return was;
}

static void switch_inplace(bool on) {
    fr_switches s = fr_switches_get();
    s.inplace = on;
    fr_switches_set(s);
}

/* Scope of one run of a module. */
typedef struct running {
    const char *was, *here;
    bool inplace;
} running;

static running run_begin(const fr_module *m, const char *name) {
    running r = {.was = name != NULL ? fri_scope_module_push(name) : fri_scope_module(),
                 .inplace = fr_switches_get().inplace};
    r.here = fri_scope_module();
    if (m->inplace_set) switch_inplace(m->inplace);
    return r;
}

/* The innermost module that fails puts its path into the error: a leaf, or a composite whose own op failed. */
static fr_status run_end(const fr_module *m, const running *r, fr_status s, const fr_tensor *x) {
    if (m->inplace_set) switch_inplace(r->inplace);
    if (s < 0 && s != FRI_STOP && r->here[0] != '\0' && !names_path(fr_last_error(), r->here))
        s = fr_fail_prefix(s, "%s (%s): ", r->here, m->class_->name);
    if (s == FR_OK && fri_here.modules.fn != NULL && x != NULL) fri_here.modules.fn(fri_here.modules.ctx, m, x);
    fri_scope_module_pop(r->was);
    return s;
}

fr_status fri_layer_run_n(fr_module *m, const char *name, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    const fr_module_class *c = m->class_;
    const running r = run_begin(m, name);
    fr_status s = FR_OK;
    if (c->run != NULL) {
        s = c->run(m, in, n_in, out, n_out);
    } else if (c->forward == NULL || n_in != 1 || n_out != 1) {
        s = fr_fail(FR_EINVAL, "%d inputs and %d results; %s", n_in, n_out,
                    c->forward != NULL ? "the layer has one of each" : "the layer's class has no forward function");
    } else {
        s = c->forward(m, in);
        if (s == FR_OK) FRI_MOVE(&out[0], in[0]);
    }
    for (int i = 0; i < n_out && s == FR_OK; i++)
        if (out[i] == NULL) s = fr_fail(FR_EINVAL, "the layer left result %d of %d NULL", i, n_out);
    return run_end(m, &r, s, n_out > 0 ? out[0] : NULL);
}

fr_status fri_layer_run(fr_module *m, const char *name, const fri_layer_args *args, fr_tensor **x) {
    const fri_layer_call *call = m->class_->fri_call;
    if (args == NULL || call == NULL || call->run == NULL) {
        fr_tensor *y = NULL;
        fr_status s = fri_layer_run_n(m, name, x, 1, &y, 1);
        if (s == FR_OK) fri_tensor_put(&y, x);
        fr_tensor_release(&y);
        return s;
    }
    const running r = run_begin(m, name);
    fr_status s = call->run(m, args, x);
    return run_end(m, &r, s, *x);
}

fr_status fri_module_run(fr_module *m, const char *name, fr_tensor **x) {
    return fri_layer_run(m, name, NULL, x);
}

void fri_module_ran(fr_module *m, const char *name, const fr_tensor *x) {
    if (fri_here.modules.fn == NULL) return;
    const char *was = fri_scope_module_push(name);
    fri_here.modules.fn(fri_here.modules.ctx, m, x);
    fri_scope_module_pop(was);
}

fr_status fr_module_run_child(fr_module *m, int i, fr_tensor **x) {
    FRI_NOT_NULL(m, x);
    return fri_module_run(m->children[i], m->names[i], x);
}

fr_status fr_module_forward_n(fr_module *m, fr_tensor *const *x, int n_in, fr_tensor **y, int n_out) {
    FRI_NOT_NULL(m, x, y);
    enum { MAX = 64 };
    fr_tensor *in[MAX], *out[MAX] = {NULL};
    if (n_in < 1 || n_in > MAX || n_out < 1 || n_out > MAX)
        return fr_fail(FR_EINVAL, "forward: %d inputs and %d results; 1..%d of each", n_in, n_out, MAX);
    for (int i = 0; i < n_in; i++) in[i] = fr_tensor_retain(x[i]);
    fr_status s = fri_layer_run_n(m, NULL, in, n_in, out, n_out);
    for (int i = 0; i < n_in; i++) fr_tensor_release(&in[i]);
    for (int i = 0; i < n_out; i++) {
        if (s == FR_OK) fri_tensor_put(&out[i], &y[i]);
        fr_tensor_release(&out[i]);
    }
    return s;
}

fr_status fr_module_forward(fr_module *m, fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(m, x, y);
    return fr_module_forward_n(m, &x, 1, y, 1);
}

void fr_module_train(fr_module *m, bool on) {
    if (m == NULL) return;
    m->training = on;
    for (int i = 0; i < m->n_children; i++) fr_module_train(m->children[i], on);
}

void fr_module_evaluation_begin(fr_module *m) {
    if (m == NULL) return;
    if (m->evaluations++ == 0) m->trained = m->training; /* a module may occur at several positions of the tree */
    m->training = false;
    for (int i = 0; i < m->n_children; i++) fr_module_evaluation_begin(m->children[i]);
}

void fr_module_evaluation_end(fr_module *m) {
    if (m == NULL || m->evaluations == 0) return;
    if (--m->evaluations == 0) m->training = m->trained;
    for (int i = 0; i < m->n_children; i++) fr_module_evaluation_end(m->children[i]);
}

void fr_module_inplace(fr_module *m, bool on) {
    if (m == NULL) return;
    m->inplace_set = true;
    m->inplace = on;
    for (int i = 0; i < m->n_children; i++) fr_module_inplace(m->children[i], on);
}

bool fr_module_training(const fr_module *m) {
    return m != NULL && m->training;
}

/* ---- visiting ---------------------------------------------------------------------------------------------- */

enum { MODULE_PATH_BYTES = 512 };

/* True for modules added by fri_module_add_own. */
static bool is_own(const fr_module *m) {
    return m->n_tensors > 0 && m->tensors[0].name[0] == '\0';
}

static fr_status visit_tensors(fr_module *m, char *path, size_t at, fr_module_tensor_fn *fn, void *ctx) {
    for (int i = 0; i < m->n_tensors; i++) {
        const char *name = m->tensors[i].name;
        snprintf(path + at, MODULE_PATH_BYTES - at, "%s%s", at > 0 && name[0] != '\0' ? "." : "", name);
        FRI_TRY(fn(ctx, path, m->tensors[i].tensor, m->tensors[i].is_parameter));
    }
    for (int i = 0; i < 2 * m->n_children; i++) { /* parameters that belong to m itself in PyTorch come first */
        const int k = i % m->n_children;
        if (is_own(m->children[k]) != (i < m->n_children)) continue;
        int n = snprintf(path + at, MODULE_PATH_BYTES - at, "%s%s", at ? "." : "", m->names[k]);
        if (n < 0 || at + (size_t)n >= MODULE_PATH_BYTES - 64)
            return fr_fail(FR_EINVAL, "module path %s is too long", path);
        FRI_TRY(visit_tensors(m->children[k], path, at + (size_t)n, fn, ctx));
    }
    path[at] = '\0';
    return FR_OK;
}

fr_status fr_module_each_tensor(fr_module *m, fr_module_tensor_fn *fn, void *ctx) {
    FRI_NOT_NULL(m, fn);
    char path[MODULE_PATH_BYTES] = "";
    return visit_tensors(m, path, 0, fn, ctx);
}

static fr_status count_elements(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (is_parameter) *(int64_t *)ctx += fri_numel(t);
    return FR_OK;
}

int64_t fr_module_parameter_count(fr_module *m) {
    if (m == NULL) return 0;
    int64_t n = 0;
    (void)fr_module_each_tensor(m, count_elements, &n);
    return n;
}

static fr_status drop_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx;
    (void)path;
    return is_parameter && fr_tensor_get_grad(t) != NULL ? fr_tensor_set_grad(t, NULL) : FR_OK;
}

void fr_module_zero_grad(fr_module *m) {
    if (m == NULL) return;
    (void)fr_module_each_tensor(m, drop_gradient, NULL);
}

/* Search for the tensor with a path. */
typedef struct wanted {
    const char *path;
    fr_tensor *tensor;
} wanted;

static fr_status match_path(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    wanted *w = ctx;
    (void)is_parameter;
    if (strcmp(path, w->path) == 0) w->tensor = t;
    return w->tensor != NULL ? FR_END : FR_OK;
}

typedef struct copying {
    fr_module *from;
    bool write; /* false: only checks */
} copying;

static fr_status copy_one(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    const copying *c = ctx;
    wanted w = {.path = path};
    fr_status s = fr_module_each_tensor(c->from, match_path, &w);
    (void)is_parameter;
    if (s < 0) return s;
    if (w.tensor == NULL) return fr_fail(FR_EINVAL, "module_copy_from: the other network has no tensor '%s'", path);
    if (!fri_shape_equal(&w.tensor->shape, &t->shape))
        return fr_fail(FR_ESHAPE, "module_copy_from: '%s' is %s but the other network's is %s", path,
                       fri_shape_text(&t->shape, a), fri_shape_text(&w.tensor->shape, b));
    return c->write ? fr_tensor_copy(t, w.tensor) : FR_OK;
}

fr_status fr_module_copy_from(fr_module *m, fr_module *from) {
    FRI_NOT_NULL(m, from);
    fr_status s = fr_module_each_tensor(m, copy_one, &(copying){from, false});
    return s < 0 ? s : fr_module_each_tensor(m, copy_one, &(copying){from, true});
}
