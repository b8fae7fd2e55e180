/* gradcheck.c - compares backward with central differences, element by element, signed, in f64.
 *
 * The function's result is reduced to a number by fixed pseudo-random weights, so that errors of elements cannot
 * cancel. Every evaluation starts from the same random state, so dropout drops the same elements. */
#include "autograd/node.h"

#include "base/rng.h"
#include "base/status.h"

#include <math.h>

typedef struct check {
    fr_checkpoint_fn *fn;
    void *ctx;
    fr_tensor *const *in;
    int n_in;
    fr_rng rng;
    fr_tensor *weights; /* shape of the result */
} check;

static double weight_of(int64_t i) {
    return 2.0 * (double)fri_uniform_f32(fri_philox(77, 0, (uint64_t)i / 4).v[i % 4]) - 1.0;
}

static fr_status weighted_output(check *c, fr_tensor **out) {
    fr_rng_set(c->rng);
    FRI_TRY(c->fn(c->ctx, c->in, c->n_in, out, 1));
    if (*out == NULL || (*out)->dtype != FR_F64 || fri_device_of(*out) != FR_CPU)
        return fr_fail(FR_EDTYPE, "gradcheck: the function's result must be an f64 tensor on the cpu");
    return FR_OK;
}

static fr_status make_weights(check *c, const fr_tensor *like) {
    FRI_TRY(fri_tensor_new(&like->shape, FR_F64, FR_CPU, FR_MEM_TEMPORARY, &c->weights));
    double *w = fri_data(c->weights);
    for (int64_t i = 0; i < fri_numel(like); i++) w[i] = weight_of(i);
    return FR_OK;
}

static fr_status weighted_sum(check *c, double *sum) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    bool was = fr_no_grad_begin();
    fr_status s = weighted_output(c, &out);
    fr_no_grad_end(was);
    *sum = 0;
    if (s < 0) return s;
    const double *y = fri_data(out), *w = fri_data(c->weights);
    for (int64_t i = 0; i < fri_numel(out); i++) *sum += y[i] * w[i];
    return FR_OK;
}

static fr_status check_element(check *c, int input, int64_t i, double analytic, const fr_gradcheck_opts *o) {
    double *x = (double *)fri_data(c->in[input]) + i, at = *x, plus = 0, minus = 0;
    fr_status s = FR_OK;
    *x = at + o->eps;
    s = weighted_sum(c, &plus);
    *x = at - o->eps;
    if (s == FR_OK) s = weighted_sum(c, &minus);
    *x = at;
    if (s < 0) return s;
    double numeric = (plus - minus) / (2 * o->eps);
    if (fabs(numeric - analytic) <= o->atol + o->rtol * fabs(numeric)) return FR_OK;
    return fr_fail(FR_EINVAL,
                   "gradcheck: input %d element %lld: numeric %.10g, backward %.10g (allowed difference %.3g)", input,
                   (long long)i, numeric, analytic, o->atol + o->rtol * fabs(numeric));
}

fr_status fr_gradcheck(fr_checkpoint_fn *fn, void *ctx, fr_tensor *const *in, int n_in, const fr_gradcheck_opts *opts) {
    FRI_NOT_NULL(fn, in);
    const fr_gradcheck_opts o = opts != NULL ? *opts : *FR_GRADCHECK_OPTS();
    fr_rng rng = fr_rng_get();
    check c = {.fn = fn, .ctx = ctx, .in = in, .n_in = n_in, .rng = rng};
    fr_tensor *out = NULL;
    bool any = false;
    fr_status s = FR_OK;
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NULL || !in[i]->requires_grad) continue;
        any = true;
        if (in[i]->dtype != FR_F64 || fri_device_of(in[i]) != FR_CPU || fri_leaf_of(in[i]) == NULL)
            return fr_fail(FR_EDTYPE, "gradcheck: input %d must be an f64 leaf on the cpu", i);
        FR_TRY(s, fr_tensor_set_grad(in[i], NULL));
    }
    if (!any) return fr_fail(FR_EUSAGE, "gradcheck: no input requires grad");
    FR_TRY(s, weighted_output(&c, &out));
    FR_TRY(s, make_weights(&c, out));
    FR_TRY(s, fr_backward(out, c.weights));
    for (int k = 0; k < n_in; k++) {
        if (in[k] == NULL || !in[k]->requires_grad) continue;
        const fr_tensor *g = fr_tensor_get_grad(in[k]);
        for (int64_t i = 0; i < fri_numel(in[k]); i++)
            FR_TRY(s, check_element(&c, k, i, g != NULL ? ((const double *)fri_data(g))[i] : 0, &o));
    }
done:
    fr_rng_set(rng);
    fr_tensor_release(&out);
    fr_tensor_release(&c.weights);
    return s;
}
