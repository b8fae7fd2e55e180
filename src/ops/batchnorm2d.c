/* batchnorm2d - batch normalization over N, H, W (Ioffe and Szegedy, 2015).
 *   forward    y = (x - mean) * invstd * gamma + beta,  invstd = 1 / sqrt(var + eps)
 *   backward   dbeta = sum dy;  dgamma = sum dy * xhat;
 *              train dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat));  eval dx = gamma * invstd * dy
 *   parts      kernels read the parts of a concatenation, which is never made; dx is added to the parts' gradients
 *   saves      x, gamma, beta, and [C] values mean and invstd (small: kept inside checkpoints). In eval mode x is
 *              saved only if gamma or a smooth activation needs x; otherwise relu's or relu6's signs are saved
 *   fused      norm [+ addend] [+ activation] in one call is one node. Without an addend, backward applies the mask, or
 *              f', to values that the pass recomputes in registers; with an addend, relu's signs are saved
 *   in-place   forward over the addend, or over an x that is not saved; backward yes (dx over dy, else over x at its
 *              last use)
 *   rebuild    from the saved x, the statistics and the addend, by the forward's own kernel; not where x is not saved
 *   recompute  statistics are read from the first forward's node; running values are never touched */
#include "ops/batchnorm2d.h"

#include "autograd/anomaly.h"
#include "backend/arith.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

typedef struct params {
    fri_batchnorm2d_desc desc;
    int n;      /* tensors of x */
    bool joins; /* x is the concatenation of the tensors; else there is one */
    bool train;
    bool masks;         /* backward masks dy by the saved signs; else it recomputes the activation's input */
    fri_activation act; /* of the node's output */
} params;

enum { GAMMA, BETA, ADDEND, OTHERS }; /* inputs after the tensors of x */
enum { SAVED_SIGNS, SAVED_GAMMA, SAVED_BETA, SAVED_MEAN, SAVED_INVSTD, SAVED_X };

fri_conv2d_norm fri_norm_vectors(const fr_tensor *mean, const fr_tensor *invstd, const fr_tensor *gamma,
                                 const fr_tensor *beta, fri_activation act) {
    return (fri_conv2d_norm){fri_data(mean), fri_data(invstd), fri_data_of(gamma), fri_data_of(beta), act};
}

/* Lists the tensors of x for kernels. */
static void list_parts(fr_tensor *const *x, int n, fri_batchnorm2d_part *part, fri_batchnorm2d_desc *d) {
    for (int i = 0; i < n; i++) part[i] = (fri_batchnorm2d_part){.c = x[i]->shape.dim[3], .x = fri_data(x[i])};
    d->part = part;
}

fr_status fri_norm_apply(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_conv2d_norm *v,
                         const fr_tensor *addend, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), d->dtype, batchnorm2d_apply,
                      (FRI_EXEC, d, fri_data(x), v->mean, v->invstd, v->gamma, v->beta, fri_data_of(addend), v->act,
                       fri_data(y)));
}

fr_status fri_norm_backward(const fri_batchnorm2d_desc *d, bool train, const fr_tensor *x, const fri_conv2d_norm *v,
                            const fr_tensor *dy, fr_tensor *dx, fr_tensor *dgamma, fr_tensor *dbeta) {
    const fri_backend *be = fri_backend_of(x);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    FRI_TRY(fri_workspace_begin(x, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
    return FRI_KERNEL(be, d->dtype, batchnorm2d_backward,
                      (&ws.exec, d, train, fri_data(x), v->mean, v->invstd, v->gamma, v->beta, v->act, fri_data(dy),
                       fri_data_of(dx), fri_data_of(dgamma), fri_data_of(dbeta)));
}

void fri_norm_read_end(fri_norm_read *r) {
    for (int i = 0; i < r->n; i++) fr_tensor_release(&r->x[i]);
    for (int i = 0; i < r->n; i++) fr_tensor_release(&r->dx[i]);
    fr_tensor_release(&r->mean);
    fr_tensor_release(&r->invstd);
    fr_tensor_release(&r->gamma);
    fr_tensor_release(&r->beta);
}

/* Reads the saved operands; beta only for an activation, which backward recomputes. */
static fr_status read_saved(fr_node *node, bool beta, fri_activation act, fri_norm_read *r) {
    const params *p = fr_node_params(node);
    r->n = p->n;
    r->desc = p->desc;
    for (int i = 0; i < p->n; i++) FRI_TRY(fr_node_saved(node, SAVED_X + i, &r->x[i]));
    if (p->joins) list_parts(r->x, p->n, r->part, &r->desc);
    FRI_TRY(fr_node_saved(node, SAVED_GAMMA, &r->gamma));
    if (beta) FRI_TRY(fr_node_saved(node, SAVED_BETA, &r->beta));
    FRI_TRY(fr_node_saved(node, SAVED_MEAN, &r->mean));
    FRI_TRY(fr_node_saved(node, SAVED_INVSTD, &r->invstd));
    r->norm = fri_norm_vectors(r->mean, r->invstd, r->gamma, r->beta, act);
    return FR_OK;
}

/* Allocates the requested gradients of gamma and beta for a node's backward on dy. */
static fr_status new_vectors(const fr_node *node, const fr_tensor *dy, fr_tensor **dgamma, fr_tensor **dbeta) {
    const params *p = fr_node_params(node);
    fr_shape vector = FRI_SHAPE(p->desc.c);
    if (fr_node_inputs(node) <= p->n) return FR_OK;
    if (fr_node_wants(node, p->n + GAMMA))
        FRI_TRY(fri_tensor_new(&vector, fri_real_of(dy), fri_device_of(dy), FR_MEM_TEMPORARY, dgamma));
    if (fr_node_wants(node, p->n + BETA))
        FRI_TRY(fri_tensor_new(&vector, fri_real_of(dy), fri_device_of(dy), FR_MEM_TEMPORARY, dbeta));
    return FR_OK;
}

static bool has_addend(const fr_node *node) {
    return fr_node_inputs(node) > ((const params *)fr_node_params(node))->n + ADDEND;
}

/* Finds room for the gradient of part i: the sum of earlier gradients, the part itself, or a new tensor. */
static fr_status part_gradient(fr_node *node, int i, fri_norm_read *r) {
    fr_tensor *sum = fri_gradient_sum(node, i), *x = r->x[i];
    r->part[i].adds = sum != NULL;
    if (sum == NULL && fri_slot_yields(node, SAVED_X + i, x)) {
        fri_bump_version(x);
        r->dx[i] = fr_tensor_retain(x);
    } else if (sum == NULL) {
        FRI_TRY(fri_new_like(x, FR_MEM_TEMPORARY, &r->dx[i]));
    }
    r->part[i].dx = fri_data(sum != NULL ? sum : r->dx[i]);
    return FR_OK;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dbeta = NULL, *dgamma = NULL, *masked = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read r = {0};
    const fri_activation act = p->masks ? FRI_ACTIVATION_NONE : p->act;
    if (p->masks) {
        FRI_TRY(fr_node_mask(node, SAVED_SIGNS, 0, dy, &masked));
        FRI_MOVE(dy, masked);
    }
    if (has_addend(node)) { /* its gradient is dy itself */
        fr_tensor *shared = fr_tensor_retain(*dy);
        FRI_TRY(fr_node_grad(node, p->n + ADDEND, &shared));
    }
    FRI_TRY(read_saved(node, act, act, &r));
    FRI_TRY(new_vectors(node, *dy, &dgamma, &dbeta));
    for (int i = 0; i < p->n; i++) /* for a smooth act, dx first holds an intermediate, and x is read again */
        if (fr_node_wants(node, i))
            FRI_TRY(p->joins ? part_gradient(node, i, &r)
                             : fri_gradient_over(node, SAVED_X, fri_reads_x(act) ? NULL : r.x[0], *dy, &r.dx[0]));
    const fr_tensor *x = r.x[0] != NULL ? r.x[0] : *dy; /* dy: not read */
    FRI_TRY(fri_norm_backward(&r.desc, p->train, x, &r.norm, *dy, r.dx[0], dgamma, dbeta));
    for (int i = 0; i < p->n; i++) {
        fr_tensor_release(&r.x[i]);
        fr_node_release_saved(node, SAVED_X + i);
    }
    fr_tensor_release(dy);
    FRI_TRY(fr_node_grad(node, p->n + GAMMA, &dgamma));
    FRI_TRY(fr_node_grad(node, p->n + BETA, &dbeta));
    for (int i = 0; i < p->n; i++)
        if (r.part[i].adds)
            fri_gradient_added(node, i);
        else
            FRI_TRY(fr_node_grad(node, i, &r.dx[i]));
    return FR_OK;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const params *p = fr_node_params(node);
    fr_tensor *addend = has_addend(node) ? in[p->n + ADDEND] : NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read r = {0};
    FRI_TRY(read_saved(node, true, p->act, &r));
    if (addend != NULL)
        FRI_TRY(fri_gradient_like(addend, &out));
    else
        FRI_TRY(fri_tensor_new(&node->shape, node->dtype, node->device, FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_norm_apply(&r.desc, r.x[0], &r.norm, addend, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

#define NORM .name = "batchnorm2d", .backward = backward
#define SUM  NORM, .rebuild = rebuild, .rebuild_inputs = 1 << (1 + ADDEND)
static const fr_op batchnorm2d = {NORM, .rebuild = rebuild};
static const fr_op batchnorm2d_parts = {NORM, .rebuild = rebuild};
static const fr_op batchnorm2d_sum = {SUM};
static const fr_op batchnorm2d_sum_act = {SUM, .rebuild_steps = 2};
/* Eval mode: dx is a multiple of dy, and only the gradients of gamma and of a smooth activation need x. */
static const fr_op batchnorm2d_without_x = {NORM};

fr_status fri_norm_read_of(fr_node *norm, int64_t c, fri_norm_read *r) {
    const params *p = norm->params;
    return norm->op == &batchnorm2d && p->desc.c == c ? read_saved(norm, true, p->act, r) : FR_OK;
}

/* ---- statistics -------------------------------------------------------------------------------------------- */

fr_status fri_batch_statistics(const fr_op *op, int saved_mean, const fri_batchnorm2d_desc *desc, const fr_tensor *x,
                               const fri_norm *norm, fr_tensor **mean, fr_tensor **invstd) {
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    fri_batchnorm2d_desc counting = *desc, *d = &counting;
    fr_shape vector = FRI_SHAPE(d->c);
    const fri_backend *be = fri_backend_of(x);
    fr_tensor *running_mean = norm->running_mean;
    fr_node *original = fri_recompute_original();
    if (original != NULL && original->op == op && original->slots[saved_mean].kind == FRI_SLOT_TENSOR) {
        FRI_TRY(fr_node_saved(original, saved_mean, mean));
        return fr_node_saved(original, saved_mean + 1, invstd);
    }
    bool update = fri_statistics_move() && running_mean != NULL;
    FRI_TRY(fri_tensor_new(&vector, fri_real_of(x), be->device, FR_MEM_TEMPORARY, mean));
    FRI_TRY(fri_tensor_new(&vector, fri_real_of(x), be->device, FR_MEM_TEMPORARY, invstd));
    d->batches = update && norm->batches != NULL ? fri_data(norm->batches) : NULL;
    void *moved_mean = update ? fri_data(running_mean) : NULL;
    void *moved_var = update ? fri_data(norm->running_var) : NULL;
    FRI_TRY(fri_workspace_begin(x, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
    FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_stats,
                       (&ws.exec, d, fri_data(x), fri_data(*mean), fri_data(*invstd), moved_mean, moved_var)));
    if (update) {
        fri_bump_version(running_mean);
        fri_bump_version(norm->running_var);
        if (norm->batches != NULL) fri_bump_version(norm->batches);
    }
    return FR_OK;
}

fr_status fri_running_statistics(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_norm *norm,
                                 fr_tensor **mean, fr_tensor **invstd) {
    FRI_TRY(fr_tensor_clone(norm->running_mean, mean)); /* a later training step may change the running value */
    FRI_TRY(fri_new_like(norm->running_var, FR_MEM_TEMPORARY, invstd));
    return FRI_KERNEL(fri_backend_of(x), d->dtype, batchnorm2d_invstd,
                      (FRI_EXEC, d, fri_data(norm->running_var), fri_data(*invstd)));
}

/* ---- the op ------------------------------------------------------------------------------------------------ */

static fr_status expect_statistic(const fr_op *op, const fr_tensor *x, const fr_tensor *t, const char *what) {
    if (t == NULL) return FR_OK;
    FRI_TRY(fri_expect_vector(op, t, what, x->shape.dim[3]));
    if (t->dtype != fri_real_of(x))
        return fr_fail(FR_EDTYPE, "%s: %s is %s; %s is needed with %s x", op->name, what, fr_dtype_name(t->dtype),
                       fr_dtype_name(fri_real_of(x)), fr_dtype_name(x->dtype));
    if (fri_device_of(t) != fri_device_of(x))
        return fr_fail(FR_EDEVICE, "%s: %s is on %s but x is on %s", op->name, what, fr_device_name(fri_device_of(t)),
                       fr_device_name(fri_device_of(x)));
    return FR_OK;
}

fr_status fri_batchnorm2d_describe(const fr_op *op, const fr_tensor *x, const fri_norm *norm,
                                   fri_batchnorm2d_desc *desc) {
    const fr_tensor *gamma = norm->gamma, *beta = norm->beta;
    const fr_tensor *running_mean = norm->running_mean, *running_var = norm->running_var;
    const fr_batchnorm2d_opts *o = norm->opts != NULL ? norm->opts : FR_BATCHNORM2D_OPTS();
    FRI_TRY(fri_expect_float(op, x, "x"));
    FRI_TRY(fri_expect_rank(op, x, "x", 4));
    FRI_TRY(expect_statistic(op, x, gamma, "gamma"));
    FRI_TRY(expect_statistic(op, x, beta, "beta"));
    FRI_TRY(expect_statistic(op, x, running_mean, "running_mean"));
    FRI_TRY(expect_statistic(op, x, running_var, "running_var"));
    const int64_t *d = x->shape.dim;
    *desc = (fri_batchnorm2d_desc){.dtype = x->dtype,
                                   .rows = d[0] * d[1] * d[2],
                                   .c = d[3],
                                   .eps = o->eps,
                                   .momentum = o->momentum,
                                   .sync = o->train ? fri_statistics_sync_get() : NULL};
    if ((gamma == NULL) != (beta == NULL))
        return fr_fail(FR_EINVAL, "%s: gamma and beta must both be given or both be NULL", op->name);
    if ((running_mean == NULL) != (running_var == NULL) || (!o->train && running_mean == NULL))
        return fr_fail(FR_EINVAL, "%s: running_mean and running_var must both be given%s", op->name,
                       o->train ? " or both be NULL" : " in eval mode");
    if (!(o->eps >= 0) || !isfinite(o->eps))
        return fr_fail(FR_EINVAL, "%s: eps is %g; it must be finite and not negative", op->name, o->eps);
    if (!isfinite(o->momentum))
        return fr_fail(FR_EINVAL, "%s: momentum is %g; it must be finite", op->name, o->momentum);
    if (desc->sync != NULL && fri_device_of(x) != FR_CPU && fri_device_of(x) != FR_META)
        return fr_fail(FR_EUNSUPPORTED, "%s: statistics of several processes are made on cpu, not on %s", op->name,
                       fr_device_name(fri_device_of(x)));
    if (o->train && desc->rows == 1 && desc->sync == NULL)
        return fr_fail(FR_EINVAL, "%s: training needs more than 1 value per channel, x has batch 1 and 1 pixel",
                       op->name);
    return FR_OK;
}

/* True if backward reads x. A recomputation asks what the node of the forward saved. */
static bool keeps_input(const params *p, const fri_norm *norm, const fr_tensor *x, bool smooth) {
    const fr_node *original = fri_recompute_original();
    const bool gamma = norm->gamma != NULL && norm->gamma->requires_grad;
    const bool beta = norm->beta != NULL && norm->beta->requires_grad;
    if (p->joins) return true;
    if (original != NULL) return original->op != &batchnorm2d_without_x;
    return p->train || gamma || (smooth && (x->requires_grad || beta));
}

/* The largest power of 2 that divides the starts and widths of all parts, in elements; 0 if a tensor is two parts. */
static int64_t granule_of(fr_tensor *const *x, int n) {
    const int64_t size = (int64_t)fr_dtype_size(x[0]->dtype);
    int64_t all = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            if (x[k]->storage == x[i]->storage) return 0;
        all |= x[i]->shape.dim[3] | (int64_t)x[i]->offset / size;
    }
    return all & -all;
}

bool fri_norm_joins(fr_tensor *const *x, int n, bool keeps) {
    const fr_node *original = fri_recompute_original();
    if (n < 1 || n > FRI_NORM_PARTS || x[0]->shape.rank != 4 || !fr_dtype_is_float(x[0]->dtype)) return false;
    for (int i = 0; i < n; i++) {
        fr_shape shape = x[i]->shape;
        shape.dim[3] = x[0]->shape.dim[3];
        if (!fri_shape_equal(&shape, &x[0]->shape) || x[i]->dtype != x[0]->dtype ||
            fri_device_of(x[i]) != fri_device_of(x[0]))
            return false;
    }
    fri_batchnorm2d_reads_parts_fn *reads = fri_kernels_for(fri_backend_of(x[0]), x[0]->dtype)->batchnorm2d_reads_parts;
    if (reads == NULL || !reads(x[0]->dtype, granule_of(x, n))) return false;
    if (original != NULL) return original->op == &batchnorm2d_parts;
    return fri_fusion_permitted() && fri_statistics_sync_get() == NULL && (keeps || !fr_grad_enabled());
}

bool fri_norm_fuses(const fr_tensor *x, const fr_tensor *addend) {
    const fr_node *original = fri_recompute_original();
    if (addend != NULL && (addend->dtype != x->dtype || fri_device_of(addend) != fri_device_of(x) ||
                           !fri_shape_equal(&addend->shape, &x->shape)))
        return false;
    if (original == NULL || original->op->backward != backward) return fri_fusion_permitted();
    return has_addend(original) || ((const params *)original->params)->act;
}

/* Result of a call: over the addend or x where the caller gives it up and no slot keeps it. */
static fr_status new_result(fr_tensor *const *in, int n_in, bool keeps_x, bool masks, fr_tensor **addend,
                            fr_tensor *const *y, bool *wanted, fr_tensor **out) {
    fr_tensor *x = in[0];
    if (addend != NULL && (masks || !fri_recompute_ends(in, n_in))) return fri_result_like(*addend, addend, out);
    if (addend == NULL && *y == x && !(keeps_x && fr_grad_enabled())) return fri_result_like(x, y, out);
    if (addend == NULL && masks) return fri_new_like(x, FR_MEM_TEMPORARY, out);
    return fri_result_new(in, n_in, &x->shape, x->dtype, wanted, out);
}

/* A joined result comes first: its shape is the one that x would have. */
static fr_status run_norm(fr_tensor *const *x, int n, bool joins, const fri_norm *norm, fr_tensor **addend,
                          fri_activation act, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *invstd = NULL, *mean = NULL, *out = NULL;
    fri_batchnorm2d_part part[FRI_NORM_PARTS];
    fr_tensor *in[FRI_NORM_PARTS + OTHERS];
    params p = {.n = n, .joins = joins, .train = norm->opts == NULL || norm->opts->train, .act = act};
    const int n_in = n + (addend != NULL ? OTHERS : norm->gamma != NULL ? ADDEND : 0);
    bool wanted = true;
    memcpy(in, x, (size_t)n * sizeof *in);
    in[n + GAMMA] = norm->gamma;
    in[n + BETA] = norm->beta;
    in[n + ADDEND] = addend != NULL ? *addend : NULL;
    FRI_TRY(fri_call_begin(&c, &batchnorm2d, 1, in, joins ? 1 : 1 + OTHERS));
    if (joins) {
        fr_shape shape = x[0]->shape;
        for (int i = 1; i < n; i++) shape.dim[3] += x[i]->shape.dim[3];
        FRI_TRY(fri_result_new(in, n_in, &shape, x[0]->dtype, &wanted, &out));
    }
    FRI_TRY(fri_batchnorm2d_describe(&batchnorm2d, joins ? out : x[0], norm, &p.desc));
    const bool keeps_x = keeps_input(&p, norm, x[0], fri_reads_x(act));
    const fr_op *op = joins            ? &batchnorm2d_parts
                      : !keeps_x       ? &batchnorm2d_without_x
                      : addend == NULL ? &batchnorm2d
                      : act            ? &batchnorm2d_sum_act
                                       : &batchnorm2d_sum;
    fri_batchnorm2d_desc d = p.desc;
    if (joins) list_parts(x, n, part, &d);
    p.masks = act && (addend != NULL || !keeps_x);
    FRI_TRY(p.train ? fri_batch_statistics(op, SAVED_MEAN, &d, x[0], norm, &mean, &invstd)
                    : fri_running_statistics(&d, x[0], norm, &mean, &invstd));
    if (!joins) FRI_TRY(new_result(in, 1 + OTHERS, keeps_x, p.masks, addend, y, &wanted, &out));
    const fri_conv2d_norm v = fri_norm_vectors(mean, invstd, norm->gamma, norm->beta, act);
    if (wanted) FRI_TRY(fri_norm_apply(&d, x[0], &v, in[n + ADDEND], out));
    fr_save saves[SAVED_X + FRI_NORM_PARTS] = {{p.masks ? out : NULL,
                                                act == FRI_ACTIVATION_RELU6 ? FR_SAVE_RELU6 : FR_SAVE_MASK},
                                               {norm->gamma, FR_SAVE_SMALL},
                                               {norm->beta, FR_SAVE_SMALL},
                                               {mean, FR_SAVE_SMALL},
                                               {invstd, FR_SAVE_SMALL}};
    for (int i = 0; i < n; i++) saves[SAVED_X + i] = (fr_save){keeps_x ? x[i] : NULL, FR_SAVE_VALUE};
    FRI_TRY(fr_op_record(op, &p, sizeof p, in, n_in, saves, SAVED_X + n, out));
    if (addend != NULL) fr_tensor_release(addend);
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, fr_tensor **addend, fri_activation act, fr_tensor **y) {
    return run_norm(&x, 1, false, norm, addend, act, y);
}

fr_status fri_norm_parts(fr_tensor *const *x, int n, const fri_norm *norm, fri_activation act, fr_tensor **y) {
    return run_norm(x, n, true, norm, NULL, act, y);
}

fr_status fr_batchnorm2d(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *running_mean,
                         fr_tensor *running_var, const fr_batchnorm2d_opts *opts, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    const fri_norm norm = {.gamma = gamma,
                           .beta = beta,
                           .running_mean = running_mean,
                           .running_var = running_var,
                           .opts = opts};
    return fri_norm_act(x, &norm, NULL, FRI_ACTIVATION_NONE, y);
}
