/* group_norm - normalization over groups of channels of each image (Wu and He, 2018), or over the last dimension (layer
 * norm; Ba et al., 2016).
 *   forward    y = (x - mean) * invstd * gamma + beta,  invstd = 1 / sqrt(var + eps), of each group
 *   backward   dbeta = sum dy;  dgamma = sum dy * xhat;
 *              dx = invstd * (g - mean(g) - xhat * mean(g * xhat)) with g = gamma * dy, means over the group
 *   saves      x, gamma (references), mean and invstd
 *   in-place   backward only (dx over dy, else over x at its last use)
 *   rebuild    no
 *   order      deterministic
 *   autocast   f32 */
#include "ops/op.h"

enum { SAVED_X, SAVED_GAMMA, SAVED_MEAN, SAVED_INVSTD, SAVED_COUNT };

static fr_status run_backward(const fri_group_norm_desc *d, fr_tensor *const t[SAVED_COUNT], const fr_tensor *dy,
                              fr_tensor *dx, fr_tensor *dgamma, fr_tensor *dbeta) {
    const fri_backend *be = fri_backend_of(dy);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    if (dgamma != NULL)
        FRI_TRY(fri_workspace_begin(dy, FRI_KERNEL_BYTES(be, d->dtype, group_norm_workspace, (d)), &ws));
    return FRI_KERNEL(be, d->dtype, group_norm_backward,
                      (dgamma != NULL ? &ws.exec : FRI_EXEC, d, fri_data(t[SAVED_X]), fri_data(t[SAVED_GAMMA]),
                       fri_data(t[SAVED_MEAN]), fri_data(t[SAVED_INVSTD]), fri_data(dy),
                       dx != NULL ? fri_data(dx) : NULL, dgamma != NULL ? fri_data(dgamma) : NULL,
                       dbeta != NULL ? fri_data(dbeta) : NULL));
}

/* The kernel computes dgamma and dbeta together; an unwanted gradient is dropped afterwards. */
static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_group_norm_desc *d = fr_node_params(node);
    const fr_shape vector = FRI_SHAPE(d->c);
    const bool vectors = fr_node_wants(node, 1) || fr_node_wants(node, 2);
    fr_tensor *t[SAVED_COUNT] = {NULL}, *dx = NULL, *dgamma = NULL, *dbeta = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < SAVED_COUNT; i++) FR_TRY(s, fr_node_saved(node, i, &t[i]));
    if (vectors) {
        FR_TRY(s, fri_tensor_new(&vector, fri_real_of(*dy), fri_device_of(*dy), FR_MEM_TEMPORARY, &dgamma));
        FR_TRY(s, fri_tensor_new(&vector, fri_real_of(*dy), fri_device_of(*dy), FR_MEM_TEMPORARY, &dbeta));
    }
    if (fr_node_wants(node, 0)) FR_TRY(s, fri_gradient_over(node, SAVED_X, t[SAVED_X], *dy, &dx));
    FR_TRY(s, run_backward(d, t, *dy, dx, dgamma, dbeta));
    fr_tensor_release(&t[SAVED_X]);
    fr_node_release_saved(node, SAVED_X);
    fr_tensor_release(dy);
    if (fr_node_wants(node, 1)) FR_TRY(s, fr_node_grad(node, 1, &dgamma));
    if (fr_node_wants(node, 2)) FR_TRY(s, fr_node_grad(node, 2, &dbeta));
    if (fr_node_wants(node, 0)) FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    for (int i = 0; i < SAVED_COUNT; i++) fr_tensor_release(&t[i]);
    fr_tensor_release(&dx);
    fr_tensor_release(&dgamma);
    fr_tensor_release(&dbeta);
    return s;
}

static const fr_op group_norm = {.name = "group_norm", .autocast = FR_AUTOCAST_F32, .backward = backward};
static const fr_op layer_norm = {.name = "layer_norm", .autocast = FR_AUTOCAST_F32, .backward = backward};

static fr_status expect_real(const fr_op *op, const fr_tensor *x, const fr_tensor *t, const char *what, int64_t c) {
    fr_status s = fri_expect_vector(op, t, what, c);
    if (s < 0 || t->dtype == fri_real_of(x)) return s;
    return fr_fail(FR_EDTYPE, "%s: %s is %s; %s is needed for x in %s", op->name, what, fr_dtype_name(t->dtype),
                   fr_dtype_name(fri_real_of(x)), fr_dtype_name(x->dtype));
}

/* Normalizes x by the groups of d. */
static fr_status run_norm(const fr_op *op, const fri_call *c, const fri_group_norm_desc *d, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *invstd = NULL, *mean = NULL, *out = NULL;
    fr_tensor *const *in = c->in;
    const fri_backend *be = fri_backend_of(in[0]);
    const fr_shape statistic = FRI_SHAPE(d->n, d->groups);
    FRI_TRY(expect_real(op, in[0], in[1], "gamma", d->c));
    FRI_TRY(expect_real(op, in[0], in[2], "beta", d->c));
    if (!(d->eps >= 0)) FRI_TRY(fr_fail(FR_EINVAL, "%s: eps is %g; it must be >= 0", op->name, d->eps));
    FRI_TRY(fri_new_like(in[0], FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_tensor_new(&statistic, fri_real_of(in[0]), be->device, FR_MEM_TEMPORARY, &mean));
    FRI_TRY(fri_tensor_new(&statistic, fri_real_of(in[0]), be->device, FR_MEM_TEMPORARY, &invstd));
    FRI_TRY(FRI_KERNEL(be, d->dtype, group_norm_forward,
                       (FRI_EXEC, d, fri_data(in[0]), fri_data(in[1]), fri_data(in[2]), fri_data(out), fri_data(mean),
                        fri_data(invstd))));
    fr_save saves[SAVED_COUNT] = {{in[0], FR_SAVE_VALUE},
                                  {in[1], FR_SAVE_VALUE},
                                  {mean, FR_SAVE_VALUE},
                                  {invstd, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(op, d, sizeof *d, in, 3, saves, SAVED_COUNT, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fr_group_norm(fr_tensor *x, int64_t groups, fr_tensor *gamma, fr_tensor *beta, double eps, fr_tensor **y) {
    FRI_NOT_NULL(x, gamma, beta, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_TRY(fri_call_begin(&c, &group_norm, 3, (fr_tensor *[]){x, gamma, beta}, 3));
    FRI_TRY(fri_expect_float(&group_norm, c.in[0], "x"));
    FRI_TRY(fri_expect_rank(&group_norm, c.in[0], "x", 4));
    const int64_t *dim = c.in[0]->shape.dim;
    if (groups < 1 || dim[3] % groups != 0)
        FRI_TRY(fr_fail(FR_ESHAPE, "group_norm: %lld groups for %lld channels; groups must divide channels",
                        (long long)groups, (long long)dim[3]));
    const fri_group_norm_desc d = {c.in[0]->dtype, dim[0], dim[1] * dim[2], dim[3], groups, eps};
    return run_norm(&group_norm, &c, &d, y);
}

fr_status fr_layer_norm(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, double eps, fr_tensor **y) {
    FRI_NOT_NULL(x, gamma, beta, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_TRY(fri_call_begin(&c, &layer_norm, 3, (fr_tensor *[]){x, gamma, beta}, 3));
    FRI_TRY(fri_expect_float(&layer_norm, c.in[0], "x"));
    if (c.in[0]->shape.rank < 1) FRI_TRY(fr_fail(FR_ESHAPE, "layer_norm: x has rank 0; at least 1 is needed"));
    const int64_t width = c.in[0]->shape.dim[c.in[0]->shape.rank - 1];
    const fri_group_norm_desc d = {c.in[0]->dtype, fri_rows(c.in[0]), 1, width, 1, eps};
    return run_norm(&layer_norm, &c, &d, y);
}
