/* inplace_abn - in-place activated batch norm (Rota Bulo, Porzi, Kontschieder, CVPR 2018; InPlace-ABN).
 *   forward    y = leaky_relu((x - mean) * invstd * w + beta, slope),  w = |gamma| + eps > 0, slope > 0; slope
 *              FR_ABN_IDENTITY: no activation, FR_ABN_ELU: elu instead
 *   backward   z = leaky_relu^-1(y), x = (z - beta) / w / invstd + mean, then batch norm's backward on that x;
 *              dgamma = sign(gamma) * dw
 *   saves      y (the next op saves it anyway; its sign in eval mode where gamma wants no gradient), [C] values; not x
 *   in-place   always over x unless another reader needs x
 *   rebuild    no (y is kept)
 *   bound      x comes back with a relative rounding error of about (1 + |z| / |z - beta|) epsilon per element:
 *              gradients equal the plain form's within the tolerance that docs/ops/inplace_abn.md states, not bit
 *              for bit
 *   order      deterministic */
#include "ops/batchnorm2d.h"

#include "base/status.h"

typedef struct params {
    fri_batchnorm2d_desc desc;
    bool train, inverts; /* inverts: backward needs x */
    double slope;
} params;

enum { SAVED_Y, SAVED_GAMMA, SAVED_BETA, SAVED_MEAN, SAVED_INVSTD, SAVED_WEIGHT, SAVED_COUNT };

/* ---- small vectors, from existing kernels -------------------------------------------------------------------- */

/* out = 1 / v for positive v, computed as the inverse standard deviation of variance v * v. */
static fr_status reciprocal_std(const fri_batchnorm2d_desc *d, const fr_tensor *v, fr_tensor **out) {
    FRI_OWNED(fr_tensor_release) fr_tensor *r = NULL, *square = NULL;
    fri_batchnorm2d_desc exact = *d;
    exact.eps = 0;
    FRI_TRY(fri_new_like(v, FR_MEM_TEMPORARY, &square));
    FRI_TRY(fri_new_like(v, FR_MEM_TEMPORARY, &r));
    FRI_TRY(FRI_PASS(v, mul, fri_data(v), fri_data(v), fri_data(square)));
    FRI_TRY(
        FRI_KERNEL(fri_backend_of(v), d->dtype, batchnorm2d_invstd, (FRI_EXEC, &exact, fri_data(square), fri_data(r))));
    fri_tensor_put(&r, out);
    return FR_OK;
}

/* w = |gamma| + eps; a leaky relu of slope -1 is the absolute value. */
static fr_status positive_weight(const fri_batchnorm2d_desc *d, const fr_tensor *gamma, fr_tensor **out) {
    FRI_OWNED(fr_tensor_release) fr_tensor *eps = NULL, *w = NULL;
    FRI_TRY(fri_new_like(gamma, FR_MEM_TEMPORARY, &w));
    FRI_TRY(fri_new_like(gamma, FR_MEM_TEMPORARY, &eps));
    FRI_TRY(fri_tensor_fill(eps, d->eps));
    FRI_TRY(FRI_PASS(gamma, leaky_relu_forward, -1, fri_data(gamma), fri_data(w)));
    FRI_TRY(fri_tensor_add_to(&w, eps, FR_MEM_TEMPORARY));
    fri_tensor_put(&w, out);
    return FR_OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------- */

static fr_status activate(const fr_tensor *x, double slope, fr_tensor *y) {
    if (slope == FR_ABN_IDENTITY && x == y) return FR_OK;
    return slope == FR_ABN_ELU ? FRI_PASS(x, elu_forward, fri_data(x), fri_data(y))
                               : FRI_PASS(x, leaky_relu_forward, slope, fri_data(x), fri_data(y));
}

static fr_status deactivate(const fr_tensor *y, double slope, fr_tensor *z) {
    return slope == FR_ABN_ELU ? FRI_PASS(y, elu_inverse, fri_data(y), fri_data(z))
                               : FRI_PASS(y, leaky_relu_forward, 1 / slope, fri_data(y), fri_data(z));
}

static fr_status activation_backward(double slope, const fr_tensor *y, const fr_tensor *dy, fr_tensor *dz) {
    return slope == FR_ABN_ELU ? FRI_PASS(dy, elu_backward, fri_data(y), fri_data(dy), fri_data(dz))
                               : FRI_PASS(dy, leaky_relu_backward, slope, fri_data(y), fri_data(dy), fri_data(dz));
}

/* Recomputes x from y: the reciprocal slope inverts the activation, exchanged roles invert the affine map. */
static fr_status invert_output(const params *p, fr_tensor *const *saved, fr_tensor **x) {
    FRI_OWNED(fr_tensor_release) fr_tensor *std = NULL, *inverse_weight = NULL, *z = NULL;
    FRI_TRY(reciprocal_std(&p->desc, saved[SAVED_WEIGHT], &inverse_weight));
    FRI_TRY(reciprocal_std(&p->desc, saved[SAVED_INVSTD], &std));
    FRI_TRY(fri_new_like(saved[SAVED_Y], FR_MEM_TEMPORARY, &z));
    FRI_TRY(deactivate(saved[SAVED_Y], p->slope, z));
    const fri_conv2d_norm v =
        fri_norm_vectors(saved[SAVED_BETA], inverse_weight, std, saved[SAVED_MEAN], FRI_ACTIVATION_NONE);
    FRI_TRY(fri_norm_apply(&p->desc, z, &v, NULL, z));
    fri_tensor_put(&z, x);
    return FR_OK;
}

static fr_status batchnorm_backward(const params *p, fr_tensor *const *saved, const fr_tensor *x, const fr_tensor *dz,
                                    fr_tensor *dx, fr_tensor *dgamma, fr_tensor *dbeta) {
    const fri_conv2d_norm v =
        fri_norm_vectors(saved[SAVED_MEAN], saved[SAVED_INVSTD], saved[SAVED_WEIGHT], NULL, FRI_ACTIVATION_NONE);
    FRI_TRY(fri_norm_backward(&p->desc, p->train, x, &v, dz, dx, dgamma, dbeta));
    if (dgamma == NULL) return FR_OK; /* d|gamma| / dgamma = sign(gamma) */
    return FRI_PASS(dgamma, leaky_relu_backward, -1, fri_data(saved[SAVED_GAMMA]), fri_data(dgamma), fri_data(dgamma));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    fr_tensor *saved[SAVED_COUNT] = {0}, *x = NULL, *dz = NULL, *dx = NULL, *dgamma = NULL, *dbeta = NULL;
    fr_status s = FR_OK;
    for (int i = p->inverts ? SAVED_Y : SAVED_GAMMA; i < SAVED_COUNT; i++) FR_TRY(s, fr_node_saved(node, i, &saved[i]));
    if (p->inverts) {
        FR_TRY(s, fri_gradient_like(*dy, &dz));
        FR_TRY(s, activation_backward(p->slope, saved[SAVED_Y], *dy, dz));
        fr_tensor_release(dy);
        FR_TRY(s, invert_output(p, saved, &x));
        fr_tensor_release(&saved[SAVED_Y]);
        fr_node_release_saved(node, SAVED_Y);
    } else {
        FR_TRY(s, fr_node_mask(node, SAVED_Y, p->slope, dy, &dz));
    }
    if (fr_node_wants(node, 1)) FR_TRY(s, fri_new_like(saved[SAVED_GAMMA], FR_MEM_TEMPORARY, &dgamma));
    if (fr_node_wants(node, 2)) FR_TRY(s, fri_new_like(saved[SAVED_BETA], FR_MEM_TEMPORARY, &dbeta));
    if (fr_node_wants(node, 0)) FR_TRY(s, fri_gradient_like(dz, &dx));
    FR_TRY(s, batchnorm_backward(p, saved, x != NULL ? x : dz /* not read */, dz, dx, dgamma, dbeta));
    fr_tensor_release(&x);
    fr_tensor_release(&dz);
    FR_TRY(s, fr_node_grad(node, 1, &dgamma));
    FR_TRY(s, fr_node_grad(node, 2, &dbeta));
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    for (int i = 0; i < SAVED_COUNT; i++) fr_tensor_release(&saved[i]);
    fr_tensor_release(&x);
    fr_tensor_release(&dz);
    fr_tensor_release(&dx);
    fr_tensor_release(&dgamma);
    fr_tensor_release(&dbeta);
    return s;
}

/* ---- forward ----------------------------------------------------------------------------------------------- */

static const fr_op inplace_abn = {.name = "inplace_abn", .backward = backward};

fr_status fri_inplace_abn(fr_tensor *x, const fri_norm *norm, double slope, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL, *mean = NULL, *invstd = NULL, *weight = NULL;
    FRI_OWNED(fri_call_end) fri_call c = {0};
    fr_tensor *gamma = norm->gamma, *beta = norm->beta, *in[] = {x, gamma, beta};
    params p = {.slope = slope, .train = norm->opts == NULL || norm->opts->train};
    FRI_TRY(fri_call_begin(&c, &inplace_abn, 3, in, 3));
    if (!(slope > 0) && slope != FR_ABN_ELU)
        return fr_fail(FR_EINVAL, "inplace_abn: slope is %g; it must be > 0, so that the activation can be inverted",
                       slope);
    FRI_TRY(fri_batchnorm2d_describe(&inplace_abn, x, norm, &p.desc));
    FRI_TRY(p.train ? fri_batch_statistics(&inplace_abn, SAVED_MEAN, &p.desc, x, norm, &mean, &invstd)
                    : fri_running_statistics(&p.desc, x, norm, &mean, &invstd));
    FRI_TRY(positive_weight(&p.desc, gamma, &weight));
    FRI_TRY(fri_result_like(x, y, &out));
    const fri_conv2d_norm v = fri_norm_vectors(mean, invstd, weight, beta, FRI_ACTIVATION_NONE);
    FRI_TRY(fri_norm_apply(&p.desc, x, &v, NULL, out));
    FRI_TRY(activate(out, slope, out));
    p.inverts = p.train || gamma->requires_grad || slope == FR_ABN_ELU;
    fr_save saves[SAVED_COUNT] = {{out, p.inverts ? FR_SAVE_VALUE : FR_SAVE_SIGN},
                                  {gamma, FR_SAVE_SMALL},
                                  {beta, FR_SAVE_SMALL},
                                  {mean, FR_SAVE_SMALL},
                                  {invstd, FR_SAVE_SMALL},
                                  {weight, FR_SAVE_SMALL}};
    FRI_TRY(fr_op_record(&inplace_abn, &p, sizeof p, in, 3, saves, SAVED_COUNT, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fr_inplace_abn(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *running_mean,
                         fr_tensor *running_var, const fr_batchnorm2d_opts *opts, double slope, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    const fri_norm norm = {.gamma = gamma,
                           .beta = beta,
                           .running_mean = running_mean,
                           .running_var = running_var,
                           .opts = opts};
    return fri_inplace_abn(x, &norm, slope, y);
}
