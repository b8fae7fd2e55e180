/* test_allocator.c - the rules of PyTorch's CUDA caching allocator, tested separately, on addresses without memory.
 *
 * Reference: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.x, as summarized in docs/memory.md. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "memory/allocator.h"

static const size_t KIB = 1024, MIB = 1024 * 1024;

/* ---- a source that returns addresses and records requests ---------------------------------------------------- */

enum { MAX_SEGMENTS = 64 };

static struct {
    uintptr_t next;
    size_t taken[MAX_SEGMENTS], given[MAX_SEGMENTS];
    int n_taken, n_given;
    size_t capacity, in_use; /* of the device; capacity 0: no end */
} device;

static fr_status take(size_t bytes, void **out) {
    if (device.capacity != 0 && device.in_use + bytes > device.capacity) return FR_ENOMEM;
    cr_assert_lt(device.n_taken, MAX_SEGMENTS);
    device.taken[device.n_taken++] = bytes;
    device.in_use += bytes;
    *out = (void *)(device.next + ((uintptr_t)1 << 40));
    device.next += bytes + 4096; /* segments never touch */
    return FR_OK;
}

static void give(void *segment, size_t bytes) {
    (void)segment;
    cr_assert_lt(device.n_given, MAX_SEGMENTS);
    device.given[device.n_given++] = bytes;
    device.in_use -= bytes;
}

static fri_allocator *a;

static void setup(void) {
    memset(&device, 0, sizeof device);
    cr_assert_eq(fri_allocator_create(FR_META, (fri_segment_source){take, give}, &a), FR_OK);
}

static void teardown(void) {
    fri_allocator_destroy(&a);
    cr_expect_eq(device.in_use, 0u, "%zu bytes were not given back", device.in_use);
}

TestSuite(allocator, .init = setup, .fini = teardown);

static fri_block *get_as(size_t bytes, fr_category c) {
    fri_block *b = NULL;
    fr_shape shape = FRI_SHAPE((int64_t)bytes);
    fr_tag tag = fri_tag_make(c, FR_U8, &shape);
    cr_assert_eq(fri_block_alloc(a, bytes, &tag, &b), FR_OK, "%s", fr_last_error());
    return b;
}

static fri_block *get(size_t bytes) {
    return get_as(bytes, FR_MEM_TEMPORARY);
}

static fr_status refused(size_t bytes) {
    fri_block *b = NULL;
    fr_shape shape = FRI_SHAPE((int64_t)bytes);
    fr_tag tag = fri_tag_make(FR_MEM_TEMPORARY, FR_U8, &shape);
    fr_status s = fri_block_alloc(a, bytes, &tag, &b);
    cr_assert_null(b);
    return s;
}

static void put(fri_block *b) {
    fri_block_free(&b);
}

static fr_memory_stats stats(void) {
    fr_memory_stats t;
    fri_allocator_stats(a, &t);
    return t;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

Test(allocator, sizes_are_rounded_up_to_512) {
    static const size_t sizes[][2] = {{1, 512}, {511, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {1048575, 1048576}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fri_block *b = get(sizes[i][0]);
        cr_expect_eq(b->requested, sizes[i][1]);
        cr_expect_eq(stats().requested, sizes[i][1]);
        cr_expect_eq(stats().allocated, sizes[i][1]);
        put(b);
    }
    cr_expect_eq(fri_round_bytes(0), 0u);
}

Test(allocator, zero_bytes_take_nothing) {
    fri_block *b = get(0);
    cr_expect_null(b->data);
    cr_expect_eq(stats().allocated, 0u);
    cr_expect_eq(stats().reserved, 0u);
    cr_expect_eq(device.n_taken, 0);
    put(b);
    cr_expect_eq(stats().allocs, 1u);
    cr_expect_eq(stats().frees, 1u);
}

/* Up to 1 MiB: 2 MiB. Below 10 MiB: 20 MiB. Above: rounded up to a multiple of 2 MiB. */
Test(allocator, segments_have_the_published_sizes) {
    static const struct {
        size_t request, segment;
    } cases[] =
        {{1, 2 << 20},         {1 << 20, 2 << 20},         {(1 << 20) + 1, 20 << 20},  {(10 << 20) - 512, 20 << 20},
         {10 << 20, 10 << 20}, {(10 << 20) + 1, 12 << 20}, {(20 << 20) + 1, 22 << 20}, {21 << 20, 22 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(get(cases[i].request));
        cr_expect_eq(device.taken[i], cases[i].segment, "%zu bytes: a segment of %zu, not %zu", cases[i].request,
                     device.taken[i], cases[i].segment);
        cr_expect_eq(stats().reserved, cases[i].segment);
        fri_allocator_empty_cache(a);
    }
}

/* ---- pools, splitting, merging ----------------------------------------------------------------------------------- */

Test(allocator, small_and_large_requests_never_share_a_segment) {
    fri_block *small = get(1 * MIB), *large = get(1 * MIB + 512);
    cr_expect_eq(device.n_taken, 2);
    fri_block *small2 = get(1 * MIB), *large2 = get(2 * MIB);
    cr_expect_eq(device.n_taken, 2, "both had room left in their own segments");
    put(large);
    put(large2);
    fri_block *small3 = get(512); /* 20 MiB lie free in the large pool */
    cr_expect_eq(device.n_taken, 3);
    cr_expect_eq(device.taken[2], 2 * MIB);
    put(small);
    put(small2);
    put(small3);
}

Test(allocator, a_small_block_is_split_down_to_512_bytes) {
    fri_block *b = get(1 * MIB), *c = get(1 * MIB - 512), *d = get(512);
    cr_expect_eq(device.n_taken, 1);
    cr_expect_eq(stats().allocated, 2 * MIB);
    cr_expect_eq((char *)d->data - (char *)b->data, (ptrdiff_t)(2 * MIB - 512));
    put(b);
    put(c);
    put(d);
}

/* Large pool: a remainder above 1 MiB becomes a block; a smaller remainder stays in the allocated block and
 * counts. */
Test(allocator, the_unsplit_tail_of_a_large_block_counts_as_allocated) {
    fri_block *b = get(19 * MIB); /* own segment of 20 MiB: 1 MiB is left over, not more */
    cr_expect_eq(b->size, 20 * MIB);
    cr_expect_eq(b->requested, 19 * MIB);
    cr_expect_eq(stats().allocated, 20 * MIB);
    cr_expect_eq(stats().requested, 19 * MIB);
    put(b);
    cr_expect_eq(stats().allocated, 0u);
    b = get(19 * MIB - 512); /* now the rest is 1 MiB + 512 */
    cr_expect_eq(b->size, 19 * MIB - 512);
    cr_expect_eq(stats().allocated, 19 * MIB - 512);
    cr_expect_eq(device.n_taken, 1);
    put(b);
}

Test(allocator, the_tail_belongs_to_the_category_of_its_block) {
    fri_block *b = get_as(19 * MIB, FR_MEM_ACTIVATION);
    cr_expect_eq(stats().allocated_by[FR_MEM_ACTIVATION], 20 * MIB);
    cr_expect_eq(stats().requested_by[FR_MEM_ACTIVATION], 19 * MIB);
    fri_block_relabel(b, FR_MEM_GRADIENT);
    cr_expect_eq(stats().allocated_by[FR_MEM_ACTIVATION], 0u);
    cr_expect_eq(stats().allocated_by[FR_MEM_GRADIENT], 20 * MIB);
    cr_expect_eq(stats().requested_by[FR_MEM_GRADIENT], 19 * MIB);
    put(b);
    cr_expect_eq(stats().allocated_by[FR_MEM_GRADIENT], 0u);
}

Test(allocator, a_freed_block_merges_with_its_free_neighbours) {
    fri_block *b[4];
    for (int i = 0; i < 4; i++) b[i] = get(512 * KIB); /* fills the segment */
    put(b[0]);
    put(b[2]);
    cr_expect_eq(stats().largest_free, 512 * KIB);
    put(b[1]); /* neighbours on both sides */
    cr_expect_eq(stats().largest_free, 1536 * KIB);
    put(b[3]);
    cr_expect_eq(stats().largest_free, 2 * MIB);
    fri_block *again = get(1 * MIB);
    cr_expect_eq(device.n_taken, 1);
    put(again);
}

Test(allocator, blocks_of_different_segments_never_merge) {
    fri_block *b[4];
    for (int i = 0; i < 4; i++) b[i] = get(1 * MIB); /* two segments */
    for (int i = 0; i < 4; i++) put(b[i]);
    cr_expect_eq(device.n_taken, 2);
    cr_expect_eq(stats().largest_free, 2 * MIB);
}

/* ---- best fit ---------------------------------------------------------------------------------------------------- */

/* Holes of 4, 3 and 5 KiB between live blocks: the smallest that is large enough is taken. */
Test(allocator, the_smallest_block_that_fits_is_taken) {
    static const size_t holes[] = {4096, 3072, 5120};
    fri_block *hole[3], *wall[3];
    void *at[3];
    for (int i = 0; i < 3; i++) {
        hole[i] = get(holes[i]);
        wall[i] = get(512);
        at[i] = hole[i]->data;
    }
    fri_block *rest = get(1 * MIB);
    for (int i = 0; i < 3; i++) put(hole[i]);
    fri_block *b = get(3072), *c = get(4608), *d = get(2048);
    cr_expect_eq(b->data, at[1]);
    cr_expect_eq(c->data, at[2]);
    cr_expect_eq(d->data, at[0], "only the hole of 4 KiB is left");
    fri_block *e = get(2048);
    cr_expect_eq((char *)e->data, (char *)at[0] + 2048, "and it was split");
    for (int i = 0; i < 3; i++) put(wall[i]);
    put(rest);
    put(b);
    put(c);
    put(d);
    put(e);
}

/* Equal sizes: the older segment, then the lower offset, whatever the addresses and the order of freeing. */
Test(allocator, ties_go_to_the_older_segment_and_the_lower_offset) {
    fri_block *b[8], *order[8];
    void *at[8];
    for (int i = 0; i < 8; i++) {
        b[i] = get(512 * KIB);
        at[i] = b[i]->data;
    }
    cr_expect_eq(device.n_taken, 2);
    put(b[6]); /* holes at 0, 2 of the second segment and 1, 3 of the first, freed in this order */
    put(b[4]);
    put(b[3]);
    put(b[1]);
    static const int expected[] = {1, 3, 4, 6};
    for (int i = 0; i < 4; i++) {
        order[i] = get(512 * KIB);
        cr_expect_eq(order[i]->data, at[expected[i]], "request %d", i);
    }
    for (int i = 0; i < 4; i++) put(order[i]);
    put(b[0]);
    put(b[2]);
    put(b[5]);
    put(b[7]);
}

/* ---- cache, limit, out of memory --------------------------------------------------------------------------------- */

Test(allocator, empty_cache_gives_back_whole_segments_only) {
    fri_block *keep = get(512), *other = get(1 * MIB), *large = get(30 * MIB);
    fri_block *full = get(1 * MIB); /* a second small segment */
    cr_expect_eq(stats().reserved, 2 * MIB + 30 * MIB + 2 * MIB);
    put(other);
    put(large);
    put(full);
    fri_allocator_empty_cache(a);
    cr_expect_eq(stats().reserved, 2 * MIB, "the segment with a live block stays");
    cr_expect_eq(stats().segment_frees, 2u);
    cr_expect_eq(stats().peak_reserved, 34 * MIB);
    put(keep);
    fri_allocator_empty_cache(a);
    cr_expect_eq(stats().reserved, 0u);
}

/* If the device cannot serve a miss, all free segments are released and the request is repeated. */
Test(allocator, cached_segments_are_given_back_before_giving_up) {
    device.capacity = 40 * MIB;
    fri_block *b = get(12 * MIB), *c = get(14 * MIB);
    put(b);
    put(c);
    fri_block *d = get(30 * MIB);
    cr_expect_eq(stats().retries, 1u);
    cr_expect_eq(stats().ooms, 0u);
    cr_expect_eq(stats().reserved, 30 * MIB);
    cr_expect_eq(device.n_given, 2);
    cr_expect_eq(refused(20 * MIB), FR_ENOMEM);
    cr_expect_eq(stats().retries, 2u);
    cr_expect_eq(stats().ooms, 1u);
    put(d);
}

Test(allocator, the_limit_caps_what_is_reserved) {
    fri_allocator_limit(a, 24 * MIB);
    fri_block *b = get(20 * MIB);
    cr_expect_eq(refused(6 * MIB), FR_ENOMEM, "a segment of 20 MiB does not fit any more");
    fri_block *c = get(2 * MIB - 1 * MIB); /* a small segment does */
    cr_expect_eq(stats().reserved, 22 * MIB);
    cr_expect_eq(stats().limit, 24 * MIB);
    fri_allocator_limit(a, SIZE_MAX);
    fri_block *d = get(6 * MIB);
    put(b);
    put(c);
    put(d);
    device.capacity = 1024 * MIB;
    cr_expect_eq(refused(SIZE_MAX - 100), FR_ENOMEM, "rounding must not wrap around");
    cr_expect_eq(refused(SIZE_MAX / 2), FR_ENOMEM);
}

Test(allocator, a_refused_request_changes_no_live_byte) {
    fri_block *b = get_as(3 * MIB, FR_MEM_PARAMETER);
    fr_memory_stats before = stats();
    fri_allocator_limit(a, 20 * MIB);
    cr_expect_eq(refused(64 * MIB), FR_ENOMEM);
    fr_memory_stats after = stats();
    cr_expect_eq(after.allocated, before.allocated);
    cr_expect_eq(after.requested, before.requested);
    cr_expect_eq(after.reserved, before.reserved);
    cr_expect_eq(after.peak_allocated, before.peak_allocated);
    cr_expect_eq(after.allocs, before.allocs);
    cr_expect_eq(memcmp(after.allocated_by, before.allocated_by, sizeof after.allocated_by), 0);
    put(b);
}

static void expect_words(const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        cr_expect(strstr(fr_last_error(), words[i]) != NULL, "the report lacks '%s':\n%s", words[i], fr_last_error());
}

Test(allocator, the_report_names_the_request_the_totals_and_the_largest_tensors) {
    fri_block *b[3];
    fr_shape shape = FRI_SHAPE(2, 3, 262144);
    const char *module = fri_scope_module_push("features"), *op = fri_scope_op_push("conv2d");
    fr_tag tag = fri_tag_make(FR_MEM_ACTIVATION, FR_F32, &shape);
    for (int i = 0; i < 2; i++) cr_assert_eq(fri_block_alloc(a, 6 * MIB, &tag, &b[i]), FR_OK);
    fri_scope_op_pop(op);
    fri_scope_module_pop(module);
    b[2] = get_as(1 * MIB, FR_MEM_PARAMETER);
    fri_allocator_limit(a, 32 * MIB);
    module = fri_scope_module_push("classifier");
    op = fri_scope_op_push("linear");
    cr_expect_eq(refused(24 * MIB), FR_ENOMEM);
    fri_scope_op_pop(op);
    fri_scope_module_pop(module);
    static const char *const words[] = {"out of memory on meta",
                                        "linear",
                                        "classifier",
                                        "24.00 MiB (25165824 bytes",
                                        "limit is 32.00 MiB",
                                        "13.00 MiB allocated",
                                        "reserved: 22.00 MiB",
                                        "9.00 MiB is cached and free (largest piece 8.00 MiB)",
                                        "activation 12.00 MiB",
                                        "parameter 1.00 MiB",
                                        "12.00 MiB    2 x f32 [2, 3, 262144]  activation, conv2d, features"};
    expect_words(words, sizeof words / sizeof *words);
    cr_expect_lt(strstr(fr_last_error(), "2 x f32"), strstr(fr_last_error(), "1 x u8"), "largest first");
    for (int i = 0; i < 3; i++) put(b[i]);
}

Test(allocator, the_nth_allocation_fails_on_demand) {
    fri_allocator_fail_at(a, 3);
    put(get(512));
    fri_block *b = get(512);
    cr_expect_eq(refused(512), FR_ENOMEM);
    put(get(512));
    put(b);
    cr_expect_eq(stats().ooms, 1u);
    fri_allocator_fail_at(a, 1);
    fri_allocator_fail_at(a, 0);
    put(get(512));
}

/* ---- peaks ------------------------------------------------------------------------------------------------------- */

/* The snapshot is taken at the first instant of the maximum and not rewritten later. */
Test(allocator, at_peak_is_the_first_instant_of_the_maximum) {
    const char *op = fri_scope_op_push("first");
    fri_block *b = get_as(1 * MIB, FR_MEM_ACTIVATION), *c = get_as(512 * KIB, FR_MEM_WORKSPACE);
    fri_scope_op_pop(op);
    op = fri_scope_op_push("second");
    fri_block_relabel(b, FR_MEM_GRADIENT);
    put(c);
    c = get_as(512 * KIB, FR_MEM_INPUT); /* an equal peak */
    fri_scope_op_pop(op);
    fr_memory_stats t = stats();
    cr_expect_eq(t.peak_allocated, 1536 * KIB);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_ACTIVATION], 1 * MIB);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_WORKSPACE], 512 * KIB);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_GRADIENT], 0u);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_INPUT], 0u);
    cr_expect_str_eq(t.peak_op, "first");
    cr_expect_eq(t.allocated_by[FR_MEM_GRADIENT], 1 * MIB);
    op = fri_scope_op_push("third");
    fri_block *d = get_as(512, FR_MEM_OTHER); /* higher by the minimum */
    fri_scope_op_pop(op);
    t = stats();
    cr_expect_str_eq(t.peak_op, "third");
    cr_expect_eq(t.at_peak_allocated[FR_MEM_GRADIENT], 1 * MIB);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_OTHER], 512u);
    size_t sum = 0;
    for (int i = 0; i < FR_CATEGORY_COUNT; i++) sum += t.at_peak_allocated[i];
    cr_expect_eq(sum, t.peak_allocated);
    put(b);
    put(c);
    put(d);
}

/* Requested and allocated bytes may peak at different instants. */
Test(allocator, requested_and_allocated_have_peaks_of_their_own) {
    fri_block *b = get_as(19 * MIB, FR_MEM_ACTIVATION); /* 20 MiB with its tail */
    put(b);
    fri_allocator_empty_cache(a);
    b = get_as(19 * MIB + 512 * KIB - 512, FR_MEM_INPUT); /* requests more; also 20 MiB */
    cr_expect_eq(stats().at_peak_allocated[FR_MEM_ACTIVATION], 20 * MIB);
    cr_expect_eq(stats().at_peak_requested[FR_MEM_INPUT], 19 * MIB + 512 * KIB - 512);
    cr_expect_eq(stats().at_peak_requested[FR_MEM_ACTIVATION], 0u);
    put(b);
}

Test(allocator, reset_peak_starts_from_what_is_live) {
    fri_block *b = get(1 * MIB), *c = get_as(512, FR_MEM_PARAMETER);
    put(b);
    fri_allocator_reset_peak(a);
    fr_memory_stats t = stats();
    cr_expect_eq(t.peak_allocated, 512u);
    cr_expect_eq(t.peak_requested, 512u);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_PARAMETER], 512u);
    cr_expect_eq(t.at_peak_allocated[FR_MEM_TEMPORARY], 0u);
    cr_expect_eq(t.peak_reserved, 2 * MIB);
    put(c);
}

/* ---- published numbers ------------------------------------------------------------------------------------------- */

/* pytorch_memlab's README: Linear(100, 100) once, twice, three times: 40.00K, 80.00K, 120.00K; reserved 2.00M. */
Test(allocator, three_linear_layers) {
    fri_block *b[6];
    for (int i = 0; i < 3; i++) {
        b[2 * i] = get(100 * 100 * 4);
        b[2 * i + 1] = get(100 * 4);
        cr_expect_eq(stats().allocated, (size_t)(i + 1) * 40960);
    }
    cr_expect_eq(stats().reserved, 2097152u);
    for (int i = 0; i < 6; i++) put(b[i]);
}
