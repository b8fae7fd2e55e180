/* mul - elementwise product; b [N, 1, 1, C] holds one factor per image and channel of a [N, H, W, C].
 *   forward    y = a * b
 *   backward   da = dy * b, db = dy * a, summed over the pixels of an image where b has one
 *   saves      b if a wants a gradient, a if b wants one (references)
 *   in-place   forward over a only when a is not saved; backward no
 *   rebuild    no (its inputs are kept for backward anyway)
 *   order      deterministic
 *   autocast   the wider type of the two */
#include "ops/op.h"

static bool per_image(const fr_shape *a, const fr_shape *b) {
    return a->rank == 4 && b->rank == 4 && b->dim[1] == 1 && b->dim[2] == 1 && a->dim[0] == b->dim[0] &&
           a->dim[3] == b->dim[3] && !fri_shape_equal(a, b);
}

static fri_mul_image_desc image_desc(const fr_tensor *a) {
    const int64_t *d = a->shape.dim;
    return (fri_mul_image_desc){.dtype = a->dtype, .n = d[0], .hw = d[1] * d[2], .c = d[3]};
}

static fr_status product(const fr_tensor *a, const fr_tensor *b, fr_tensor *y) {
    const fri_mul_image_desc d = per_image(&a->shape, &b->shape) ? image_desc(a) : (fri_mul_image_desc){0};
    if (d.c > 0)
        return FRI_KERNEL(fri_backend_of(a), a->dtype, mul_image,
                          (FRI_EXEC, &d, fri_data(a), fri_data(b), fri_data(y)));
    return FRI_KERNEL(fri_backend_of(a), a->dtype, mul,
                      (FRI_EXEC, a->dtype, fri_numel(a), fri_data(a), fri_data(b), fri_data(y)));
}

enum { SAVED_A, SAVED_B };

/* db of one factor per image and channel. */
static fr_status image_sum(const fr_tensor *a, const fr_tensor *dy, fr_tensor **db) {
    const fri_mul_image_desc d = image_desc(dy);
    const fr_shape shape = FRI_SHAPE(d.n, 1, 1, d.c);
    fr_status s = fri_tensor_new(&shape, dy->dtype, fri_device_of(dy), FR_MEM_TEMPORARY, db);
    return s < 0 ? s
                 : FRI_KERNEL(fri_backend_of(dy), dy->dtype, mul_image_sum,
                              (FRI_EXEC, &d, fri_data(a), fri_data(dy), fri_data(*db)));
}

/* The gradient of input i is dy times the other factor. */
static fr_status gradient(fr_node *node, int i, const fr_tensor *dy) {
    const bool *summed = fr_node_params(node);
    fr_tensor *other = NULL, *dx = NULL;
    fr_status s = FR_OK;
    if (!fr_node_wants(node, i)) return FR_OK;
    FR_TRY(s, fr_node_saved(node, i == 0 ? SAVED_B : SAVED_A, &other));
    if (i == 1 && *summed) {
        FR_TRY(s, image_sum(other, dy, &dx));
    } else {
        FR_TRY(s, fri_new_like(dy, FR_MEM_TEMPORARY, &dx));
        FR_TRY(s, product(dy, other, dx));
    }
    fr_tensor_release(&other);
    fr_node_release_saved(node, i == 0 ? SAVED_B : SAVED_A);
    FR_TRY(s, fr_node_grad(node, i, &dx));
done:
    fr_tensor_release(&other);
    fr_tensor_release(&dx);
    return s;
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_status s = gradient(node, 1, *dy);
    return s < 0 ? s : gradient(node, 0, *dy);
}

static const fr_op mul = {.name = "mul", .autocast = FR_AUTOCAST_PROMOTE, .backward = backward};

static fr_status check(const fr_tensor *a, const fr_tensor *b) {
    fr_status s = fri_expect_float(&mul, a, "a");
    return s < 0 || (a->dtype == b->dtype && per_image(&a->shape, &b->shape)) ? s : fri_expect_same(&mul, a, b);
}

static fr_status record(fr_tensor *a, fr_tensor *b, fr_tensor *out) {
    fr_save saves[] = {{b->requires_grad ? a : NULL, FR_SAVE_VALUE}, {a->requires_grad ? b : NULL, FR_SAVE_VALUE}};
    const bool summed = per_image(&a->shape, &b->shape);
    return fr_op_record(&mul, &summed, sizeof summed, (fr_tensor *[]){a, b}, 2, saves, 2, out);
}

fr_status fr_mul(fr_tensor *a, fr_tensor *b, fr_tensor **y) {
    FRI_NOT_NULL(a, b, y);
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &mul, 2, (fr_tensor *[]){a, b}, 2));
    FR_TRY(s, check(c.in[0], c.in[1]));
    bool a_is_saved = fr_grad_enabled() && c.in[1]->requires_grad;
    if (a_is_saved || a == b)
        FR_TRY(s, fri_new_like(c.in[0], FR_MEM_TEMPORARY, &out));
    else
        FR_TRY(s, fri_result_like(c.in[0], y, &out));
    FR_TRY(s, product(c.in[0], c.in[1], out));
    FR_TRY(s, record(c.in[0], c.in[1], out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_mul_inplace(fr_tensor *a, fr_tensor *b) {
    FRI_NOT_NULL(a, b);
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &mul, 2, (fr_tensor *[]){a, b}, 2));
    FR_TRY(s, fri_check_inplace(&mul, a));
    FR_TRY(s, check(a, b));
    FR_TRY(s, product(a, b, a));
    /* Recorded before the version moves: if b wants a gradient, backward finds that the saved a was overwritten. */
    FR_TRY(s, record(a, b, a));
    fri_bump_version(a);
    if (fri_node_of(a) != NULL) fri_node_of(a)->output_version = a->storage->version;
done:
    fri_call_end(&c);
    return s;
}
