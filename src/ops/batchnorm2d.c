/* batchnorm2d - batch normalization over N, H, W (Ioffe and Szegedy, 2015).
 *   forward    y = (x - mean) * invstd * gamma + beta,  invstd = 1 / sqrt(var + eps)
 *   backward   dbeta = sum dy;  dgamma = sum dy * xhat;
 *              train dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat));  eval dx = gamma * invstd * dy
 *   saves      x, gamma, beta, and [C] values mean and invstd (small: kept inside checkpoints). In eval mode x is
 *              saved only if gamma or a smooth activation needs x; otherwise relu's or relu6's signs take the slot
 *   activation norm and activation in one call are one node: backward applies the mask, or f', to values that the pass
 *              recomputes in registers
 *   in-place   forward where x is not saved; backward yes (dx over dy, else over x at its last use)
 *   rebuild    from the saved x and statistics, by the forward's own kernel; not where x is not saved
 *   recompute  statistics are read from the first forward's node; running values are never touched */
#include "ops/batchnorm2d.h"

#include "backend/arith.h"
#include "base/status.h"

#include <math.h>

typedef struct params {
    fri_batchnorm2d_desc desc;
    bool train;
    fri_activation act; /* of norm and activation in one node */
    /* Results of a backward that the pass over dy has started (begin); else NULL. */
    fr_tensor *dgamma, *dbeta, *half;
} params;

enum { SAVED_X, SAVED_GAMMA, SAVED_BETA, SAVED_MEAN, SAVED_INVSTD, SAVED_COUNT };

static fr_status apply_norm(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fr_tensor *mean,
                            const fr_tensor *invstd, const fr_tensor *gamma, const fr_tensor *beta,
                            const fr_tensor *addend, fri_activation act, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), d->dtype, batchnorm2d_apply,
                      (FRI_EXEC, d, fri_data(x), fri_data(mean), fri_data(invstd),
                       gamma != NULL ? fri_data(gamma) : NULL, beta != NULL ? fri_data(beta) : NULL,
                       addend != NULL ? fri_data(addend) : NULL, act, fri_data(y)));
}

static const fr_op batchnorm2d, batchnorm2d_without_x;

/* Activation whose gradient the backward kernel applies. */
static fri_activation kernel_activation(const fr_node *node) {
    return node->op == &batchnorm2d_without_x ? FRI_ACTIVATION_NONE : ((const params *)node->params)->act;
}

static void forget_begun(params *p) {
    fr_tensor_release(&p->dgamma);
    fr_tensor_release(&p->dbeta);
    fr_tensor_release(&p->half);
}

static void params_free(void *of) {
    forget_begun(of);
}

/* Allocates the requested gradients of gamma and beta for a node's backward on dy. */
static fr_status new_vectors(const fr_node *node, const fr_tensor *dy, fr_tensor **dgamma, fr_tensor **dbeta) {
    const params *p = fr_node_params(node);
    const fr_dtype real = fri_real_of(dy);
    const bool affine = fr_node_inputs(node) > 1;
    fr_shape vector = FRI_SHAPE(p->desc.c);
    if (affine && fr_node_wants(node, 1))
        FRI_TRY(fri_tensor_new(&vector, real, fri_device_of(dy), FR_MEM_TEMPORARY, dgamma));
    if (affine && fr_node_wants(node, 2))
        FRI_TRY(fri_tensor_new(&vector, real, fri_device_of(dy), FR_MEM_TEMPORARY, dbeta));
    return FR_OK;
}

/* Computes sum(dy) and sum(dy * xhat) in the pass that writes dy, which saves a pass over x and dy. x must be in
 * memory. */
static fr_status begin_backward(fr_node *node, const uint8_t *bits, const fr_tensor *a, const fr_tensor *b,
                                fr_tensor *dy, bool *done) {
    params *p = node->params;
    const fri_batchnorm2d_desc *d = &p->desc;
    const fri_slot *slot = fri_slot_found(node, SAVED_X);
    const fri_backend *be = fri_backend_of(dy);
    fr_tensor *mean = NULL, *invstd = NULL;
    fri_workspace ws = {0};
    fr_shape half = FRI_SHAPE(2, d->c);
    fr_status s = FR_OK;
    if (!p->train || d->sync != NULL || !fr_node_wants(node, 0) || slot->kind != FRI_SLOT_TENSOR ||
        slot->version != slot->storage->version)
        return FR_OK;
    const char *data = slot->storage->block->data, *x = data != NULL ? data + slot->offset : NULL;
    forget_begun(p); /* left by a failed backward */
    FR_TRY(s, fr_node_saved(node, SAVED_MEAN, &mean));
    FR_TRY(s, fr_node_saved(node, SAVED_INVSTD, &invstd));
    FR_TRY(s, new_vectors(node, dy, &p->dgamma, &p->dbeta));
    FR_TRY(s, fri_tensor_new(&half, fri_real_of(dy), be->device, FR_MEM_TEMPORARY, &p->half));
    FR_TRY(s, fri_workspace_begin(dy, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
    FR_TRY(s, FRI_KERNEL(be, d->dtype, batchnorm2d_backward_sums,
                         (&ws.exec, d, x, fri_data(mean), fri_data(invstd), bits, fri_data(a), fri_data(b),
                          fri_data(dy), p->dgamma != NULL ? fri_data(p->dgamma) : NULL,
                          p->dbeta != NULL ? fri_data(p->dbeta) : NULL, fri_data(p->half))));
    *done = true;
done:
    fri_workspace_end(&ws);
    fr_tensor_release(&mean);
    fr_tensor_release(&invstd);
    if (s < 0) forget_begun(p);
    return s;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    params *p = node->params;
    const fri_batchnorm2d_desc *d = &p->desc;
    FRI_OWNED(fr_tensor_release) fr_tensor *dbeta = NULL, *dgamma = NULL, *dx = NULL, *invstd = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *mean = NULL, *beta = NULL, *gamma = NULL, *x = NULL;
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    const fri_backend *be = fri_backend_of(*dy);
    const fri_activation act = kernel_activation(node);
    bool affine = fr_node_inputs(node) > 1;
    if (p->act && !act) { /* eval mode: the slot of x has the signs of the result */
        FRI_TRY(fr_node_mask(node, SAVED_X, 0, dy, &dx));
        FRI_MOVE(dy, dx);
    } else {
        FRI_TRY(fr_node_saved(node, SAVED_X, &x));
    }
    FRI_TRY(fr_node_saved(node, SAVED_GAMMA, &gamma));
    if (act) FRI_TRY(fr_node_saved(node, SAVED_BETA, &beta));
    FRI_TRY(fr_node_saved(node, SAVED_MEAN, &mean));
    FRI_TRY(fr_node_saved(node, SAVED_INVSTD, &invstd));
    if (p->half == NULL) FRI_TRY(new_vectors(node, *dy, &dgamma, &dbeta));
    if (fr_node_wants(node, 0)) /* for a smooth act, dx first holds an intermediate, and x is read again */
        FRI_TRY(fri_gradient_over(node, SAVED_X, fri_reads_x(act) ? NULL : x, *dy, &dx));
    if (p->half != NULL) {
        FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_backward_rest,
                           (FRI_EXEC, d, fri_data(x), fri_data(mean), fri_data(invstd),
                            gamma != NULL ? fri_data(gamma) : NULL, fri_data(p->half), fri_data(*dy), fri_data(dx))));
        fri_tensor_put(&p->dgamma, &dgamma);
        fri_tensor_put(&p->dbeta, &dbeta);
        fr_tensor_release(&p->half);
    } else {
        FRI_TRY(fri_workspace_begin(*dy, FRI_KERNEL_BYTES(be, d->dtype, batchnorm2d_workspace, (d)), &ws));
        FRI_TRY(FRI_KERNEL(be, d->dtype, batchnorm2d_backward,
                           (&ws.exec, d, p->train, fri_data(x != NULL ? x : *dy), fri_data(mean), fri_data(invstd),
                            gamma != NULL ? fri_data(gamma) : NULL, beta != NULL ? fri_data(beta) : NULL, act,
                            fri_data(*dy), dx != NULL ? fri_data(dx) : NULL, dgamma != NULL ? fri_data(dgamma) : NULL,
                            dbeta != NULL ? fri_data(dbeta) : NULL)));
        fri_workspace_end(&ws);
    }
    fr_tensor_release(&x);
    fr_node_release_saved(node, SAVED_X);
    fr_tensor_release(dy);
    if (affine) FRI_TRY(fr_node_grad(node, 1, &dgamma));
    if (affine) FRI_TRY(fr_node_grad(node, 2, &dbeta));
    return fr_node_grad(node, 0, &dx);
}

static fr_status rebuild_as(fr_node *node, fr_tensor *addend, fri_activation act, fr_tensor **y) {
    const params *p = fr_node_params(node);
    fr_tensor *saved[SAVED_COUNT] = {0}, *out = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < SAVED_COUNT; i++) FR_TRY(s, fr_node_saved(node, i, &saved[i]));
    if (fr_tensor_reusable(addend))
        out = fr_tensor_retain(addend);
    else
        FR_TRY(s, fri_new_like(saved[SAVED_X], FR_MEM_TEMPORARY, &out));
    FR_TRY(s, apply_norm(&p->desc, saved[SAVED_X], saved[SAVED_MEAN], saved[SAVED_INVSTD], saved[SAVED_GAMMA],
                         saved[SAVED_BETA], addend, act, out));
    fri_tensor_put(&out, y);
done:
    for (int i = 0; i < SAVED_COUNT; i++) fr_tensor_release(&saved[i]);
    fr_tensor_release(&out);
    return s;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    (void)in;
    return rebuild_as(node, NULL, ((const params *)node->params)->act, y);
}

/* Recomputes norm, residual sum and activation in one pass, because rebuilding is bound by memory traffic. Not for a
 * smooth activation of a sum in half precision, which would see the unrounded sum. */
static fr_status rebuild_next(fr_node *node, fr_tensor **addend, const fr_op *next, fr_tensor **y) {
    const fri_activation own = ((const params *)node->params)->act;
    const fri_activation act = next != NULL ? fri_activation_of(next) : own;
    if (own && (addend != NULL || next != NULL)) return FR_EUNSUPPORTED;
    if ((next != NULL && act == FRI_ACTIVATION_NONE) || (addend != NULL && fri_reads_x(act))) return FR_EUNSUPPORTED;
    if (y == NULL) return FR_OK;
    fr_status s = rebuild_as(node, addend != NULL ? *addend : NULL, act, y);
    if (addend != NULL) fr_tensor_release(addend);
    return s;
}

static const fr_op batchnorm2d = {.name = "batchnorm2d",
                                  .backward = backward,
                                  .rebuild = rebuild,
                                  .rebuild_next = rebuild_next,
                                  .params_free = params_free};
/* Eval mode: dx is a multiple of dy, and only the gradients of gamma and of a smooth activation need x. */
static const fr_op batchnorm2d_without_x = {.name = "batchnorm2d", .backward = backward};

void fri_norm_read_end(fri_norm_read *r) {
    fr_tensor_release(&r->x);
    fr_tensor_release(&r->mean);
    fr_tensor_release(&r->invstd);
    fr_tensor_release(&r->gamma);
    fr_tensor_release(&r->beta);
}

fr_status fri_norm_read_of(fr_node *norm, fri_norm_read *r) {
    if (norm->op != &batchnorm2d) return FR_OK;
    FRI_TRY(fr_node_saved(norm, SAVED_MEAN, &r->mean));
    FRI_TRY(fr_node_saved(norm, SAVED_INVSTD, &r->invstd));
    FRI_TRY(fr_node_saved(norm, SAVED_GAMMA, &r->gamma));
    FRI_TRY(fr_node_saved(norm, SAVED_BETA, &r->beta));
    FRI_TRY(fr_node_saved(norm, SAVED_X, &r->x));
    r->norm = (fri_conv2d_norm){.mean = fri_data(r->mean),
                                .invstd = fri_data(r->invstd),
                                .gamma = r->gamma != NULL ? fri_data(r->gamma) : NULL,
                                .beta = r->beta != NULL ? fri_data(r->beta) : NULL,
                                .act = ((const params *)norm->params)->act};
    return FR_OK;
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

static fr_status get_statistics(const params *p, const fr_tensor *x, const fri_norm *norm, fr_tensor **mean,
                                fr_tensor **invstd) {
    return p->train ? fri_batch_statistics(&batchnorm2d, SAVED_MEAN, &p->desc, x, norm, mean, invstd)
                    : fri_running_statistics(&p->desc, x, norm, mean, invstd);
}

/* True if backward reads x. A recomputation asks what the node of the forward saved. */
static bool keeps_output(const params *p, fr_tensor *const *in, fri_activation act) {
    const fr_node *twin = fri_recompute_twin();
    const bool gamma = in[1] != NULL && in[1]->requires_grad, beta = in[2] != NULL && in[2]->requires_grad;
    if (twin != NULL) return twin->op != &batchnorm2d_without_x;
    return p->train || gamma || (fri_reads_x(act) && (in[0]->requires_grad || beta));
}

/* batch_norm(x) with a tail's sum and activation. `over` (may be NULL) receives the sum; *y then has no storage. The
 * activation belongs to the node unless a sum is between norm and activation. */
static fr_status normalize_values(fr_tensor *x, const fri_norm *norm, const fr_tensor *addend, fr_tensor *over,
                                  fri_activation act, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *invstd = NULL, *mean = NULL, *out = NULL;
    fr_tensor *in[] = {x, norm->gamma, norm->beta};
    params p = {.train = norm->opts == NULL || norm->opts->train, .act = addend == NULL ? act : FRI_ACTIVATION_NONE};
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &batchnorm2d, 1, in, 3));
    FRI_TRY(fri_batchnorm2d_describe(&batchnorm2d, x, norm, &p.desc));
    FRI_TRY(get_statistics(&p, x, norm, &mean, &invstd));
    const bool keeps_x = keeps_output(&p, c.in, act);
    if (over != NULL) {
        wanted = !fri_recompute_ends(c.in, c.n_in);
        FRI_TRY(fri_result_none(&c, &x->shape, x->dtype, &out));
    } else if (addend == NULL && *y == x && !(keeps_x && fr_grad_enabled())) {
        FRI_TRY(fri_result_like(x, y, &out));
    } else if (p.act && !keeps_x) {
        FRI_TRY(fri_new_like(x, FR_MEM_TEMPORARY, &out));
    } else {
        FRI_TRY(fri_result_new(&c, &x->shape, x->dtype, &wanted, &out));
    }
    if (wanted) FRI_TRY(apply_norm(&p.desc, x, mean, invstd, in[1], in[2], addend, act, over != NULL ? over : out));
    const fr_save signs = {p.act ? out : NULL, p.act == FRI_ACTIVATION_RELU ? FR_SAVE_MASK : FR_SAVE_RELU6};
    fr_save saves[SAVED_COUNT] = {keeps_x ? (fr_save){x, FR_SAVE_VALUE} : signs,
                                  {in[1], FR_SAVE_SMALL},
                                  {in[2], FR_SAVE_SMALL},
                                  {mean, FR_SAVE_SMALL},
                                  {invstd, FR_SAVE_SMALL}};
    FRI_TRY(fr_op_record(keeps_x ? &batchnorm2d : &batchnorm2d_without_x, &p, sizeof p, in, in[1] != NULL ? 3 : 1,
                         saves, SAVED_COUNT, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

/* True if the normalizing pass can add the addend. */
static bool can_add(const fri_norm_tail *tail, const fr_tensor *x) {
    fr_tensor *a = tail->addend != NULL ? *tail->addend : NULL;
    return a != NULL && a->dtype == x->dtype && fri_device_of(a) == fri_device_of(x) &&
           fri_shape_equal(&a->shape, &x->shape);
}

/* True if the sum may overwrite the addend. */
static bool can_overwrite(const fr_tensor *addend) {
    const bool leaf = addend->requires_grad && fri_node_of(addend) == NULL;
    return !leaf && fr_tensor_reusable(addend);
}

/* *y += the addend, in the storage of either; releases the other handle. */
static fr_status add_tail(const fri_norm_tail *tail, bool over, bool there, bool relu, fr_tensor **y) {
    fr_tensor **sum = over ? tail->addend : y, **other = over ? y : tail->addend;
    FRI_TRY(fri_add_tail(*sum, *other, there, relu, sum));
    fr_tensor_release(other);
    if (over) fri_tensor_put(sum, y);
    return FR_OK;
}

/* True if the call may leave out inner results. A recomputation records the nodes of the forward. */
static bool may_fuse(const fri_norm_tail *tail) {
    const fr_node *twin = tail->addend == NULL ? fri_recompute_twin() : NULL;
    if (twin == NULL || (twin->op != &batchnorm2d && twin->op != &batchnorm2d_without_x)) return fri_fusion_permitted();
    return ((const params *)twin->params)->act;
}

fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, const fri_norm_tail *tail, fr_tensor **y) {
    const fri_norm_tail none = {0};
    fr_status s = FR_OK;
    if (tail == NULL) tail = &none;
    const bool fuse = tail != &none && may_fuse(tail);
    const bool reaches = fuse && can_add(tail, x), over = reaches && can_overwrite(*tail->addend);
    const bool adds = reaches && (over || !tail->over), acts = fuse && tail->act;
    const bool activated = acts && (adds || tail->addend == NULL); /* in the norm's own pass */
    fr_tensor *addend = adds ? *tail->addend : NULL;
    FR_TRY(s, normalize_values(x, norm, addend, over ? addend : NULL, activated ? tail->act : FRI_ACTIVATION_NONE, y));
    if (activated && !adds) return FR_OK;
    fr_node *norm_node = adds && fr_grad_enabled() ? fri_node_of(*y) : NULL;
    const char *was = fri_scope_module();
    if (tail->module != NULL) (void)fri_scope_module_set(tail->module);
    if (tail->addend != NULL) s = add_tail(tail, over || tail->over, adds, acts, y);
    if (tail->act_module != NULL) (void)fri_scope_module_set(tail->act_module);
    if (s == FR_OK && tail->act) s = fri_act_tail(tail->act, *y, acts, y);
    if (s == FR_OK && tail->act == FRI_ACTIVATION_RELU && acts && norm_node != NULL) {
        fri_node_of(*y)->reader = norm_node;
        fri_node_of(*y)->begin = begin_backward;
    }
    fri_scope_module_pop(was);
done:
    return s;
}

fr_status fr_batchnorm2d(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *running_mean,
                         fr_tensor *running_var, const fr_batchnorm2d_opts *opts, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    const fri_norm norm = {.gamma = gamma,
                           .beta = beta,
                           .running_mean = running_mean,
                           .running_var = running_var,
                           .opts = opts};
    return fri_norm_act(x, &norm, NULL, y);
}
