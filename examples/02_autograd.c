/* 02_autograd.c - gradients, memory of the graph, and the cost of a forgotten fr_tensor_item.
 *
 * An op on a tensor that requires grad records a node. fr_backward runs the nodes from the newest to the oldest and
 * frees each. */
#include <frugal/frugal.h>
#include <stdio.h>

static size_t live_bytes(void) {
    fr_memory_stats m;
    return fr_memory_stats_get(FR_CPU, &m) < 0 ? 0 : m.requested;
}

/* loss = mean((x w)^2) */
static fr_status loss_of(fr_tensor *x, fr_tensor *w, fr_tensor **loss) {
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_linear(x, w, NULL, &y));
    FR_TRY(s, fr_mul(y, y, &y));
    FR_TRY(s, fr_mean(y, loss));
done:
    fr_tensor_release(&y);
    return s;
}

int main(void) {
    fr_tensor *x = NULL, *w = NULL, *loss = NULL, *total = NULL;
    double value = 0, sum = 0;
    fr_status s = FR_OK;
    fr_seed(1);
    FR_TRY(s, fr_tensor_normal(2, (int64_t[]){64, 256}, 0, 1, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_tensor_normal(2, (int64_t[]){8, 256}, 0, 0.1, FR_F32, FR_CPU, &w));
    FR_TRY(s, fr_tensor_set_requires_grad(w, true));

    size_t before = live_bytes();
    FR_TRY(s, loss_of(x, w, &loss));
    printf("the graph of one forward pass holds %zu bytes\n", live_bytes() - before);
    FR_TRY(s, fr_backward(loss, NULL));
    fr_tensor_release(&loss);
    printf("after backward only the gradient is left: %zu bytes\n", live_bytes() - before);
    FR_TRY(s, fr_tensor_set_grad(w, NULL));

    /* Ops record no nodes without grad mode, so evaluation needs the memory of the largest op only. */
    bool was = fr_no_grad_begin();
    s = loss_of(x, w, &loss);
    fr_no_grad_end(was);
    if (s < 0) goto done;
    printf("without grad: %zu bytes, the loss itself\n", live_bytes() - before);
    fr_tensor_release(&loss);

    /* A sum of loss tensors keeps every step's graph alive ... */
    for (int step = 0; step < 3; step++) {
        FR_TRY(s, loss_of(x, w, &loss));
        if (total == NULL)
            total = fr_tensor_retain(loss);
        else
            FR_TRY(s, fr_add(total, loss, &total));
        printf("summing tensors, step %d: %zu bytes\n", step, live_bytes() - before);
    }
    fr_tensor_release(&total);
    fr_tensor_release(&loss);

    /* ... a sum of numbers does not. */
    for (int step = 0; step < 3; step++) {
        FR_TRY(s, loss_of(x, w, &loss));
        FR_TRY(s, fr_tensor_item(loss, &value));
        fr_tensor_release(&loss);
        sum += value;
        printf("summing numbers, step %d: %zu bytes\n", step, live_bytes() - before);
    }
    printf("mean loss %g\n", sum / 3);
done:
    if (s < 0) fprintf(stderr, "02_autograd: %s\n", fr_last_error());
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    fr_tensor_release(&loss);
    fr_tensor_release(&total);
    return s < 0;
}
