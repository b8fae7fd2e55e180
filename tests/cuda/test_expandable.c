/* test_expandable.c - segments that grow, on a fake driver: growing, giving back, failing in the middle, falling
 * back. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/plan.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/expandable.h"
#include "cuda/fake.h"
#include "memory/allocator.h"
#include "support/golden.h"

static void set_up(void) {
    setenv("FRUGAL_EXPANDABLE_SEGMENTS", "1", 1);
    fake_begin();
}

TestSuite(expandable, .init = set_up);

static const size_t mib = 1 << 20;

static fr_status try_block(size_t bytes, fri_block **out) {
    fri_allocator *a = NULL;
    fr_tag tag = fri_tag_make(FR_MEM_OTHER, FR_U8, &(fr_shape){.rank = 1, .dim = {(int64_t)bytes}});
    fr_status s = fri_allocator_get(FR_CUDA, &a);
    return s < 0 ? s : fri_block_alloc(a, bytes, &tag, out);
}

static fri_block *block_of(size_t bytes) {
    fri_block *b = NULL;
    must(try_block(bytes, &b));
    return b;
}

static size_t reserved(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(FR_CUDA, &t));
    cr_expect_eq(t.reserved, fake_virtual.mapped, "reserved %zu, mapped %zu", t.reserved, fake_virtual.mapped);
    cr_expect_eq(fake_virtual.handles, 0, "a handle was kept");
    return t.reserved;
}

Test(expandable, a_segment_grows_behind_its_end) {
    fri_block *a = block_of(30 * mib), *b = block_of(25 * mib), *c = block_of(100 * mib);
    cr_expect_eq(a->size, 30 * mib, "a tail was not split off");
    cr_expect_eq((char *)b->data, (char *)a->data + 30 * mib);
    cr_expect_eq((char *)c->data, (char *)b->data + 25 * mib);
    cr_expect_eq(reserved(), 160 * mib); /* 155 in granules of 20 */
    memset(a->data, 1, a->size);         /* memory is where the addresses say */
    memset(c->data, 2, c->size);
    fri_block_free(&a);
    fri_block_free(&b);
    a = block_of(55 * mib); /* two blocks that fixed segments would have kept apart */
    cr_expect_eq(reserved(), 160 * mib);
    cr_expect_eq((char *)c->data, (char *)a->data + 55 * mib);
    fri_block_free(&a);
    fri_block_free(&c);
}

Test(expandable, small_and_large_blocks_are_apart) {
    fri_block *a = block_of(1024), *b = block_of(2 * mib), *c = block_of(3 * mib / 4), *d = block_of(3 * mib / 4);
    cr_expect_eq(reserved(), 22 * mib);
    cr_expect_eq((char *)c->data, (char *)a->data + 1024);
    cr_expect_eq((char *)d->data, (char *)c->data + 3 * mib / 4);
    fri_block *e = block_of(mib);
    cr_expect_eq(reserved(), 24 * mib);
    cr_expect_eq((char *)e->data, (char *)d->data + 3 * mib / 4);
    fri_block_free(&a);
    fri_block_free(&b);
    fri_block_free(&c);
    fri_block_free(&d);
    fri_block_free(&e);
}

Test(expandable, empty_cache_gives_granules_behind_the_last_block_back) {
    fri_block *a = block_of(30 * mib), *b = block_of(70 * mib);
    fri_block_free(&b);
    must(fr_memory_empty_cache(FR_CUDA));
    cr_expect_eq(reserved(), 40 * mib, "the block ends in the second granule");
    cr_expect_eq(fake.device_waits, 1, "unmapping does not wait by itself");
    b = block_of(10 * mib);
    cr_expect_eq(reserved(), 40 * mib);
    cr_expect_eq((char *)b->data, (char *)a->data + 30 * mib);
    fri_block_free(&a);
    must(fr_memory_empty_cache(FR_CUDA)); /* the free block is in front of a live one */
    cr_expect_eq(reserved(), 40 * mib);
    fri_block_free(&b);
    must(fr_memory_empty_cache(FR_CUDA));
    cr_expect_eq(reserved(), 0);
    cr_expect_eq(fake_virtual.reserved, 0, "addresses were kept");
    cr_expect_eq(fake_virtual.unmapped_early, 0);
    cr_expect_eq(fake.memory, (size_t)1 << 30);
}

/* Whichever call fails, nothing is left mapped and the request is an ordinary failure; then it goes on. */
Test(expandable, a_failure_in_the_middle_gives_everything_back) {
    for (int call = 1; call <= 8; call++) {
        fri_block *a = block_of(30 * mib), *b = NULL;
        size_t mapped = fake_virtual.mapped, left = fake.memory;
        /* 80 MiB more are four granules; a failure is answered by a second try, for which there is not enough */
        fake_virtual.creates_left = call % 2 ? (call + 1) / 2 : 0;
        fake_virtual.maps_left = call % 2 ? 0 : call / 2;
        fake.memory = 60 * mib;
        cr_expect_eq(try_block(90 * mib, &b), FR_ENOMEM);
        cr_expect_null(b);
        cr_expect_eq(fake_virtual.mapped, mapped, "call %d: %zu bytes mapped, before %zu", call, fake_virtual.mapped,
                     mapped);
        cr_expect_eq(fake.memory, 60 * mib);
        fake.memory = left;
        fake_virtual.creates_left = fake_virtual.maps_left = 0;
        b = block_of(90 * mib);
        cr_expect_eq(reserved(), 120 * mib);
        fri_block_free(&a);
        fri_block_free(&b);
        must(fr_memory_empty_cache(FR_CUDA));
        cr_expect_eq(reserved(), 0);
    }
}

Test(expandable, the_first_failure_keeps_no_addresses) {
    fri_block *b = NULL;
    fake.memory = 10 * mib;
    cr_expect_eq(try_block(15 * mib, &b), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), "MiB"));
    cr_expect_eq(fake_virtual.reserved, 0);
}

Test(expandable, a_limit_counts_what_is_mapped) {
    fri_block *a = NULL, *b = NULL;
    must(fr_memory_limit_set(FR_CUDA, 40 * mib));
    must(try_block(30 * mib, &a));
    cr_expect_eq(try_block(11 * mib, &b), FR_ENOMEM);
    must(try_block(10 * mib, &b));
    fri_block_free(&a);
    fri_block_free(&b);
}

static void expect_fallback(const char *word) {
    fri_block *b = block_of(30 * mib);
    cr_expect_eq(fake_virtual.mapped + fake_virtual.reserved, 0);
    cr_expect_not_null(strstr(fri_cuda_expandable_reason(), word), "'%s'", fri_cuda_expandable_reason());
    cr_expect_null(strchr(fri_cuda_expandable_reason(), '\n'));
    fri_block_free(&b);
    must(fr_memory_empty_cache(FR_CUDA));
    cr_expect_eq(fake.frees, 1, "the segment was not cudaMalloc's");
}

Test(expandable, a_device_without_it_uses_fixed_segments) {
    fake_virtual.unsupported = true;
    expect_fallback("no virtual memory management");
}

Test(expandable, a_driver_without_it_uses_fixed_segments) {
    fake_lack("cuMemSetAccess");
    expect_fallback("cuMemSetAccess");
}

/* A sandbox answers so: the attribute is there, the call is not allowed. */
Test(expandable, a_driver_that_refuses_a_call_uses_fixed_segments) {
    static const char *const calls[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
                                        "cuMemUnmap"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_begin();
        fake_virtual.refuses = calls[i];
        expect_fallback(calls[i]);
        cr_expect_eq(fake_virtual.handles, 0, "%s: a handle was kept", calls[i]);
    }
}

/* The dry run follows the same rules: same requests, same reserved. */
Test(expandable, a_plan_maps_what_a_run_maps) {
    static const size_t sizes[] = {512, 3 << 20, 700 << 10, 40 << 20, 9 << 20, 25 << 20, 1 << 20, 60 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    fr_plan *plan = NULL;
    size_t taken[2] = {0}, allocated[2] = {0};
    fake_kernels();
    must(fr_plan_begin(FR_CUDA, &plan));
    must(fr_plan_section(plan, "all"));
    for (int run = 0; run < 2; run++) {
        fr_device d = run ? FR_CUDA : FR_META;
        fr_tensor *t[N] = {0};
        fr_memory_stats m;
        for (int i = 0; i < 40; i++) {
            int64_t n = (int64_t)sizes[(i * 5 + i / 7) % N];
            fr_tensor_release(&t[i % N]);
            must(fr_tensor_empty(1, &n, FR_U8, d, &t[i % N]));
        }
        must(fr_memory_stats_get(d, &m));
        taken[run] = m.peak_reserved;
        allocated[run] = m.peak_allocated;
        for (int i = 0; i < N; i++) fr_tensor_release(&t[i]);
        if (run == 0) must(fr_plan_end(plan));
    }
    cr_expect_eq(taken[0], taken[1], "planned %zu, reserved %zu", taken[0], taken[1]);
    cr_expect_eq(allocated[0], allocated[1], "planned %zu, allocated %zu", allocated[0], allocated[1]);
    cr_expect_gt(taken[1], 0);
    fr_plan_release(&plan);
}

static void without(void) {
    unsetenv("FRUGAL_EXPANDABLE_SEGMENTS");
    fake_begin();
}

Test(expandable, nobody_asked, .init = without) {
    fri_block *b = block_of(30 * mib);
    cr_expect_eq(fake_virtual.mapped + fake_virtual.reserved, 0);
    cr_expect_str_eq(fri_cuda_expandable_reason(), "");
    fri_block_free(&b);
}
