/* clip.c - the norm of gradients in parts on all ranks.
 *
 * The reduction adds chunks of FRI_SHARE_UNIT elements to numbers, and those in order. A chunk is on a single rank, so
 * a chunk's number equals a single process's; all ranks get all numbers and add in a single process's order. */
#include "addons/ranks/share.h"

#include "backend/arith.h"

#include <math.h>
#include <stdlib.h>

typedef struct summing {
    fr_share *share;
    int64_t units;   /* of all parameters, in the module's order */
    fr_tensor *sums; /* f64 [units + 2] on the device: the rank's, else 0; total; two f32: factor, flag */
    double *partial; /* [units + 2]: on the host */
    double *all;     /* [ranks][units] */
} summing;

static int64_t units_of(const fri_parameter *p) {
    return (fri_numel(p->parameter) + FRI_SHARE_UNIT - 1) / FRI_SHARE_UNIT;
}

static void *place_of(const summing *n, int64_t unit) {
    return fri_data(n->sums) != NULL ? fri_share_at(n->sums, unit) : NULL;
}

/* The chunks of a parameter's part, numbered from `unit`. */
static fr_status sum_part(const summing *to, const fri_parameter *p, int64_t unit) {
    const fri_backend *be = fri_backend_of(p->sum);
    const fr_dtype t = p->sum->dtype;
    const fri_array chunk = {p->count < FRI_SHARE_UNIT ? p->count : FRI_SHARE_UNIT, NULL};
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    FRI_TRY(fri_workspace_begin(p->sum, FRI_KERNEL_BYTES(be, t, norm_squared_workspace, (t, 1, &chunk)), &ws));
    for (int64_t at = 0; at < p->count; at += FRI_SHARE_UNIT) {
        const int64_t n = p->count - at < FRI_SHARE_UNIT ? p->count - at : FRI_SHARE_UNIT;
        const fri_array one = {n, fri_data(p->sum) != NULL ? fri_share_at(p->sum, at) : NULL};
        double *sum = place_of(to, unit + (p->first + at) / FRI_SHARE_UNIT);
        FRI_TRY(FRI_KERNEL(be, t, norm_squared, (&ws.exec, t, 1, &one, sum)));
    }
    return FR_OK;
}

/* A chunk is nonzero on a single rank, and squares are not negative, so the sum over ranks is the chunk. */
static double add_up(const summing *n) {
    const fr_optimizer *o = n->share->optimizer;
    double total = 0;
    int64_t at = 0;
    for (int i = 0; i < o->n; i++) {
        double sum = 0;
        for (int64_t u = 0; u < units_of(&o->parameters[i]); u++, at++) {
            double one = 0;
            for (int k = 0; k < n->share->size; k++) one += n->all[k * n->units + at];
            sum += one;
        }
        total += sum;
    }
    return total;
}

/* Clipping on an asynchronous device: a single process computes the factor there, in f32 (optim/clip.c). */
static fr_status device_shrink(const summing *n, double max_norm, double total) {
    const fr_optimizer *o = n->share->optimizer;
    const fri_backend *be = fri_backend_of(n->sums);
    double *sum = place_of(n, n->units);
    float *factor = place_of(n, n->units + 1);
    FRI_TRY(be->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, &total, sum, sizeof total));
    FRI_TRY(FRI_KERNEL(be, FR_F32, clip_factor, (FRI_EXEC, max_norm, sum, factor)));
    for (int i = 0; i < o->n; i++) {
        fr_tensor *g = o->parameters[i].sum;
        if (g == NULL) continue;
        const fri_array array = {fri_numel(g), fri_data(g)};
        fri_bump_version(g);
        FRI_TRY(FRI_KERNEL(be, g->dtype, unscale, (FRI_EXEC, g->dtype, 1, &array, factor, factor + 1)));
    }
    return FR_OK;
}

static fr_status scale_gradients(fr_optimizer *o, double factor) {
    fr_status s = FR_OK;
    for (int i = 0; i < o->n && s == FR_OK; i++) {
        fr_tensor *g = o->parameters[i].sum;
        if (g == NULL) continue;
        fri_bump_version(g);
        s = FRI_KERNEL(fri_backend_of(g), g->dtype, scale,
                       (FRI_EXEC, g->dtype, fri_numel(g), factor, fri_data(g), fri_data(g)));
    }
    return s;
}

static fr_status sum_all(summing *n, double *total) {
    const fr_share *p = n->share;
    const fr_shape shape = FRI_SHAPE(n->units + 2);
    int64_t at = 0;
    FRI_TRY(fri_tensor_new(&shape, FR_F64, p->device, FR_MEM_TEMPORARY, &n->sums));
    FRI_TRY(fri_tensor_fill(n->sums, 0));
    for (int i = 0; i < p->optimizer->n; i++) {
        const fri_parameter *of = &p->optimizer->parameters[i];
        if (of->sum != NULL) FRI_TRY(sum_part(n, of, at));
        at += units_of(of);
    }
    if (p->device == FR_META) return FR_OK;
    FRI_TRY(fr_tensor_to_host(n->sums, n->partial));
    FRI_TRY(fri_comm_agree(p->comm, n->partial, (size_t)n->units * sizeof *n->partial, n->all));
    *total = add_up(n);
    return FR_OK;
}

static fr_status clip(summing *n, double max_norm, double *norm) {
    const fr_share *p = n->share;
    double total = 0;
    fr_status s = sum_all(n, &total);
    if (s < 0 || p->device == FR_META) return s;
    const double factor = fri_clip_factor(max_norm, total);
    *norm = sqrt(total);
    if (fr_device_is_asynchronous(p->device)) return device_shrink(n, max_norm, total);
    return factor != 1 ? scale_gradients(p->optimizer, factor) : FR_OK;
}

fr_status fr_share_clip_grad_norm(fr_share *p, double max_norm, double *norm) {
    FRI_NOT_NULL(p, norm);
    summing n = {.share = p};
    fr_status s = FR_OK;
    if (!(max_norm > 0)) return fr_fail(FR_EINVAL, "clip_grad_norm: max_norm is %g; it must be > 0", max_norm);
    for (int i = 0; i < p->optimizer->n; i++) {
        FRI_TRY(fri_optimizer_kept(p->optimizer, &p->optimizer->parameters[i], "clip_grad_norm"));
        n.units += units_of(&p->optimizer->parameters[i]);
    }
    *norm = 0;
    n.partial = malloc(((size_t)n.units + 2) * sizeof *n.partial);
    n.all = malloc((size_t)n.units * (size_t)p->size * sizeof *n.all);
    s = n.partial != NULL && n.all != NULL ? clip(&n, max_norm, norm) : fr_fail(FR_ENOMEM, "ranks: out of host memory");
    fr_tensor_release(&n.sums);
    free(n.partial);
    free(n.all);
    return s;
}
