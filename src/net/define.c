/* define.c - defines a network (net.h): names, values, and the run on meta that finds a layer's shapes. */
#include "net/list.h"

#include "base/status.h"
#include "base/rng.h"
#include "meta/calls.h"
#include "meta/meta.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, SCOPES = 16, MAX_VALUES = 128 };

struct fr_net {
    fr_module *root;
    fri_list *list;
    fr_device device;
    fr_pool *pool; /* on meta, for the shape runs */
    fr_net_init_rule rule;
    fr_status status;
    char *error;
    char scope[NAME_BYTES];
    size_t scope_length[SCOPES]; /* lengths of the enclosing scopes' names */
    int scopes;
};

static const fr_value nothing = {-1};

void fr_net_try(fr_net *n, fr_status s) {
    if (n == NULL || s >= 0 || n->status < 0) return;
    n->status = s;
    n->error = strdup(fr_last_error());
}

static bool fails(fr_net *n, fr_status s) {
    fr_net_try(n, s);
    return n == NULL || n->status < 0;
}

fr_net *fr_net_begin(fr_device device) {
    fr_net *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    n->device = device;
    fr_net_try(n, fri_net_create(&n->root));
    if (n->root != NULL) n->list = fri_list_edit(n->root);
    fr_net_try(n, fr_pool_create(FR_META, &n->pool));
    return n;
}

static fr_status finish_net(fr_net *n, const fr_value *results, int count) {
    fr_status s = FR_OK;
    if (n->status < 0) return fr_fail(n->status, "%s", n->error != NULL ? n->error : "network: out of host memory");
    if (n->scopes > 0) return fr_fail(FR_EINVAL, "network: scope '%s' is open; call fr_net_scope_end", n->scope);
    if (n->list->inputs == 0 || count < 1)
        return fr_fail(FR_EINVAL, "network: %d inputs and %d results; at least one of each", n->list->inputs, count);
    for (int i = 0; i < count && s == FR_OK; i++)
        s = results[i].id >= 0 && results[i].id < n->list->values
                ? fri_list_result(n->list, results[i].id)
                : fr_fail(FR_EINVAL, "network: result %d is not a value of this network", i);
    return s < 0 || n->list->layers > 0 ? s : fr_fail(FR_EINVAL, "network: it has no layer; its results are inputs");
}

fr_status fr_net_end(fr_net **n, const fr_value *results, int count, fr_module **m) {
    fr_status s = FRI_CHECK_NULL(n, results, m);
    fr_net *d = n != NULL ? *n : NULL;
    if (n != NULL) *n = NULL;
    if (d == NULL) return s < 0 ? s : fr_fail(FR_ENOMEM, "network: out of host memory");
    if (s == FR_OK) s = finish_net(d, results, count);
    if (s == FR_OK) {
        fr_module_release(m);
        FRI_MOVE(m, d->root);
    }
    fr_module_release(&d->root);
    fr_pool_release(&d->pool);
    free(d->error);
    free(d);
    return s;
}

fr_status fr_net_status(const fr_net *n) {
    return n != NULL ? n->status : fr_fail(FR_ENOMEM, "network: out of host memory when it was created");
}

fr_device fri_net_device(const fr_net *n) {
    return n->device;
}

void fr_net_init(fr_net *n, fr_net_init_rule rule) {
    if (n != NULL) n->rule = rule;
}

fr_net_init_rule fri_net_rule(const fr_net *n) {
    return n->rule;
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static const fri_net_value *value_of(const fr_net *n, fr_value x) {
    return n != NULL && n->status == FR_OK && x.id >= 0 && x.id < n->list->values ? &n->list->value[x.id] : NULL;
}

int64_t fr_net_dim(const fr_net *n, fr_value x, int i) {
    const fri_net_value *v = value_of(n, x);
    if (v == NULL) return 0;
    if (i < 0) i += v->shape.rank;
    return i >= 0 && i < v->shape.rank ? v->shape.dim[i] : 0;
}

fr_module *fr_net_layer_of(fr_net *n, fr_value x) {
    const fri_net_value *v = value_of(n, x);
    return v != NULL && v->made_by >= 0 ? n->list->layer[v->made_by].module : NULL;
}

fr_value fr_net_input(fr_net *n, fr_dtype dtype, int rank, const int64_t *shape) {
    fr_value x = nothing;
    if (fails(n, FRI_CHECK_NULL(shape))) return x;
    if (n->list->layers > 0) {
        fr_net_try(n, fr_fail(FR_EINVAL, "network: input %d comes after a layer; inputs come first", n->list->inputs));
        return x;
    }
    if (rank < 0 || rank > FR_MAX_RANK) {
        fr_net_try(n, fr_fail(FR_ESHAPE, "network: an input of rank %d; 0..%d are possible", rank, FR_MAX_RANK));
        return x;
    }
    const fr_shape like = fri_shape_of(rank, shape);
    fr_net_try(n, fri_list_value(n->list, dtype, &like, &x.id));
    if (n->status == FR_OK) n->list->inputs++;
    return n->status == FR_OK ? x : nothing;
}

/* ---- names ----------------------------------------------------------------------------------------------- */

void fr_net_scope_begin(fr_net *n, const char *format, ...) {
    if (fails(n, FRI_CHECK_NULL(format))) return;
    const size_t length = strlen(n->scope), at = length > 0 && length + 1 < NAME_BYTES ? length + 1 : length;
    va_list a;
    va_start(a, format);
    int written = vsnprintf(n->scope + at, NAME_BYTES - at, format, a);
    va_end(a);
    if (written < 1 || n->scopes == SCOPES || at + (size_t)written >= NAME_BYTES) {
        fr_net_try(n, fr_fail(FR_EINVAL,
                              "network: scope '%s': the last name is empty or too long, or it is level %d of %d",
                              n->scope, n->scopes + 1, SCOPES));
        return;
    }
    if (at > 0) n->scope[at - 1] = '.';
    n->scope_length[n->scopes++] = length;
}

void fr_net_scope_end(fr_net *n) {
    if (n == NULL || n->status < 0) return;
    if (n->scopes == 0) {
        fr_net_try(n, fr_fail(FR_EINVAL, "network: fr_net_scope_end without an open scope"));
        return;
    }
    n->scope[n->scope_length[--n->scopes]] = '\0';
}

/* "scope.name"; without a name, the number of children of the scope. */
static fr_status full_name(const fr_net *n, const char *name, char out[NAME_BYTES]) {
    const char *dot = n->scope[0] != '\0' ? "." : "";
    fr_module *scope = fri_module_at(n->root, n->scope, NULL, NULL);
    int written = name != NULL
                      ? snprintf(out, NAME_BYTES, "%s%s%s", n->scope, dot, name)
                      : snprintf(out, NAME_BYTES, "%s%s%d", n->scope, dot, scope != NULL ? scope->n_children : 0);
    return written < NAME_BYTES ? FR_OK : fr_fail(FR_EINVAL, "network: the name %s... is too long", out);
}

/* ---- the shape run --------------------------------------------------------------------------------------- */

/* State of the thread, saved around a run that must leave no trace. */
typedef struct shape_run {
    fr_pool_state pool;
    fri_call_listener listener;
    const fri_backend *target;
    fri_module_watch watch;
    fr_rng rng;
    fr_autocast_state autocast;
    bool grad;
    fr_module *m;
    fri_scope scope;
} shape_run;

static fr_status shape_run_begin(fr_net *n, fr_module *m, shape_run *a) {
    FRI_TRY(fr_pool_begin(n->pool, &a->pool));
    a->listener = fri_meta_listen((fri_call_listener){0});
    a->target = fri_meta_target_set(NULL);
    a->watch = fri_module_watch_set((fri_module_watch){0});
    a->rng = fr_rng_get();
    a->autocast = fri_autograd()->autocast;
    fri_autograd()->autocast = (fr_autocast_state){0};
    a->grad = fr_no_grad_begin();
    a->scope = fri_scope_begin(fri_scope_op(), "");
    a->m = m;
    fr_module_evaluation_begin(m);
    return FR_OK;
}

static void shape_run_end(shape_run *a) {
    fr_module_evaluation_end(a->m);
    fri_scope_end(a->scope);
    fr_no_grad_end(a->grad);
    fri_autograd()->autocast = a->autocast;
    fr_rng_set(a->rng);
    (void)fri_module_watch_set(a->watch);
    (void)fri_meta_target_set(a->target);
    (void)fri_meta_listen(a->listener);
    fr_pool_end(a->pool);
}

/* Meta copies of all tensors at or below a module. exchange_meta_copies swaps both; a second call swaps back. */
typedef struct meta_copies {
    fr_tensor **tensor;
    int n;
} meta_copies;

static fr_status make_meta_copies(const fr_module *m, meta_copies *w) {
    for (int i = 0; i < m->n_tensors; i++) {
        const fr_tensor *t = m->tensors[i].tensor;
        FRI_TRY(FRI_ROOM(w->tensor, w->n, "network"));
        w->tensor[w->n] = NULL;
        FRI_TRY(fri_tensor_new(&t->shape, t->dtype, FR_META, FR_MEM_TEMPORARY, &w->tensor[w->n]));
        w->n++;
    }
    for (int i = 0; i < m->n_children; i++) FRI_TRY(make_meta_copies(m->children[i], w));
    return FR_OK;
}

static int exchange_meta_copies(fr_module *m, const meta_copies *w, int at) {
    for (int i = 0; i < m->n_tensors; i++, at++) {
        fr_tensor *t = m->tensors[i].tensor;
        m->tensors[i].tensor = w->tensor[at];
        w->tensor[at] = t;
    }
    for (int i = 0; i < m->n_children; i++) at = exchange_meta_copies(m->children[i], w, at);
    return at;
}

/* Runs m on meta. y[i] gets the shape and dtype of result i. */
static fr_status find_shapes(fr_net *n, const char *name, fr_module *m, const int *in, int n_in, fr_tensor **y,
                             int n_out) {
    fr_tensor *x[MAX_VALUES] = {NULL};
    meta_copies w = {0};
    shape_run a = {0};
    fr_status s = shape_run_begin(n, m, &a);
    if (s < 0) return s;
    for (int i = 0; i < n_in; i++) {
        const fri_net_value *v = &n->list->value[in[i]];
        FR_TRY(s, fri_tensor_new(&v->shape, v->dtype, FR_META, FR_MEM_TEMPORARY, &x[i]));
    }
    FR_TRY(s, make_meta_copies(m, &w));
    (void)exchange_meta_copies(m, &w, 0);
    s = fri_layer_run_n(m, name, x, n_in, y, n_out);
    (void)exchange_meta_copies(m, &w, 0);
done:
    for (int i = 0; i < w.n; i++) fr_tensor_release(&w.tensor[i]);
    for (int i = 0; i < n_in; i++) fr_tensor_release(&x[i]);
    free(w.tensor);
    shape_run_end(&a);
    return s;
}

/* ---- channels after a flatten -------------------------------------------------------------------------------- */

static fr_status set_pieces(fri_net_value *v, const fr_channel_piece *piece, int n) {
    v->piece = malloc((size_t)n * sizeof *piece);
    if (v->piece == NULL) return fr_fail(FR_ENOMEM, "network: out of host memory");
    memcpy(v->piece, piece, (size_t)n * sizeof *piece);
    v->pieces = n;
    return FR_OK;
}

static fr_status add_pieces(fri_net_value *v, const fri_net_value *x) {
    const fr_channel_piece whole = {1, x->shape.rank > 0 ? x->shape.dim[x->shape.rank - 1] : 1};
    const int more = x->pieces > 0 ? x->pieces : 1;
    fr_channel_piece *piece = realloc(v->piece, (size_t)(v->pieces + more) * sizeof *piece);
    if (piece == NULL) return fr_fail(FR_ENOMEM, "network: out of host memory");
    memcpy(piece + v->pieces, x->pieces > 0 ? x->piece : &whole, (size_t)more * sizeof *piece);
    v->piece = piece;
    v->pieces += more;
    return FR_OK;
}

static fr_status follow_channels(fri_list *l, const fri_net_layer *a) {
    const unsigned traits = a->module->class_->traits;
    const fri_net_value *x = a->n_in > 0 ? &l->value[a->in[0]] : NULL;
    fri_net_value *y = a->n_out > 0 ? &l->value[a->out[0]] : NULL;
    fr_status s = FR_OK;
    bool any = false;
    if (x == NULL || y == NULL) return FR_OK;
    for (int i = 0; i < a->n_in; i++) any = any || l->value[a->in[i]].pieces > 0;
    if ((traits & FR_LAYER_FLATTENS) != 0 && x->shape.rank == 4 && y->shape.rank == 2)
        s = set_pieces(y, &(fr_channel_piece){x->shape.dim[1] * x->shape.dim[2], x->shape.dim[3]}, 1);
    else if ((traits & FR_LAYER_KEEPS_LAYOUT) != 0 && x->pieces > 0)
        s = set_pieces(y, x->piece, x->pieces);
    else if ((traits & FR_LAYER_CONCATENATES) != 0 && any)
        for (int i = 0; i < a->n_in && s == FR_OK; i++) s = add_pieces(y, &l->value[a->in[i]]);
    return s;
}

/* ---- adding a layer -------------------------------------------------------------------------------------- */

static fr_status check_values(const fr_net *n, const char *name, const fr_value *in, int n_in, int n_out) {
    if (n_in < 1 || n_in > MAX_VALUES || n_out < 1 || n_out > MAX_VALUES)
        return fr_fail(FR_EINVAL, "%s: a layer of %d inputs and %d results; 1..%d of each", name, n_in, n_out,
                       MAX_VALUES);
    for (int i = 0; i < n_in; i++)
        if (in[i].id < 0 || in[i].id >= n->list->values)
            return fr_fail(FR_EINVAL, "%s: input %d is not a value of this network", name, i);
    return FR_OK;
}

/* Adds *m to the list under its full name and releases *m, which is in the module tree already. */
static fr_status enter(fr_net *n, const char *name, fr_module **m, const int *in, int n_in, fr_value *out, int n_out) {
    fr_tensor *y[MAX_VALUES] = {NULL};
    int id[MAX_VALUES];
    fr_status s = FR_OK;
    FR_TRY(s, find_shapes(n, name, *m, in, n_in, y, n_out));
    FR_TRY(s, fri_list_layer(n->list, name, m, in, n_in, id, n_out));
    for (int i = 0; i < n_out; i++) {
        fri_net_value *v = &n->list->value[id[i]];
        v->shape = y[i]->shape;
        v->dtype = y[i]->dtype;
        out[i].id = id[i];
    }
    FR_TRY(s, follow_channels(n->list, &n->list->layer[n->list->layers - 1]));
done:
    for (int i = 0; i < n_out; i++) fr_tensor_release(&y[i]);
    fr_module_release(m);
    return s;
}

/* Adds the layers of a finished network under `name`, with inputs from this network. */
static fr_status splice_net(fr_net *n, const char *name, fr_module *net, const int *in, int n_in, fr_value *out,
                            int n_out) {
    const fri_list *inner = fri_list_edit(net);
    FRI_OWNED(fri_free) fr_value *value = calloc((size_t)inner->values + 1, sizeof *value);
    FRI_OWNED(fri_free) int *read = calloc((size_t)inner->values + 1, sizeof *read);
    char path[NAME_BYTES];
    if (value == NULL || read == NULL) return fr_fail(FR_ENOMEM, "%s: out of host memory", name);
    if (n_in != inner->inputs || n_out > inner->results)
        return fr_fail(FR_EINVAL, "%s: %d inputs for %d results; the network has %d inputs and %d results", name, n_in,
                       n_out, inner->inputs, inner->results);
    for (int i = 0; i < n_in; i++) value[i].id = in[i];
    for (int i = 0; i < inner->layers; i++) {
        const fri_net_layer *a = &inner->layer[i];
        fr_module *m = fr_module_retain(a->module);
        for (int k = 0; k < a->n_in; k++) read[k] = value[a->in[k]].id;
        if (snprintf(path, sizeof path, "%s.%s", name, a->name) >= NAME_BYTES) {
            fr_module_release(&m);
            return fr_fail(FR_EINVAL, "network: the name %s... is too long", path);
        }
        FRI_TRY(enter(n, path, &m, read, a->n_in, &value[a->out[0]], a->n_out));
    }
    for (int i = 0; i < n_out; i++) out[i] = value[inner->result[i]];
    return FR_OK;
}

static fr_status add_module(fr_net *n, const char *name, fr_module **m, const fr_value *in, int n_in, fr_value *out,
                            int n_out) {
    char path[NAME_BYTES];
    int id[MAX_VALUES];
    FRI_OWNED(fr_module_release) fr_module *placed = NULL;
    FRI_TRY(full_name(n, name, path));
    FRI_TRY(check_values(n, path, in, n_in, n_out));
    for (int i = 0; i < n_in; i++) id[i] = in[i].id;
    placed = fr_module_retain(*m);
    FRI_TRY(fri_module_place(n->root, path, m));
    if (fri_is_net(placed))
        FRI_TRY(splice_net(n, path, placed, id, n_in, out, n_out));
    else
        FRI_TRY(enter(n, path, &placed, id, n_in, out, n_out));
    return FR_OK;
}

void fr_net_module(fr_net *n, const char *name, fr_module **m, const fr_value *in, int n_in, fr_value *out, int n_out) {
    fr_status s = FRI_CHECK_NULL(m, in, out);
    if (s == FR_OK && *m == NULL && fr_net_status(n) == FR_OK)
        s = fr_fail(FR_EINVAL, "%s: the slot of the layer holds NULL", name != NULL ? name : "network");
    if (!fails(n, s)) fr_net_try(n, add_module(n, name, m, in, n_in, out, n_out)); /* `out` may alias `in` */
    for (int i = 0; out != NULL && i < n_out && fr_net_status(n) < 0; i++) out[i] = nothing;
    if (m != NULL) fr_module_release(m);
}

void fr_net_op(fr_net *n, const char *name, const fr_module_class *class_, const void *state, size_t state_bytes,
               const fr_value *in, int n_in, fr_value *out, int n_out) {
    fr_module *m = NULL;
    if (state == NULL) state_bytes = 0;
    if (!fails(n, fr_module_create(class_, state_bytes, &m)) && state_bytes > 0) memcpy(m->state, state, state_bytes);
    fr_net_module(n, name, &m, in, n_in, out, n_out);
}

void fr_net_again(fr_net *n, const char *name, const fr_value *in, int n_in, fr_value *out, int n_out) {
    char path[NAME_BYTES];
    int id[MAX_VALUES];
    fr_module *m = NULL;
    if (!fails(n, FRI_CHECK_NULL(name, in, out)) && !fails(n, full_name(n, name, path)) &&
        !fails(n, check_values(n, path, in, n_in, n_out))) {
        for (int i = 0; i < n_in; i++) id[i] = in[i].id;
        if ((m = fr_module_retain(fri_module_at(n->root, path, NULL, NULL))) == NULL)
            fr_net_try(n, fr_fail(FR_EINVAL, "network: no layer is called '%s', so none can run again", path));
        else if (fri_is_net(m))
            fr_net_try(n, splice_net(n, path, m, id, n_in, out, n_out));
        else
            fr_net_try(n, enter(n, path, &m, id, n_in, out, n_out));
    }
    for (int i = 0; out != NULL && i < n_out && fr_net_status(n) < 0; i++) out[i] = nothing;
    fr_module_release(&m);
}
