/* concat - concatenation over the last dimension (channels).
 *   forward    y[..., offset_i : offset_i + C_i] = x_i
 *   backward   dx_i = dy[..., offset_i : offset_i + C_i]
 *   saves      nothing
 *   in-place   no
 *   rebuild    from the inputs: a dense block then keeps each feature once instead of once per layer
 *   order      deterministic
 *   autocast   the widest type, also without autocast */
#include "ops/op.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct params {
    int n;
    int64_t rows, total;
    int64_t *width; /* owned: C_i of each input */
} params;

static void params_free(void *p) {
    free(((params *)p)->width);
}

/* Copies one input to or from its columns of the whole tensor. */
static fr_status copy_part(const params *p, int i, size_t element, int64_t offset, const fr_tensor *whole,
                           const fr_tensor *part, bool into_whole) {
    size_t part_pitch = (size_t)p->width[i] * element, whole_pitch = (size_t)p->total * element;
    char *w = fri_data(whole) == NULL ? NULL : (char *)fri_data(whole) + (size_t)offset * element;
    if (into_whole)
        return FRI_KERNEL(fri_backend_of(whole), whole->dtype, copy_rows,
                          (FRI_EXEC, p->rows, part_pitch, fri_data(part), part_pitch, w, whole_pitch));
    return FRI_KERNEL(fri_backend_of(whole), whole->dtype, copy_rows,
                      (FRI_EXEC, p->rows, part_pitch, w, whole_pitch, fri_data(part), part_pitch));
}

/* Copies all inputs that are not NULL. */
static fr_status join_parts(const params *p, fr_tensor *const *x, fr_tensor *y) {
    int64_t offset = 0;
    for (int i = 0; i < p->n; i++) {
        if (x[i] != NULL) FRI_TRY(copy_part(p, i, fr_dtype_size(y->dtype), offset, y, x[i], true));
        offset += p->width[i];
    }
    return FR_OK;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    int64_t offset = 0;
    fr_shape shape = (*dy)->shape;
    for (int i = 0; i < p->n; i++) {
        shape.dim[shape.rank - 1] = p->width[i];
        if (fr_node_wants(node, i)) {
            FRI_TRY(fri_tensor_new(&shape, (*dy)->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
            FRI_TRY(copy_part(p, i, fr_dtype_size(dx->dtype), offset, *dy, dx, false));
            FRI_TRY(fr_node_grad(node, i, &dx));
        }
        offset += p->width[i];
    }
    return FR_OK;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    if (*y == NULL) FRI_TRY(fri_tensor_new(&node->shape, node->dtype, node->device, FR_MEM_TEMPORARY, y));
    return join_parts(fr_node_params(node), in, *y);
}

static const fr_op concat = {.name = "concat",
                             .backward = backward,
                             .rebuild = rebuild,
                             .rebuild_inputs = UINT64_MAX,
                             .rebuild_parts = true,
                             .params_free = params_free};

static fr_status expect_inputs(fr_tensor *const *x, int n) {
    if (n < 1) return fr_fail(FR_EINVAL, "concat: %d inputs; at least 1 is needed", n);
    for (int i = 0; i < n; i++)
        if (x[i] == NULL) return fr_fail(FR_EINVAL, "concat: input %d is NULL", i);
    return FR_OK;
}

static fr_status describe(fr_tensor *const *x, int n, params *p, fr_shape *shape) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    *shape = x[0]->shape;
    if (shape->rank < 1) return fr_fail(FR_ESHAPE, "concat: input 0 is a scalar; at least 1 dimension is needed");
    int64_t *last = &shape->dim[shape->rank - 1];
    p->n = n;
    p->width = malloc((size_t)n * sizeof(*p->width));
    if (p->width == NULL) return fr_fail(FR_ENOMEM, "concat: out of host memory");
    p->total = 0;
    for (int i = 0; i < n; i++) {
        fr_shape other = x[i]->shape;
        if (other.rank == shape->rank) other.dim[other.rank - 1] = *last;
        if (!fri_shape_equal(&other, shape))
            return fr_fail(FR_ESHAPE, "concat: input 0 is %s but input %d is %s; all but the last dimension must agree",
                           fri_shape_text(&x[0]->shape, a), i, fri_shape_text(&x[i]->shape, b));
        if (x[i]->dtype != x[0]->dtype)
            return fr_fail(FR_EDTYPE, "concat: input 0 is %s but input %d is %s", fr_dtype_name(x[0]->dtype), i,
                           fr_dtype_name(x[i]->dtype));
        if (fri_device_of(x[i]) != fri_device_of(x[0]))
            return fr_fail(FR_EDEVICE, "concat: input 0 is on %s but input %d is on %s",
                           fr_device_name(fri_device_of(x[0])), i, fr_device_name(fri_device_of(x[i])));
        p->width[i] = x[i]->shape.dim[shape->rank - 1];
        p->total += p->width[i];
    }
    *last = 1;
    p->rows = fri_shape_numel(shape);
    *last = p->total;
    return FR_OK;
}

fr_status fr_concat(fr_tensor *const *x, int n, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    fr_tensor *out = NULL, **in = NULL;
    params p = {0};
    fr_shape shape;
    fri_call c;
    fr_status s = FR_OK;
    /* fri_call holds at most FRI_OP_INPUTS inputs. */
    FR_TRY(s, fri_call_begin(&c, &concat, 0, NULL, 0));
    FR_TRY(s, expect_inputs(x, n));
    in = calloc((size_t)n, sizeof *in);
    if (in == NULL) FR_TRY(s, fr_fail(FR_ENOMEM, "concat: out of host memory"));
    FR_TRY(s, fri_promote(n, x, in));
    FR_TRY(s, describe(in, n, &p, &shape));
    FR_TRY(s, fri_tensor_new(&shape, in[0]->dtype, fri_device_of(in[0]), FR_MEM_TEMPORARY, &out));
    FR_TRY(s, join_parts(&p, in, out));
    params given = p;
    p.width = NULL; /* fr_op_record takes ownership, also on failure */
    FR_TRY(s, fr_op_record(&concat, &given, sizeof given, in, n, NULL, 0, out));
    fri_tensor_put(&out, y);
done:
    for (int i = 0; i < n && in != NULL; i++) fr_tensor_release(&in[i]);
    free(in);
    free(p.width);
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}
