/* 01_tensor.c - tensors, slots, and where their bytes went.
 *
 * Every function that can fail returns a status; FR_TRY jumps to `done` on failure, where all tensors are released. A
 * result goes into a slot: a variable that is NULL or holds a tensor. The old tensor is released and replaced. */
#include <frugal/frugal.h>
#include <stdio.h>

int main(void) {
    fr_tensor *a = NULL, *b = NULL, *y = NULL;
    fr_memory_stats m;
    double sum = 0;
    fr_status s = FR_OK;

    /* Shape order is memory order; an image batch is [N, H, W, C]. Here: two rows of three. */
    const float values[] = {1, 2, 3, 4, 5, 6};
    FR_TRY(s, fr_tensor_from_host(values, 2, (int64_t[]){2, 3}, FR_F32, FR_CPU, &a));
    FR_TRY(s, fr_tensor_full(2, (int64_t[]){2, 3}, 0.5, FR_F32, FR_CPU, &b));

    FR_TRY(s, fr_mul(a, b, &y)); /* y = a * b */
    FR_TRY(s, fr_add(y, a, &y)); /* y = y + a: the old y dies inside the call */
    FR_TRY(s, fr_tensor_print(y, stdout));

    FR_TRY(s, fr_sum(y, &y));
    FR_TRY(s, fr_tensor_item(y, &sum));
    printf("sum = %g\n", sum);

    /* The engine counts every byte by category. Sizes are rounded up to 512, as on a GPU. */
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &m));
    printf("live: %zu bytes requested, %zu at the peak\n", m.requested, m.peak_requested);

    /* A mistake returns a sentence with both shapes, and leaves all tensors unchanged. */
    if (fr_add(a, y, &y) < 0) printf("as expected: %s\n", fr_last_error());

    /* Meta tensors have shapes and bytes but no data: they measure a computation without running it. */
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){256, 224, 224, 64}, FR_F16, FR_META, &y));
    FR_TRY(s, fr_memory_stats_get(FR_META, &m));
    printf("one VGG activation at batch 256 would take %.2f GiB\n", (double)m.allocated / (1 << 30));
done:
    if (s < 0) fprintf(stderr, "01_tensor: %s\n", fr_last_error());
    fr_tensor_release(&a);
    fr_tensor_release(&b);
    fr_tensor_release(&y);
    return s < 0;
}
