/* 04_custom_op.c - writing an op: swish, y = x * sigmoid(x) (Ramachandran et al., 2017).
 *
 *   backward   dx = dy * (q + y * (1 - q)),  q = sigmoid(x)
 *   saves      x
 *
 * Built-in ops use these calls too, so swish gets version checks, checkpointing and memory accounting for free. */
#include <frugal/extend.h>
#include <frugal/frugal.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* out[i] = f(x[i], dy[i]) on f32 or f64 tensors of the CPU; dy NULL: the forward. */
static void swish_values(fr_tensor *x, fr_tensor *dy, fr_tensor *out) {
    bool wide = fr_tensor_dtype(x) == FR_F64;
    for (int64_t i = 0; i < fr_tensor_numel(x); i++) {
        double v = wide ? ((double *)fr_tensor_data(x))[i] : (double)((float *)fr_tensor_data(x))[i];
        double g = dy == NULL ? 1 : wide ? ((double *)fr_tensor_data(dy))[i] : (double)((float *)fr_tensor_data(dy))[i];
        double q = sigmoid(v), r = dy == NULL ? v * q : g * (q + v * q * (1 - q));
        if (wide)
            ((double *)fr_tensor_data(out))[i] = r;
        else
            ((float *)fr_tensor_data(out))[i] = (float)r;
    }
}

static fr_status new_like(fr_tensor *x, fr_tensor **out) {
    return fr_tensor_empty(fr_tensor_rank(x), fr_tensor_shape(x), fr_tensor_dtype(x), fr_tensor_device(x), out);
}

static fr_status swish_backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *x = NULL, *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_node_saved(node, 0, &x)); /* the value may have been kept, rebuilt or recomputed */
    FR_TRY(s, new_like(x, &dx));
    swish_values(x, *dy, dx);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&x);
    fr_tensor_release(&dx);
    return s;
}

static const fr_op swish_op = {.name = "swish", .backward = swish_backward};

static fr_status swish(fr_tensor *x, fr_tensor **y) {
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, new_like(x, &out));
    swish_values(x, NULL, out);
    fr_save save = {x, FR_SAVE_VALUE};
    FR_TRY(s, fr_op_record(&swish_op, NULL, 0, &x, 1, &save, 1, out));
    fr_tensor_release(y);
    *y = out;
    out = NULL;
done:
    fr_tensor_release(&out);
    return s;
}

/* ---- trying it --------------------------------------------------------------------------------------------------- */

/* y = swish(swish(x)), with the signature that fr_gradcheck and fr_checkpoint call. */
static fr_status twice(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)ctx;
    (void)n_in;
    (void)n_out;
    fr_status s = swish(in[0], out);
    return s < 0 ? s : swish(out[0], out);
}

/* The gradient of sum(twice(x)), with or without a checkpoint around it. */
static fr_status gradient(bool checkpoint, float *g) {
    fr_tensor *x = NULL, *y = NULL;
    fr_status s = FR_OK;
    fr_seed(3);
    FR_TRY(s, fr_tensor_normal(1, (int64_t[]){100}, 0, 2, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_tensor_set_requires_grad(x, true));
    if (checkpoint)
        FR_TRY(s, fr_checkpoint(twice, NULL, NULL, &x, 1, &y, 1));
    else
        FR_TRY(s, twice(NULL, &x, 1, &y, 1));
    FR_TRY(s, fr_sum(y, &y));
    FR_TRY(s, fr_backward(y, NULL));
    FR_TRY(s, fr_tensor_to_host(fr_tensor_get_grad(x), g));
done:
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    return s;
}

int main(void) {
    fr_tensor *x = NULL;
    float plain[100], recomputed[100];
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_normal(1, (int64_t[]){20}, 0, 2, FR_F64, FR_CPU, &x));
    FR_TRY(s, fr_tensor_set_requires_grad(x, true));
    FR_TRY(s, fr_gradcheck(twice, NULL, &x, 1, NULL));
    printf("gradient check: 20 elements agree with central differences\n");
    FR_TRY(s, gradient(false, plain));
    FR_TRY(s, gradient(true, recomputed));
    if (memcmp(plain, recomputed, sizeof plain) != 0) {
        fprintf(stderr, "04_custom_op: checkpointing changed the gradient\n");
        fr_tensor_release(&x);
        return 1;
    }
    printf("checkpointed: the same gradient, bit for bit\n");
done:
    if (s < 0) fprintf(stderr, "04_custom_op: %s\n", fr_last_error());
    fr_tensor_release(&x);
    return s < 0;
}
