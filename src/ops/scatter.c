/* scatter - a tensor of which some elements, named along one dimension, are replaced by those of another; scatter_add -
 * the same, added.
 *   forward    y = x; y[i with index[i] along dim] = src[i], or += src[i], in order along dim: of equal places the last
 *   backward   dx = dy, for scatter with 0 at these places; dsrc[i] = dy[i with index[i] along dim]
 *   order      deterministic, also for repeated indices: a line along dim is one task's
 *   autocast   the wider type of x and src; in place, none */
#include "ops/frame.h"

#include "autograd/run.h"
#include "base/status.h"

typedef struct options {
    fri_gather_desc d; /* first, for gather's kernel */
    bool add;
} options;

static fr_status copy_unless_same(const fr_kernel_call *c, int from, int to) {
    const fri_exec e = fri_exec_of(c);
    if (T(from) == T(to)) return FR_OK;
    return fri_target_of(c)->copy(&e, FRI_COPY_DEVICE_TO_DEVICE, T(from), T(to), fri_nbytes(c->t[to]));
}

static fr_status place_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    const options *o = c->options;
    FRI_TRY(copy_unless_same(c, 0, 3));
    return FRI_KERNEL_SLOT_CALL(c, scatter, (&e, &o->d, T(1), T(2), o->add, T(3), T(4)));
}
static const fr_kernel place_kernel = {.name = "scatter", .run = place_run, .flops = 1, .moves = 3, .unit = 3};

/* dx = dy, with 0 at the places. */
static fr_status zero_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    const options *o = c->options;
    FRI_TRY(copy_unless_same(c, 1, 2));
    return FRI_KERNEL_SLOT_CALL(c, scatter, (&e, &o->d, T(0), NULL, false, T(2), T(3)));
}
static const fr_kernel zero_kernel = {.name = "scatter", .run = zero_run, .moves = 2, .unit = 2};

FRI_OP_KERNEL(gather, options, (e, &d->d, T(0), T(1), T(2), T(3)), .moves = 3, .unit = 2)

#define SCATTER(word, adds, ...)                                                                       \
    fr_described fri_op_##word = {.op = {.name = #word},                                               \
                                  .operands = "x[*] index:i64 src > y[*]=x bad:i64[]",                 \
                                  .forward = {{"x index src > y bad", &place_kernel}},                 \
                                  .backward = {{"index dy > dsrc bad", &gather_kernel}, __VA_ARGS__}}; \
    fr_status fr_##word(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y) {      \
        return call_scatter(&fri_op_##word, x, dim, index, src, adds, false, y);                       \
    }                                                                                                  \
    fr_status fr_##word##_inplace(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src) {           \
        return call_scatter(&fri_op_##word, x, dim, index, src, adds, true, NULL);                     \
    }

static fr_status run_scatter(fr_described *op, fr_tensor *const *in, int dim, bool add, bool inplace, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    options o = {.add = add};
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    FRI_TRY(fri_frame_begin(&f, op, in, inplace ? in : y));
    f.inplace = inplace;
    if (inplace) FRI_TRY(fri_check_inplace(&f.read->op, in[0]));
    FRI_TRY(fri_gather_describe(&f, dim, &o.d));
    if (!fri_shape_equal(&in[2]->shape, &in[1]->shape))
        return fr_fail(FR_ESHAPE, "%s: src has shape %s but index has %s", op->op.name,
                       fri_shape_text(&in[2]->shape, a), fri_shape_text(&in[1]->shape, b));
    if (inplace && in[2] == in[0])
        return fr_fail(FR_EINVAL, "%s: src is x itself, which is overwritten; clone src", op->op.name);
    return fri_frame_run(&f, &o, sizeof o, y);
}

static fr_status call_scatter(fr_described *op, fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, bool add,
                              bool inplace, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *wide_x = NULL, *wide_src = NULL;
    fr_tensor *wide[2] = {NULL, NULL}, *in[] = {x, index, src};
    if (inplace || x == NULL || src == NULL || !fri_autocast_get().enabled)
        return run_scatter(op, in, dim, add, inplace, y);
    const fr_status s = fri_promote(2, (fr_tensor *[]){x, src}, wide); /* else types must be equal, as in PyTorch */
    wide_x = wide[0];
    wide_src = wide[1];
    return s < 0 ? s : run_scatter(op, (fr_tensor *[]){wide_x, index, wide_src}, dim, add, false, y);
}

SCATTER(scatter, false, {"index dy > dx=dy bad", &zero_kernel})
SCATTER(scatter_add, true, {"dy > dx"})
