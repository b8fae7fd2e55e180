/* gather - the elements of a tensor that an index names along one dimension.
 *   forward    y[i] = x[i with index[i] along dim]
 *   backward   dx = 0, dx[i with index[i] along dim] += dy[i], in order along dim
 *   order      deterministic, also for repeated indices: a line along dim is one task's */
#include "ops/frame.h"

#include "base/status.h"

/* ---- shared by gather and scatter ---------------------------------------------------------------------------- */

static int64_t stride_of(const fr_shape *s, int dim) {
    int64_t stride = 1;
    for (int i = dim + 1; i < s->rank; i++) stride *= s->dim[i];
    return stride;
}

fr_status fri_gather_describe(fri_frame *f, int dim, fri_gather_desc *d) {
    const char *op = f->read->op.name;
    const fr_shape *xs = &f->c.in[0]->shape, *is = &f->c.in[1]->shape;
    int at = dim < 0 ? dim + xs->rank : dim;
    if (at < 0 || at >= xs->rank) return fr_fail(FR_EINVAL, "%s: dimension %d; x has rank %d", op, dim, xs->rank);
    if (is->rank != xs->rank) return fr_fail(FR_ESHAPE, "%s: index has rank %d, x has rank %d", op, is->rank, xs->rank);
    FRI_SIZE(*f, 'v') = xs->dim[at]; /* limit of an index */
    *d = (fri_gather_desc){.dtype = f->dtype,
                           .lines = 1,
                           .n = is->dim[at],
                           .extent = xs->dim[at],
                           .index_step = stride_of(is, at),
                           .x_step = stride_of(xs, at)};
    for (int i = xs->rank - 1; i >= 0; i--) {
        if (i == at) continue;
        if (is->dim[i] > xs->dim[i])
            return fr_fail(FR_ESHAPE, "%s: index has %lld in dimension %d, x has %lld", op, (long long)is->dim[i], i,
                           (long long)xs->dim[i]);
        d->lines *= is->dim[i];
        d->size[d->rank] = is->dim[i];
        d->index_stride[d->rank] = stride_of(is, i);
        d->x_stride[d->rank++] = stride_of(xs, i);
    }
    return FR_OK;
}

FRI_OP_KERNEL(gather, fri_gather_desc, (e, d, T(0), T(1), T(2), T(3)), .moves = 3, .unit = 2)

/* ---- gather -------------------------------------------------------------------------------------------------- */

static fr_status spread_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    FRI_TRY(FRI_KERNEL_SLOT_CALL(c, fill, (&e, c->dtype, N(2), 0, T(2))));
    return FRI_KERNEL_SLOT_CALL(c, scatter, (&e, c->options, T(0), T(1), true, T(2), T(3)));
}
static const fr_kernel spread_kernel = {.name = "scatter", .run = spread_run, .flops = 1, .moves = 5, .unit = 1};

fr_described fri_op_gather = {.op = {.name = "gather"},
                              .operands = "x[*] index:i64 > y[*] bad:i64[]",
                              .forward = {{"index x > y bad", &gather_kernel}},
                              .backward = {{"index dy > dx bad", &spread_kernel}}};

fr_status fr_gather(fr_tensor *x, int dim, fr_tensor *index, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_gather_desc d;
    FRI_TRY(fri_frame_begin(&f, &fri_op_gather, (fr_tensor *[]){x, index}, y));
    FRI_TRY(fri_gather_describe(&f, dim, &d));
    f.any = index->shape; /* of y */
    return fri_frame_run(&f, &d, sizeof d, y);
}
