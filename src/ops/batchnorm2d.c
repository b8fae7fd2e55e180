/* batchnorm2d - batch normalization over N, H, W (Ioffe and Szegedy, 2015).
 *   forward    y = (x - mean) * invstd * gamma + beta,  invstd = 1 / sqrt(var + eps)
 *   backward   dbeta = sum dy;  dgamma = sum dy * xhat;
 *              train dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat));  eval dx = gamma * invstd * dy
 *   saves      x, gamma, beta, and [C] values mean and invstd (small: kept inside checkpoints). In eval mode x is
 *              saved only if gamma or a smooth activation needs x; otherwise relu's or relu6's signs are saved
 *   fused      norm [+ addend] [+ activation] in one call is one node. Without an addend, backward applies the mask, or
 *              f', to values that the pass recomputes in registers; with an addend, relu's signs are saved
 *   in-place   forward over the addend, or over an x that is not saved; backward yes (dx over dy, else over x at its
 *              last use)
 *   rebuild    from the saved x, the statistics and the addend, by the forward's own kernel; not where x is not saved
 *   recompute  statistics are read from the first forward's node; running values are never touched */
#include "ops/batchnorm2d.h"

#include "backend/arith.h"
#include "base/status.h"

#include <math.h>

typedef struct params {
    fri_batchnorm2d_desc desc;
    bool train;
    bool masks;         /* backward masks dy by the saved signs; else it recomputes the activation's input */
    fri_activation act; /* of the node's output */
} params;

enum { INPUT_X, INPUT_GAMMA, INPUT_BETA, INPUT_ADDEND, INPUTS };
enum { SAVED_SIGNS, SAVED_X, SAVED_GAMMA, SAVED_BETA, SAVED_MEAN, SAVED_INVSTD, SAVED_COUNT };

static fri_conv2d_norm vectors_of(const fr_tensor *mean, const fr_tensor *invstd, const fr_tensor *gamma,
                                  const fr_tensor *beta, fri_activation act) {
    return (fri_conv2d_norm){.mean = fri_data(mean),
                             .invstd = fri_data(invstd),
                             .gamma = gamma != NULL ? fri_data(gamma) : NULL,
                             .beta = beta != NULL ? fri_data(beta) : NULL,
                             .act = act};
}

static fr_status apply_norm(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_conv2d_norm *v,
                            const fr_tensor *addend, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), d->dtype, batchnorm2d_apply,
                      (FRI_EXEC, d, fri_data(x), v->mean, v->invstd, v->gamma, v->beta,
                       addend != NULL ? fri_data(addend) : NULL, v->act, fri_data(y)));
}

void fri_norm_read_end(fri_norm_read *r) {
    fr_tensor_release(&r->x);
    fr_tensor_release(&r->mean);
    fr_tensor_release(&r->invstd);
    fr_tensor_release(&r->gamma);
    fr_tensor_release(&r->beta);
}

/* Reads the saved operands; beta only for an activation, which backward recomputes. */
static fr_status read_saved(fr_node *node, bool beta, fri_activation act, fri_norm_read *r) {
    FRI_TRY(fr_node_saved(node, SAVED_X, &r->x));
    FRI_TRY(fr_node_saved(node, SAVED_GAMMA, &r->gamma));
    if (beta) FRI_TRY(fr_node_saved(node, SAVED_BETA, &r->beta));
    FRI_TRY(fr_node_saved(node, SAVED_MEAN, &r->mean));
    FRI_TRY(fr_node_saved(node, SAVED_INVSTD, &r->invstd));
    r->norm = vectors_of(r->mean, r->invstd, r->gamma, r->beta, act);
    return FR_OK;
}

/* Allocates the requested gradients of gamma and beta for a node's backward on dy. */
static fr_status new_vectors(const fr_node *node, const fr_tensor *dy, fr_tensor **dgamma, fr_tensor **dbeta) {
    const params *p = fr_node_params(node);
    fr_shape vector = FRI_SHAPE(p->desc.c);
    if (fr_node_inputs(node) <= INPUT_GAMMA) return FR_OK;
    if (fr_node_wants(node, INPUT_GAMMA))
        FRI_TRY(fri_tensor_new(&vector, fri_real_of(dy), fri_device_of(dy), FR_MEM_TEMPORARY, dgamma));
    if (fr_node_wants(node, INPUT_BETA))
        FRI_TRY(fri_tensor_new(&vector, fri_real_of(dy), fri_device_of(dy), FR_MEM_TEMPORARY, dbeta));
    return FR_OK;
}

/* Adds and masks two gradients in the pass that computes sum(dy) and sum(dy * xhat), which saves a pass over dy. *half
 * holds the sums for the rest of backward; it stays NULL without two gradients or with x not in memory. */
static fr_status add_with_sums(fr_node *node, fr_tensor **dy, fr_tensor **dgamma, fr_tensor **dbeta, fr_tensor **half) {
    const params *p = fr_node_params(node);
    const fri_batchnorm2d_desc *d = &p->desc;
    const fri_backend *be = fri_backend_of(*dy);
    FRI_OWNED(fr_tensor_release) fr_tensor *sums = NULL, *out = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read r = {0};
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    fr_shape two = FRI_SHAPE(2, d->c);
    if (node->last == NULL || !fri_mask_adds(node) || !p->train || d->sync != NULL || !fr_node_wants(node, INPUT_X) ||
        fri_slot_found(node, SAVED_X)->kind != FRI_SLOT_TENSOR)
        return FR_OK;
    FRI_TRY(read_saved(node, false, FRI_ACTIVATION_NONE, &r));
    if (fri_tensor_sole(*dy))
        out = fr_tensor_retain(*dy);
    else
        FRI_TRY(fri_new_like(*dy, FR_MEM_TEMPORARY, &out));
    FRI_TRY(new_vectors(node, *dy, dgamma, dbeta));
    FRI_TRY(fri_tensor_new(&two, fri_real_of(*dy), be->device, FR_MEM_TEMPORARY, &sums));
    FRI_TRY(fri_workspace_begin(*dy, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
    FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_backward_sums,
                       (&ws.exec, d, fri_data(r.x), r.norm.mean, r.norm.invstd,
                        fri_slot_found(node, SAVED_SIGNS)->storage->block->data, fri_data(*dy), fri_data(node->last),
                        fri_data(out), *dgamma != NULL ? fri_data(*dgamma) : NULL,
                        *dbeta != NULL ? fri_data(*dbeta) : NULL, fri_data(sums))));
    fr_tensor_release(&node->last);
    fr_node_release_saved(node, SAVED_SIGNS);
    fri_tensor_put(&out, dy);
    fri_tensor_put(&sums, half);
    return FR_OK;
}

static bool has_addend(const fr_node *node) {
    return fr_node_inputs(node) > INPUT_ADDEND;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    const fri_batchnorm2d_desc *d = &p->desc;
    FRI_OWNED(fr_tensor_release) fr_tensor *dbeta = NULL, *dgamma = NULL, *dx = NULL, *half = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read r = {0};
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    const fri_activation act = p->masks ? FRI_ACTIVATION_NONE : p->act;
    if (p->masks) FRI_TRY(add_with_sums(node, dy, &dgamma, &dbeta, &half));
    if (p->masks && half == NULL) {
        FRI_TRY(fr_node_mask(node, SAVED_SIGNS, 0, dy, &dx));
        FRI_MOVE(dy, dx);
    }
    if (has_addend(node)) { /* its gradient is dy itself */
        fr_tensor *shared = fr_tensor_retain(*dy);
        FRI_TRY(fr_node_grad(node, INPUT_ADDEND, &shared));
    }
    const fri_backend *be = fri_backend_of(*dy);
    FRI_TRY(read_saved(node, act, act, &r));
    if (half == NULL) FRI_TRY(new_vectors(node, *dy, &dgamma, &dbeta));
    if (fr_node_wants(node, INPUT_X)) /* for a smooth act, dx first holds an intermediate, and x is read again */
        FRI_TRY(fri_gradient_over(node, SAVED_X, fri_reads_x(act) ? NULL : r.x, *dy, &dx));
    if (half != NULL) {
        FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_backward_rest,
                           (FRI_EXEC, d, fri_data(r.x), r.norm.mean, r.norm.invstd, r.norm.gamma, fri_data(half),
                            fri_data(*dy), fri_data(dx))));
    } else {
        FRI_TRY(fri_workspace_begin(*dy, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
        FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_backward,
                           (&ws.exec, d, p->train, fri_data(r.x != NULL ? r.x : *dy), r.norm.mean, r.norm.invstd,
                            r.norm.gamma, r.norm.beta, act, fri_data(*dy), dx != NULL ? fri_data(dx) : NULL,
                            dgamma != NULL ? fri_data(dgamma) : NULL, dbeta != NULL ? fri_data(dbeta) : NULL)));
        fri_workspace_end(&ws);
    }
    fr_tensor_release(&half);
    fri_norm_read_end(&r);
    fr_node_release_saved(node, SAVED_X);
    fr_tensor_release(dy);
    FRI_TRY(fr_node_grad(node, INPUT_GAMMA, &dgamma));
    FRI_TRY(fr_node_grad(node, INPUT_BETA, &dbeta));
    return fr_node_grad(node, INPUT_X, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const params *p = fr_node_params(node);
    fr_tensor *addend = has_addend(node) ? in[INPUT_ADDEND] : NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read r = {0};
    FRI_TRY(read_saved(node, true, p->act, &r));
    if (addend != NULL)
        FRI_TRY(fri_gradient_like(addend, &out));
    else
        FRI_TRY(fri_new_like(r.x, FR_MEM_TEMPORARY, &out));
    FRI_TRY(apply_norm(&p->desc, r.x, &r.norm, addend, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

#define NORM .name = "batchnorm2d", .backward = backward
#define SUM  NORM, .rebuild = rebuild, .rebuild_inputs = 1 << INPUT_ADDEND
static const fr_op batchnorm2d = {NORM, .rebuild = rebuild};
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
    fri_workspace ws = {0};
    fr_status s = FR_OK;
    fri_batchnorm2d_desc counting = *desc, *d = &counting;
    fr_shape vector = FRI_SHAPE(d->c);
    const fri_backend *be = fri_backend_of(x);
    fr_tensor *running_mean = norm->running_mean;
    fr_node *twin = fri_recompute_twin();
    if (twin != NULL && twin->op == op && twin->slots[saved_mean].kind == FRI_SLOT_TENSOR) {
        FR_TRY(s, fr_node_saved(twin, saved_mean, mean));
        FR_TRY(s, fr_node_saved(twin, saved_mean + 1, invstd));
        goto done;
    }
    bool update = fri_statistics_move() && running_mean != NULL;
    FR_TRY(s, fri_tensor_new(&vector, fri_real_of(x), be->device, FR_MEM_TEMPORARY, mean));
    FR_TRY(s, fri_tensor_new(&vector, fri_real_of(x), be->device, FR_MEM_TEMPORARY, invstd));
    d->batches = update && norm->batches != NULL ? fri_data(norm->batches) : NULL;
    void *moved_mean = update ? fri_data(running_mean) : NULL;
    void *moved_var = update ? fri_data(norm->running_var) : NULL;
    FR_TRY(s, fri_workspace_begin(x, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
    FR_TRY(s, FRI_KERNEL(be, d->dtype, batchnorm2d_stats,
                         (&ws.exec, d, fri_data(x), fri_data(*mean), fri_data(*invstd), moved_mean, moved_var)));
    if (update) {
        fri_bump_version(running_mean);
        fri_bump_version(norm->running_var);
        if (norm->batches != NULL) fri_bump_version(norm->batches);
    }
done:
    fri_workspace_end(&ws);
    return s;
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

static fr_status get_statistics(const fr_op *op, const params *p, const fr_tensor *x, const fri_norm *norm,
                                fr_tensor **mean, fr_tensor **invstd) {
    return p->train ? fri_batch_statistics(op, SAVED_MEAN, &p->desc, x, norm, mean, invstd)
                    : fri_running_statistics(&p->desc, x, norm, mean, invstd);
}

/* True if backward reads x. A recomputation asks what the node of the forward saved. */
static bool keeps_input(const params *p, fr_tensor *const *in, bool smooth) {
    const fr_node *twin = fri_recompute_twin();
    const bool gamma = in[INPUT_GAMMA] != NULL && in[INPUT_GAMMA]->requires_grad;
    const bool beta = in[INPUT_BETA] != NULL && in[INPUT_BETA]->requires_grad;
    if (twin != NULL) return twin->op != &batchnorm2d_without_x;
    return p->train || gamma || (smooth && (in[INPUT_X]->requires_grad || beta));
}

bool fri_norm_fuses(const fr_tensor *x, const fr_tensor *addend) {
    const fr_node *twin = fri_recompute_twin();
    if (addend != NULL && (addend->dtype != x->dtype || fri_device_of(addend) != fri_device_of(x) ||
                           !fri_shape_equal(&addend->shape, &x->shape)))
        return false;
    if (twin == NULL || twin->op->backward != backward) return fri_fusion_permitted();
    return has_addend(twin) || ((const params *)twin->params)->act;
}

/* Result of a call: over the addend or x where the caller gives it up and no slot keeps it. */
static fr_status new_result(fri_call *c, bool keeps_x, bool masks, fr_tensor **addend, fr_tensor *const *y,
                            bool *wanted, fr_tensor **out) {
    fr_tensor *x = c->in[INPUT_X];
    if (addend != NULL && (masks || !fri_recompute_ends(c->in, c->n_in))) return fri_result_like(*addend, addend, out);
    if (addend == NULL && *y == x && !(keeps_x && fr_grad_enabled())) return fri_result_like(x, y, out);
    if (addend == NULL && masks) return fri_new_like(x, FR_MEM_TEMPORARY, out);
    return fri_result_new(c, &x->shape, x->dtype, wanted, out);
}

fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, fr_tensor **addend, fri_activation act, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *invstd = NULL, *mean = NULL, *out = NULL;
    fr_tensor *in[INPUTS] = {x, norm->gamma, norm->beta, addend != NULL ? *addend : NULL};
    params p = {.train = norm->opts == NULL || norm->opts->train, .act = act};
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &batchnorm2d, 1, in, INPUTS));
    FRI_TRY(fri_batchnorm2d_describe(&batchnorm2d, x, norm, &p.desc));
    const bool keeps_x = keeps_input(&p, in, fri_reads_x(act));
    const fr_op *op = !keeps_x         ? &batchnorm2d_without_x
                      : addend == NULL ? &batchnorm2d
                      : act            ? &batchnorm2d_sum_act
                                       : &batchnorm2d_sum;
    p.masks = act && (addend != NULL || !keeps_x);
    FRI_TRY(get_statistics(op, &p, x, norm, &mean, &invstd));
    FRI_TRY(new_result(&c, keeps_x, p.masks, addend, y, &wanted, &out));
    const fri_conv2d_norm v = vectors_of(mean, invstd, norm->gamma, norm->beta, act);
    if (wanted) FRI_TRY(apply_norm(&p.desc, x, &v, in[INPUT_ADDEND], out));
    const fr_save saves[SAVED_COUNT] = {{p.masks ? out : NULL,
                                         act == FRI_ACTIVATION_RELU6 ? FR_SAVE_RELU6 : FR_SAVE_MASK},
                                        {keeps_x ? x : NULL, FR_SAVE_VALUE},
                                        {norm->gamma, FR_SAVE_SMALL},
                                        {norm->beta, FR_SAVE_SMALL},
                                        {mean, FR_SAVE_SMALL},
                                        {invstd, FR_SAVE_SMALL}};
    FRI_TRY(fr_op_record(op, &p, sizeof p, in,
                         addend != NULL        ? INPUTS
                         : norm->gamma != NULL ? INPUT_ADDEND
                                               : 1,
                         saves, SAVED_COUNT, out));
    if (addend != NULL) fr_tensor_release(addend);
    fri_tensor_put(&out, y);
    return FR_OK;
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
