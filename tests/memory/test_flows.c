/* test_flows.c - the table of torch.cuda.memory_summary and its counts. */
#include "memory/report.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/tensor.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

/* Output of PyTorch 2.15's formatter for the sequence below, with a changed heading; the numbers come from an
 * emulation of the published updates. */
static const char golden[] = "|===========================================================================|\n"
                             "|                  frugal memory summary, device meta                       |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |\n"
                             "|===========================================================================|\n"
                             "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Allocated memory      |    926 MiB |    926 MiB |   1560 MiB | 649217 KiB |\n"
                             "|       from large pool |    925 MiB |    925 MiB |   1559 MiB | 649216 KiB |\n"
                             "|       from small pool |      0 MiB |      0 MiB |      0 MiB |      1 KiB |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Active memory         |    926 MiB |    926 MiB |   1560 MiB | 649217 KiB |\n"
                             "|       from large pool |    925 MiB |    925 MiB |   1559 MiB | 649216 KiB |\n"
                             "|       from small pool |      0 MiB |      0 MiB |      0 MiB |      1 KiB |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Requested memory      |    926 MiB |    926 MiB |   1559 MiB | 648193 KiB |\n"
                             "|       from large pool |    925 MiB |    925 MiB |   1558 MiB | 648192 KiB |\n"
                             "|       from small pool |      0 MiB |      0 MiB |      0 MiB |      1 KiB |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| GPU reserved memory   |   1548 MiB |   1548 MiB |   1548 MiB |      0 B   |\n"
                             "|       from large pool |   1546 MiB |   1546 MiB |   1546 MiB |      0 B   |\n"
                             "|       from small pool |      2 MiB |      2 MiB |      2 MiB |      0 B   |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Non-releasable memory |  22231 KiB |  22231 KiB |  33792 KiB |  11560 KiB |\n"
                             "|       from large pool |  21062 KiB |  21062 KiB |  31743 KiB |  10681 KiB |\n"
                             "|       from small pool |   1169 KiB |   2047 KiB |   2048 KiB |    879 KiB |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Allocations           |       5    |       6    |      11    |       6    |\n"
                             "|       from large pool |       4    |       4    |       8    |       4    |\n"
                             "|       from small pool |       1    |       2    |       3    |       2    |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Active allocs         |       5    |       6    |      11    |       6    |\n"
                             "|       from large pool |       4    |       4    |       8    |       4    |\n"
                             "|       from small pool |       1    |       2    |       3    |       2    |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| GPU reserved segments |       5    |       5    |       5    |       0    |\n"
                             "|       from large pool |       4    |       4    |       4    |       0    |\n"
                             "|       from small pool |       1    |       1    |       1    |       0    |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Non-releasable allocs |       5    |       5    |       5    |       0    |\n"
                             "|       from large pool |       3    |       3    |       3    |       0    |\n"
                             "|       from small pool |       2    |       2    |       2    |       0    |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Oversize allocations  |       0    |       0    |       0    |       0    |\n"
                             "|---------------------------------------------------------------------------|\n"
                             "| Oversize GPU segments |       0    |       0    |       0    |       0    |\n"
                             "|===========================================================================|\n";

/* Bytes to allocate, or -n: the n-th is freed. */
static const int64_t sequence[] = {3 * MIB, 5 * MIB,   700, 900000,       -1,  -3, 1500000, 25 * MIB, 4 * MIB,
                                   -2,      600 * MIB, -6,  20 * MIB + 1, 100, -8, -10,     900 * MIB};

static fr_tensor *live[32];
static int n_live;

static void run(void) {
    for (size_t i = 0; i < sizeof sequence / sizeof *sequence; i++)
        if (sequence[i] < 0)
            fr_tensor_release(&live[-sequence[i] - 1]);
        else
            cr_assert_eq(fr_tensor_empty(1, &sequence[i], FR_U8, FR_META, &live[n_live++]), FR_OK);
}

static void release_all(void) {
    for (int i = 0; i < n_live; i++) fr_tensor_release(&live[i]);
    n_live = 0;
}

/* The summary after its first table. */
static char *table(void) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    cr_assert_eq(fr_memory_summary(FR_META, f), FR_OK);
    fclose(f);
    return text;
}

Test(flows, as_pytorch_prints_it) {
    run();
    char *text = table(), *at = strchr(text, '|');
    cr_assert_not_null(at);
    cr_expect_str_eq(at, golden);
    free(text);
    release_all();
}

Test(flows, what_came_has_gone) {
    fr_memory_flows t;
    fr_tensor *empty = NULL;
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){0}, FR_U8, FR_META, &empty), FR_OK);
    cr_assert_eq(fri_memory_flows_get(FR_META, &t), FR_OK);
    cr_expect_eq(t.flow[FR_FLOW_ALLOCATIONS][FR_MEMORY_ALL].total, 0u, "0 bytes are no allocation");
    fr_tensor_release(&empty);
    run();
    release_all();
    cr_assert_eq(fr_memory_empty_cache(FR_META), FR_OK);
    cr_assert_eq(fri_memory_flows_get(FR_META, &t), FR_OK);
    for (int k = 0; k < FR_MEMORY_FLOWS; k++)
        for (int p = 0; p < FR_MEMORY_POOLS; p++) {
            const fr_memory_flow *f = &t.flow[k][p];
            cr_expect(f->now == 0 && f->total == f->freed && (f->peak > 0) == (f->total > 0),
                      "kind %d, pool %d: now %zu, peak %zu, total %zu, freed %zu", k, p, f->now, f->peak, f->total,
                      f->freed);
        }
    cr_expect_eq(t.flow[FR_FLOW_OVERSIZE_ALLOCATIONS][FR_MEMORY_ALL].total, 0u);
    cr_assert_eq(fr_memory_reset_peak(FR_META), FR_OK);
    cr_assert_eq(fri_memory_flows_get(FR_META, &t), FR_OK);
    cr_expect_eq(t.flow[FR_FLOW_RESERVED][FR_MEMORY_ALL].peak, 0u);
}

/* Oversize blocks (max_split_size_mb and larger): 25, 600 and 900 MiB, with their segments; the segment of 20 MiB + 1
 * counts too. */
Test(flows, oversize) {
    fr_memory_flows t;
    cr_assert_eq(fr_memory_settings_set(FR_META, "max_split_size_mb:22"), FR_OK);
    run();
    cr_assert_eq(fri_memory_flows_get(FR_META, &t), FR_OK);
    cr_expect_eq(t.flow[FR_FLOW_OVERSIZE_ALLOCATIONS][FR_MEMORY_ALL].total, 3u);
    cr_expect_eq(t.flow[FR_FLOW_OVERSIZE_ALLOCATIONS][FR_MEMORY_LARGE].now, 1u);
    cr_expect_eq(t.flow[FR_FLOW_OVERSIZE_SEGMENTS][FR_MEMORY_ALL].now, 4u);
    cr_expect_eq(t.flow[FR_FLOW_OVERSIZE_SEGMENTS][FR_MEMORY_SMALL].now, 0u);
    release_all();
}
