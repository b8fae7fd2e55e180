/* test_fuzz.c - 100,000 random events on two allocators: one with memory, one with addresses only.
 *
 * After every event all statistics of both are equal, totals are the sums of the live blocks, and no live blocks
 * overlap. Therefore a dry run predicts a run. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "memory/allocator.h"

enum { EVENTS = 100000, MAX_LIVE = 400 };

static fr_status real_alloc(size_t bytes, void **out) {
    *out = malloc(bytes);
    return *out != NULL ? FR_OK : FR_ENOMEM;
}

static void real_free(void *segment, size_t bytes) {
    (void)bytes;
    free(segment);
}

static uintptr_t next_address = (uintptr_t)1 << 45;

static fr_status address_alloc(size_t bytes, void **out) {
    *out = (void *)next_address;
    next_address += bytes + 4096;
    return FR_OK;
}

static void address_free(void *segment, size_t bytes) {
    (void)segment;
    (void)bytes;
}

static uint32_t draw(uint64_t *counter) {
    return fri_philox(2024, 0, (*counter)++).v[0];
}

/* Mostly small, some around every threshold, some large. */
static size_t draw_size(uint64_t *counter) {
    static const size_t edges[] = {0,       1,       511,      512,      513,      1048575, 1048576,
                                   1048577, 2097152, 10485759, 10485760, 10485761, 20971520};
    uint32_t kind = draw(counter) % 10, r = draw(counter);
    if (kind < 5) return r % 4096;
    if (kind < 7) return r % (1 << 20);
    if (kind < 9) return edges[r % (sizeof edges / sizeof *edges)];
    return r % (24u << 20);
}

struct pair {
    fri_block *real, *address;
};

static void expect_equal_statistics(const fri_allocator *a, const fri_allocator *b, int event) {
    fr_memory_stats x, y;
    fri_allocator_stats(a, &x);
    fri_allocator_stats(b, &y);
    cr_assert_eq(memcmp(&x, &y, sizeof x), 0,
                 "event %d: statistics differ (allocated %zu and %zu, reserved %zu and %zu)", event, x.allocated,
                 y.allocated, x.reserved, y.reserved);
    size_t requested = 0, allocated = 0;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        requested += x.requested_by[c];
        allocated += x.allocated_by[c];
    }
    cr_assert(requested == x.requested && allocated == x.allocated, "event %d: categories do not add up", event);
    cr_assert(x.requested <= x.allocated && x.allocated <= x.reserved,
              "event %d: requested %zu, allocated %zu, reserved %zu", event, x.requested, x.allocated, x.reserved);
}

static int by_address(const void *a, const void *b) {
    const fri_block *x = ((const struct pair *)a)->real, *y = ((const struct pair *)b)->real;
    return (x->data > y->data) - (x->data < y->data);
}

static void expect_no_overlap(const struct pair *live, int n, int event) {
    static struct pair sorted[MAX_LIVE];
    memcpy(sorted, live, (size_t)n * sizeof *live);
    qsort(sorted, (size_t)n, sizeof *sorted, by_address);
    const char *end = NULL;
    for (int i = 0; i < n; i++) {
        const fri_block *b = sorted[i].real;
        if (b->data == NULL) continue;
        cr_assert((const char *)b->data >= end, "event %d: two live blocks overlap", event);
        end = (const char *)b->data + b->size;
    }
}

Test(allocator_fuzz, two_sources_agree_at_every_event, .timeout = 240) {
    fri_allocator *a = NULL, *b = NULL;
    static struct pair live[MAX_LIVE];
    int n = 0;
    uint64_t counter = 0;
    fr_shape shape = FRI_SHAPE(1);
    cr_assert_eq(fri_allocator_create(FR_CPU, (fri_segment_source){real_alloc, real_free}, &a), FR_OK);
    cr_assert_eq(fri_allocator_create(FR_CPU, (fri_segment_source){address_alloc, address_free}, &b), FR_OK);
    fri_allocator_limit(a, (size_t)600 << 20);
    fri_allocator_limit(b, (size_t)600 << 20);
    for (int event = 0; event < EVENTS; event++) {
        uint32_t what = draw(&counter) % 100;
        int at = n > 0 ? (int)(draw(&counter) % (uint32_t)n) : 0;
        fr_category c = (fr_category)(draw(&counter) % FR_CATEGORY_COUNT);
        if (what < 50 && n < MAX_LIVE) {
            fr_tag tag = fri_tag_make(c, FR_F32, &shape);
            size_t bytes = draw_size(&counter);
            fr_status s = fri_block_alloc(a, bytes, &tag, &live[n].real);
            cr_assert_eq(fri_block_alloc(b, bytes, &tag, &live[n].address), s, "event %d: one source failed", event);
            if (s == FR_OK) {
                if (bytes > 0) memset(live[n].real->data, (int)(event & 255), live[n].real->size);
                n++;
            }
        } else if (what < 92 && n > 0) {
            fri_block_free(&live[at].real);
            fri_block_free(&live[at].address);
            live[at] = live[--n];
        } else if (what < 98 && n > 0) {
            fri_block_relabel(live[at].real, c);
            fri_block_relabel(live[at].address, c);
        } else if (what == 98) {
            fri_allocator_empty_cache(a);
            fri_allocator_empty_cache(b);
        } else if (draw(&counter) % 8 == 0) {
            fri_allocator_reset_peak(a);
            fri_allocator_reset_peak(b);
        }
        expect_equal_statistics(a, b, event);
        if (event % 97 == 0) expect_no_overlap(live, n, event);
    }
    while (n > 0) {
        n--;
        fri_block_free(&live[n].real);
        fri_block_free(&live[n].address);
    }
    fri_allocator_empty_cache(a);
    fri_allocator_empty_cache(b);
    fr_memory_stats t;
    fri_allocator_stats(a, &t);
    cr_expect_eq(t.reserved, 0u, "%zu bytes reserved after everything was freed", t.reserved);
    cr_expect_gt(t.ooms, 0u, "the limit was never met");
    fri_allocator_destroy(&a);
    fri_allocator_destroy(&b);
}

/* A refused request names op, module, bytes and the largest tensors, and changes nothing. */
Test(allocator_fuzz, out_of_memory_is_a_return) {
    fri_allocator *a = NULL;
    fri_block *big = NULL, *more = NULL;
    fr_shape shape = FRI_SHAPE(3, 1 << 20);
    fr_memory_stats before, after;
    cr_assert_eq(fri_allocator_create(FR_META, (fri_segment_source){address_alloc, address_free}, &a), FR_OK);
    fri_allocator_limit(a, (size_t)32 << 20);
    const char *op = fri_scope_op_push("conv2d"), *module = fri_scope_module_push("features");
    fr_tag tag = fri_tag_make(FR_MEM_ACTIVATION, FR_F32, &shape);
    cr_assert_eq(fri_block_alloc(a, (size_t)12 << 20, &tag, &big), FR_OK);
    fri_allocator_stats(a, &before);
    cr_expect_eq(fri_block_alloc(a, (size_t)24 << 20, &tag, &more), FR_ENOMEM);
    cr_expect_null(more);
    static const char *const words[] = {"conv2d", "features", "25165824", "33554432", "activation 12.00 MiB",
                                        "1 x f32"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_expect(strstr(fr_last_error(), words[i]) != NULL, "the report lacks '%s':\n%s", words[i], fr_last_error());
    fri_allocator_stats(a, &after);
    cr_expect_eq(after.allocated, before.allocated);
    cr_expect_eq(after.ooms, before.ooms + 1);
    fri_allocator_fail_at(a, 2);
    cr_expect_eq(fri_block_alloc(a, 512, &tag, &more), FR_OK);
    fri_block_free(&more);
    cr_expect_eq(fri_block_alloc(a, 512, &tag, &more), FR_ENOMEM, "the injected fault did not fail");
    fri_block_free(&big);
    fri_scope_op_pop(op);
    fri_scope_module_pop(module);
    fri_allocator_destroy(&a);
}
