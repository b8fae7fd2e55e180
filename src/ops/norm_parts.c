/* norm_parts.c - one batch norm over parts of a batch: Note [Parts] in batchnorm2d.h.
 *
 * What the parts share lives as long as a node needs it. The statistics' own handles go with the last part that is
 * normalized; the sums live from the first part's backward to the last one's. */
#include "ops/batchnorm2d.h"

#include "autograd/state.h"
#include "base/status.h"

#include <stdlib.h>

struct fri_norm_parts {
    int references, parts;
    int taken, summed, done; /* parts that were normalized, that have added their sums, that have their dx */
    int64_t rows, c;         /* of all */
    fr_tensor *mean, *invstd;
    fr_tensor **x; /* [parts] */
    fr_tensor
        *sums; /* [2, c]: of dy, and of dy * xhat; from the first dx on, what fri_batchnorm2d_backward_rest reads */
};

fri_norm_parts *fri_norm_parts_retain(fri_norm_parts *p) {
    if (p != NULL) p->references++;
    return p;
}

void fri_norm_parts_release(fri_norm_parts **slot) {
    fri_norm_parts *p = *slot;
    *slot = NULL;
    if (p == NULL || --p->references > 0) return;
    for (int i = 0; p->x != NULL && i < p->parts; i++) fr_tensor_release(&p->x[i]);
    fr_tensor_release(&p->mean);
    fr_tensor_release(&p->invstd);
    fr_tensor_release(&p->sums);
    free(p->x);
    free(p);
}

void fri_norm_parts_take(fri_norm_parts *p, int part, fr_tensor **x, fr_tensor **mean, fr_tensor **invstd) {
    fri_tensor_put(&p->x[part], x);
    *mean = fr_tensor_retain(p->mean);
    *invstd = fr_tensor_retain(p->invstd);
    if (++p->taken < p->parts) return;
    fr_tensor_release(&p->mean);
    fr_tensor_release(&p->invstd);
}

/* ---- backward ---------------------------------------------------------------------------------------------- */

static void *row(const fr_tensor *sums, int i) {
    return (char *)fri_data(sums) + (size_t)i * fri_nbytes(sums) / 2;
}

fr_status fri_norm_parts_add(fri_norm_parts *p, const fr_tensor *dgamma, const fr_tensor *dbeta) {
    const fri_backend *be = fri_backend_of(dgamma);
    const fr_shape shape = FRI_SHAPE(2, p->c);
    const fr_tensor *of[] = {dbeta, dgamma};
    if (p->sums == NULL) {
        FRI_TRY(fri_tensor_new(&shape, dgamma->dtype, be->device, FR_MEM_TEMPORARY, &p->sums));
        FRI_TRY(fri_tensor_fill(p->sums, 0));
    }
    for (int i = 0; i < 2; i++)
        FRI_TRY(FRI_KERNEL(be, dgamma->dtype, add,
                           (FRI_EXEC, dgamma->dtype, p->c, row(p->sums, i), fri_data(of[i]), row(p->sums, i))));
    p->summed++;
    return FR_OK;
}

typedef struct params {
    fri_batchnorm2d_desc desc;
    fri_norm_parts *parts;
} params;

enum { SAVED_X, SAVED_GAMMA, SAVED_MEAN, SAVED_INVSTD, SAVED_COUNT };

/* mean(dy), and invstd * mean(dy * xhat). */
static fr_status divide(const fri_norm_parts *p, const fr_tensor *invstd) {
    const fri_backend *be = fri_backend_of(invstd);
    const fr_dtype real = invstd->dtype;
    FRI_TRY(FRI_KERNEL(be, real, scale,
                       (FRI_EXEC, real, 2 * p->c, 1 / (double)p->rows, fri_data(p->sums), fri_data(p->sums))));
    return FRI_KERNEL(be, real, mul, (FRI_EXEC, real, p->c, row(p->sums, 1), fri_data(invstd), row(p->sums, 1)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *of = fr_node_params(node);
    fri_norm_parts *p = of->parts;
    const fri_batchnorm2d_desc *d = &of->desc;
    fr_tensor *saved[SAVED_COUNT] = {0}, *dx = NULL;
    fr_status s = FR_OK;
    if (p->summed != p->parts)
        return fr_fail(
            FR_EUSAGE,
            "%s: backward reached %d of the %d parts that were normalized together; it has to begin at a sum "
            "of the losses of all",
            node->op->name, p->summed, p->parts);
    for (int i = 0; i < SAVED_COUNT; i++) FR_TRY(s, fr_node_saved(node, i, &saved[i]));
    if (p->done == 0) FR_TRY(s, divide(p, saved[SAVED_INVSTD]));
    FR_TRY(s, fri_gradient_like(*dy, &dx));
    FR_TRY(s,
           FRI_KERNEL(fri_backend_of(dx), d->dtype, batchnorm2d_backward_rest,
                      (FRI_EXEC, d, fri_data(saved[SAVED_X]), fri_data(saved[SAVED_MEAN]),
                       fri_data(saved[SAVED_INVSTD]), saved[SAVED_GAMMA] != NULL ? fri_data(saved[SAVED_GAMMA]) : NULL,
                       fri_data(p->sums), fri_data(*dy), fri_data(dx))));
    if (++p->done == p->parts) fr_tensor_release(&p->sums);
    fr_tensor_release(&saved[SAVED_X]);
    fr_node_release_saved(node, SAVED_X);
    fr_tensor_release(dy);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    for (int i = 0; i < SAVED_COUNT; i++) fr_tensor_release(&saved[i]);
    fr_tensor_release(&dx);
    return s;
}

static void params_free(void *of) {
    fri_norm_parts_release(&((params *)of)->parts);
}

static const fr_op batchnorm2d_part = {.name = "batchnorm2d", .backward = backward, .params_free = params_free};

/* ---- forward ----------------------------------------------------------------------------------------------- */

/* What the statistics' pass over each part has summed, on the host: 2 c + 1 numbers a part. */
typedef struct gathered {
    fri_statistics_sync sync; /* of the parts so far */
    double *numbers;
} gathered;

static double *room(void *ctx, int64_t n) {
    const gathered *g = ctx;
    return g->numbers + (g->sync.ranks - 1) * n;
}

static fr_status gather(void *ctx, int64_t n, const double **all) {
    const gathered *g = ctx;
    (void)n;
    *all = g->numbers;
    return FR_OK;
}

/* Those of the last part are of all; only they move the running values. */
static fr_status statistics(fr_tensor *const *x, const fri_norm *norm, gathered *g, fri_norm_parts *p) {
    fri_norm quiet = *norm;
    fri_batchnorm2d_desc d;
    quiet.running_mean = quiet.running_var = quiet.batches = NULL;
    for (int i = 0; i < p->parts; i++) {
        g->sync.ranks = i + 1;
        FRI_TRY(fri_batchnorm2d_describe(&batchnorm2d_part, x[i], norm, &d));
        FRI_TRY(fri_batch_statistics(&batchnorm2d_part, SAVED_MEAN, &d, x[i], i + 1 < p->parts ? &quiet : norm,
                                     &p->mean, &p->invstd));
        p->rows += d.rows;
    }
    return FR_OK;
}

/* The part as its batch norm reads it: the same bytes, behind the node that will make dx. */
static fr_status part_new(fr_tensor *x, const fri_norm *norm, fri_norm_parts *p, fr_tensor **out) {
    params of = {.desc = {.eps = 0}};
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_TRY(fri_call_begin(&c, &batchnorm2d_part, 1, &x, 1));
    FRI_TRY(fri_batchnorm2d_describe(&batchnorm2d_part, x, norm, &of.desc));
    FRI_TRY(fri_tensor_view(x, &x->shape, out));
    const fr_save saves[SAVED_COUNT] = {{x, FR_SAVE_VALUE},
                                        {norm->gamma, FR_SAVE_SMALL},
                                        {p->mean, FR_SAVE_SMALL},
                                        {p->invstd, FR_SAVE_SMALL}};
    of.parts = fri_norm_parts_retain(p);
    return fr_op_record(&batchnorm2d_part, &of, sizeof of, &x, 1, saves, SAVED_COUNT, *out);
}

static fr_status parts_new(int n, int64_t c, fri_norm_parts **out) {
    fri_norm_parts *p = calloc(1, sizeof *p);
    if (p == NULL) return fr_fail(FR_ENOMEM, "batchnorm2d: out of host memory");
    *p = (fri_norm_parts){.references = 1, .parts = n, .c = c, .x = calloc((size_t)n, sizeof *p->x)};
    *out = p;
    return p->x != NULL ? FR_OK : fr_fail(FR_ENOMEM, "batchnorm2d: out of host memory");
}

fr_status fri_norm_together(fr_tensor *const *x, int n, const fri_norm *norm, fri_norm_parts **out) {
    const int64_t c = x[0]->shape.rank > 0 ? x[0]->shape.dim[x[0]->shape.rank - 1] : 0;
    gathered g = {.sync = {.room = room, .gather = gather, .ctx = &g}};
    fri_norm_parts *p = NULL;
    fri_norm of_part = *norm;
    fr_status s = FR_OK;
    if (fri_statistics_sync_get() != NULL)
        return fr_fail(FR_EUSAGE, "batchnorm2d: parts of a batch, whose statistics go round between processes, too");
    FR_TRY(s, parts_new(n, c, &p));
    g.numbers = malloc((size_t)n * (2 * (size_t)c + 1) * sizeof *g.numbers);
    if (g.numbers == NULL) FR_TRY(s, fr_fail(FR_ENOMEM, "batchnorm2d: out of host memory"));
    fri_statistics_sync_set(&g.sync);
    s = statistics(x, norm, &g, p);
    fri_statistics_sync_set(NULL);
    of_part.parts = p;
    for (int i = 0; i < n && s == FR_OK; i++) s = part_new(x[i], &of_part, p, &p->x[i]);
    if (s == FR_OK) {
        FRI_MOVE(out, p);
    }
done:
    free(g.numbers);
    fri_norm_parts_release(&p);
    return s;
}
