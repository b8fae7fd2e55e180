/* fragmentation.c - a sequence that fragments, in bytes: the caching allocator beside the arena.
 *
 *     build/benchmarks/fragmentation
 *
 * 48 steps on addresses without memory (FR_META): each takes two maps, of 20 and of 10 MiB, 768 KiB larger from
 * step to step, releases both, and leaves 3 MiB behind, as a program does with larger and larger images and kept
 * results. No map fits into the place of the map before, and the 3 MiB split the places. Printed: peak of the live
 * bytes, bytes and number of segments reserved without a limit, and the smallest limit, in steps of 2 MiB, under which
 * the sequence ends. */
#include <frugal/frugal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 48 };

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "fragmentation: %s\n", fr_last_error());
    exit(1);
}

static fr_status sequence(void) {
    fr_tensor *kept[STEPS] = {NULL}, *x = NULL, *y = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < STEPS && s == FR_OK; i++) {
        int64_t bytes = ((int64_t)20 << 20) + i * ((int64_t)768 << 10);
        s = fr_tensor_empty(1, &bytes, FR_U8, FR_META, &x);
        if (s == FR_OK) s = fr_tensor_empty(1, (int64_t[]){bytes / 2}, FR_U8, FR_META, &y);
        fr_tensor_release(&x);
        if (s == FR_OK) s = fr_tensor_empty(1, (int64_t[]){3 << 20}, FR_U8, FR_META, &kept[i]);
        fr_tensor_release(&y);
    }
    for (int i = 0; i < STEPS; i++) fr_tensor_release(&kept[i]);
    return s;
}

/* Runs in a fresh pool. */
static fr_status run(size_t limit, fr_memory_stats *t) {
    fr_pool *pool = NULL;
    fr_pool_state was;
    must(fr_pool_create(FR_META, &pool));
    must(fr_pool_begin(pool, &was));
    must(fr_memory_limit_set(FR_META, limit));
    fr_status s = sequence();
    if (s != FR_ENOMEM) must(s);
    must(fr_memory_stats_get(FR_META, t));
    fr_pool_end(was);
    fr_pool_release(&pool);
    return s;
}

static void caching(void) {
    fr_memory_stats t, ignored;
    must(run(SIZE_MAX, &t));
    size_t low = t.peak_requested >> 21, high = (t.peak_reserved >> 21) + 1;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (run(middle << 21, &ignored) == FR_OK)
            high = middle;
        else
            low = middle;
    }
    printf("| the caching allocator | %zu | %zu | %llu | %zu |\n", t.peak_requested, t.peak_reserved,
           (unsigned long long)t.segment_allocs, high << 21);
}

static void arena(void) {
    fr_plan *plan = NULL;
    fr_placement p;
    must(fr_plan_begin(FR_META, &plan));
    must(fr_plan_section(plan, "sequence"));
    must(sequence());
    must(fr_plan_end(plan));
    must(fr_plan_use_arena(plan, &p));
    printf("| the arena | %zu | %zu | 1 | %zu |\n", p.peak, p.extent, p.extent);
    fr_plan_release(&plan);
}

int main(void) {
    printf("| memory from | most alive | reserved | segments | least limit |\n|---|---|---|---|---|\n");
    caching();
    arena();
    return 0;
}
