/* test_pytorch_bytes.c - a published script's memory, step by step, to the byte.
 *
 * Linear(1024, H) and Linear(H, 1) without bias on X [1024, 1024], loss = sum of the outputs, forward and backward
 * twice, gradients kept: torch.cuda.memory_allocated after each step as printed by the script's author, and the
 * reserved bytes. Here on addresses without memory, with PyTorch's saving rules (fr_switches_all_off) and the caching
 * allocator. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>

#include "support/golden.h"

enum { ROWS = 1024, STEPS = 7 };

static const struct {
    int64_t hidden;
    size_t after[STEPS]; /* linear1, linear2, inputs, forward, backward, 2nd forward, 2nd backward */
    size_t peak_allocated, peak_reserved;
} widths[] = {
    {1024, {4194304, 4198400, 8392704, 12587520, 12591616, 16785920, 12591616}, 20988416, 23068672},
    {2048, {8388608, 8396800, 12591104, 20980224, 20988416, 29377024, 20988416}, 37777920, 44040192},
};

static size_t allocated(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_META, &t));
    return t.allocated;
}

static fr_tensor *weight(int64_t out, int64_t in) {
    fr_tensor *w = NULL;
    must(fr_tensor_empty(2, (int64_t[]){out, in}, FR_F32, FR_META, &w));
    must(fr_tensor_set_requires_grad(w, true));
    return w;
}

static void forward(fr_tensor *x, fr_tensor *w1, fr_tensor *w2, fr_tensor **loss) {
    fr_tensor *h = NULL;
    must(fr_linear(x, w1, NULL, &h));
    must(fr_linear(h, w2, NULL, &h));
    must(fr_sum(h, loss));
    fr_tensor_release(&h);
}

Test(pytorch_bytes, published_script) {
    fr_switches_set(fr_switches_all_off());
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        fr_memory_stats t;
        size_t got[STEPS];
        fr_tensor *x = NULL, *loss = NULL;
        must(fr_memory_empty_cache(FR_META));
        must(fr_memory_reset_peak(FR_META));
        fr_tensor *w1 = weight(widths[i].hidden, ROWS);
        got[0] = allocated();
        fr_tensor *w2 = weight(1, widths[i].hidden);
        got[1] = allocated();
        must(fr_tensor_empty(2, (int64_t[]){ROWS, ROWS}, FR_F32, FR_META, &x));
        got[2] = allocated();
        for (int pass = 0; pass < 2; pass++) {
            forward(x, w1, w2, &loss);
            got[3 + 2 * pass] = allocated();
            must(fr_backward(loss, NULL));
            got[4 + 2 * pass] = allocated();
        }
        for (int k = 0; k < STEPS; k++)
            cr_expect_eq(got[k], widths[i].after[k], "H %d step %d: %zu, published %zu", (int)widths[i].hidden, k,
                         got[k], widths[i].after[k]);
        must(fr_memory_stats_get(FR_META, &t));
        cr_expect_eq(t.peak_allocated, widths[i].peak_allocated, "H %d: peak %zu, not %zu", (int)widths[i].hidden,
                     t.peak_allocated, widths[i].peak_allocated);
        cr_expect_eq(t.peak_reserved, widths[i].peak_reserved, "H %d: reserved %zu, not %zu", (int)widths[i].hidden,
                     t.peak_reserved, widths[i].peak_reserved);
        RELEASE_ALL(&x, &loss, &w1, &w2);
        cr_expect_eq(allocated(), 0u);
    }
}

/* torch.tensor([1.0]).cuda() */
Test(pytorch_bytes, one_number) {
    fr_memory_stats t;
    fr_tensor *x = NULL;
    must(fr_tensor_empty(1, (int64_t[]){1}, FR_F32, FR_META, &x));
    must(fr_memory_stats_get(FR_META, &t));
    cr_expect_eq(t.allocated, 512u);
    cr_expect_eq(t.reserved, 2097152u);
    fr_tensor_release(&x);
}
