/* 06_checkpoint.c - 1,000 layers of Linear(10, 10) in two checkpointed halves.
 *
 * The graph keeps only the input of each half; backward runs the half again, with equal bits. The plain step peaks with
 * all activations alive, the checkpointed step with the activations of one half. */
#include <frugal/frugal.h>
#include <stdio.h>

enum { LAYERS = 1000, BATCH = 64 };

static fr_status make_model(fr_module **m) {
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 10});
    for (int i = 0; i < LAYERS; i++) x = fr_net_linear(n, NULL, x, 10, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}

/* Two ranges of units, here of one layer each: run_first_half and run_second_half in PyTorch. */
static fr_status in_two_halves(fr_module *m, fr_tensor *x, fr_tensor **y) {
    const fr_unit_range halves[] = {{0, LAYERS / 2}, {LAYERS / 2, LAYERS}};
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = LAYERS, .ranges = 2, .range = halves}, x, y);
}

/* Forward and backward; *kept: bytes of activations when backward begins; *value: the first weight's gradient. */
static fr_status step(fr_module *m, fr_tensor *x, bool halves, size_t *kept, size_t *peak, double *value) {
    fr_tensor *y = NULL, *loss = NULL, *sum = NULL;
    fr_memory_stats t;
    fr_status s = FR_OK;
    fr_module_zero_grad(m);
    FR_TRY(s, fr_memory_reset_peak(FR_CPU));
    if (halves)
        FR_TRY(s, in_two_halves(m, x, &y));
    else
        FR_TRY(s, fr_module_forward(m, x, &y));
    FR_TRY(s, fr_mean(y, &loss));
    fr_tensor_release(&y);
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &t));
    *kept = t.requested_by[FR_MEM_ACTIVATION];
    FR_TRY(s, fr_backward(loss, NULL));
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &t));
    *peak = t.peak_requested;
    FR_TRY(s, fr_sum(fr_tensor_get_grad(fr_module_tensor(fr_module_find(m, "999"), "weight")), &sum));
    FR_TRY(s, fr_tensor_item(sum, value));
done:
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_tensor_release(&sum);
    return s;
}

int main(void) {
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    size_t kept[2] = {0}, peak[2] = {0};
    double value[2] = {0};
    fr_seed(1);
    FR_TRY(s, make_model(&m));
    FR_TRY(s, fr_tensor_normal(2, (int64_t[]){BATCH, 10}, 0, 1, FR_F32, FR_CPU, &x));
    for (int i = 0; i < 2; i++) FR_TRY(s, step(m, x, i == 1, &kept[i], &peak[i], &value[i]));
    printf("plain: %zu bytes kept for backward, peak %zu\n", kept[0], peak[0]);
    printf("two checkpointed halves: %zu bytes kept for backward, peak %zu\n", kept[1], peak[1]);
    printf("the same gradient to the last bit: %s\n", value[0] == value[1] ? "yes" : "no");
    if (value[0] != value[1] || kept[1] >= kept[0] || peak[1] >= peak[0])
        s = fr_fail(FR_EINTERNAL, "the checkpointed step is not the plain one in less memory");
done:
    if (s < 0) fprintf(stderr, "06_checkpoint: %s\n", fr_last_error());
    fr_tensor_release(&x);
    fr_module_release(&m);
    return s < 0;
}
