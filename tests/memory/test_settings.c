/* test_settings.c - PyTorch's settings against fragmentation, beside a model written from the published rules.
 *
 * The model knows nothing of the allocator: pieces in one array, ordered by address, searched from end to end. After
 * each of 10,000 random operations under each setting, reserved, allocated, segments and failures are equal. */
#include "memory/report.h"
#include "plan/section.h"
#include <criterion/criterion.h>
#include <frugal/plan.h>
#include <frugal/tensor.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "memory/allocator.h"
#include "meta/meta.h"

enum { OPERATIONS = 10000, FREE_OPERATIONS = 500 /* without a limit */, MAX_LIVE = 200, MAX_PIECES = 4096 };

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct piece {
    uintptr_t at;
    size_t size;
    int segment;
    bool live, small;
    uint64_t since;
};

static struct model {
    struct piece p[MAX_PIECES];
    int n, segments;
    uintptr_t end;
    uint64_t searches[2];
    size_t limit, max_split, divisions[16], reserved, allocated, taken, given, ooms;
    double threshold;
} m;

static bool unsplit(int i) {
    return (i == 0 || m.p[i - 1].segment != m.p[i].segment) && (i + 1 == m.n || m.p[i + 1].segment != m.p[i].segment);
}

static void drop(int i) {
    memmove(&m.p[i], &m.p[i + 1], (size_t)(m.n - i - 1) * sizeof *m.p);
    m.n--;
}

static void release(int i) {
    m.reserved -= m.p[i].size;
    m.given++;
    drop(i);
}

static size_t model_round(size_t bytes) {
    size_t low = 1, interval = 0;
    while (2 * low <= bytes) low *= 2;
    for (size_t s = MIB; 2 * s <= low && interval < 15; s *= 2) interval++;
    size_t d = m.divisions[interval];
    if (d > 1 && bytes > 512 * d) {
        size_t up = low;
        while (up < bytes) up += low / d;
        return up;
    }
    return (bytes + 511) / 512 * 512;
}

static bool model_collects(void) {
    return m.threshold > 0 && m.limit != SIZE_MAX;
}

/* Smallest sufficient free piece, the lowest among equals; -1: none. */
static int model_search(bool small, size_t size) {
    int best = -1;
    for (int i = 0; i < m.n; i++)
        if (!m.p[i].live && m.p[i].small == small && m.p[i].size >= size && (best < 0 || m.p[i].size < m.p[best].size))
            best = i;
    return best;
}

static int model_cached(bool small, size_t size) {
    if (model_collects()) m.searches[small]++;
    int best = model_search(small, size);
    if (best < 0) return -1;
    bool oversize = m.p[best].size >= m.max_split;
    if (size < m.max_split) return oversize ? -1 : best;
    return m.p[best].size >= size + 20 * MIB ? -1 : best;
}

static void model_collect(void) {
    size_t threshold = (size_t)(m.threshold * (double)m.limit), got = 0;
    if (!model_collects() || m.reserved <= threshold) return;
    size_t target = m.reserved - threshold;
    bool freed = true;
    while (got < target && freed) {
        double ages = 0, count = 0;
        for (int i = 0; i < m.n; i++)
            if (!m.p[i].live && !m.p[i].small && unsplit(i)) {
                ages += (double)(m.searches[0] - m.p[i].since);
                count++;
            }
        freed = false;
        for (int i = 0; count > 0 && i < m.n;)
            if (!m.p[i].live && !m.p[i].small && unsplit(i) && (double)(m.searches[0] - m.p[i].since) >= ages / count) {
                got += m.p[i].size;
                freed = true;
                release(i);
            } else {
                i++;
            }
    }
}

static int model_segment(bool small, size_t size) {
    size_t bytes = small ? 2 * MIB : size < 10 * MIB ? 20 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (m.limit != SIZE_MAX && m.reserved + bytes > m.limit) return -1;
    m.p[m.n] = (struct piece){.at = m.end, .size = bytes, .segment = m.segments++, .small = small};
    m.end += bytes + MIB;
    m.reserved += bytes;
    m.taken++;
    return m.n++;
}

/* Releases pieces of at least max_split: the best fit, else the largest. */
static bool model_make_room(bool small, size_t size) {
    size_t key = size > m.max_split ? size : m.max_split, got = 0;
    if (m.max_split == SIZE_MAX) return false;
    int one = model_search(small, key);
    if (one >= 0) {
        release(one);
        return true;
    }
    while (got < key) {
        int last = -1;
        for (int i = 0; i < m.n; i++)
            if (!m.p[i].live && m.p[i].small == small && m.p[i].size >= m.max_split &&
                (last < 0 || m.p[i].size >= m.p[last].size))
                last = i;
        if (last < 0) return false;
        got += m.p[last].size;
        release(last);
    }
    return true;
}

static void model_empty(void) {
    for (int i = 0; i < m.n;)
        if (!m.p[i].live && unsplit(i))
            release(i);
        else
            i++;
}

/* The address of the piece; 0: out of memory. */
static uintptr_t model_alloc(size_t bytes) {
    size_t size = model_round(bytes);
    bool small = size <= MIB;
    int i = model_cached(small, size);
    if (i < 0) {
        model_collect();
        i = model_segment(small, size);
        if (i < 0 && model_make_room(small, size)) i = model_segment(small, size);
        if (i < 0) {
            model_empty();
            i = model_segment(small, size);
        }
    }
    if (i < 0) {
        m.ooms++;
        return 0;
    }
    size_t rest = m.p[i].size - size;
    if (small ? rest >= 512 : size < m.max_split && rest > MIB) {
        memmove(&m.p[i + 1], &m.p[i], (size_t)(m.n - i) * sizeof *m.p);
        m.n++;
        m.p[i + 1].at += size;
        m.p[i + 1].size = rest;
        m.p[i + 1].since = m.searches[small];
        m.p[i].size = size;
    }
    m.p[i].live = true;
    m.allocated += m.p[i].size;
    return m.p[i].at;
}

static void model_free(uintptr_t at) {
    int i = 0;
    while (m.p[i].at != at) i++;
    m.allocated -= m.p[i].size;
    m.p[i].live = false;
    for (int k = 1; k >= 0; k--) { /* the next neighbour, then the previous */
        int j = i + k;
        if (j < 1 || j >= m.n || m.p[j].segment != m.p[j - 1].segment || m.p[j].live || m.p[j - 1].live) continue;
        m.p[j - 1].size += m.p[j].size;
        drop(j);
        i = j - 1;
    }
    m.p[i].since = m.searches[m.p[i].small];
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

static uintptr_t next_address;

static fr_status take(size_t bytes, void **out) {
    *out = (void *)next_address;
    next_address += bytes + MIB;
    return FR_OK;
}

static void give(void *segment, size_t bytes) {
    (void)segment;
    (void)bytes;
}

static const struct {
    const char *text;
    size_t limit, max_split;
    double threshold;
    size_t divisions[16];
} cases[] = {
    {"", SIZE_MAX, SIZE_MAX, 0, {0}},
    {"max_split_size_mb:20", 900 * MIB, 20 * MIB, 0, {0}},
    {"max_split_size_mb:21", 600 * MIB, 21 * MIB, 0, {0}},
    {"max_split_size_mb:64", 900 * MIB, 64 * MIB, 0, {0}},
    {"max_split_size_mb:64", SIZE_MAX, 64 * MIB, 0, {0}},
    {"roundup_power2_divisions:1", 900 * MIB, SIZE_MAX, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"roundup_power2_divisions:8", 900 * MIB, SIZE_MAX, 0, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
    {"roundup_power2_divisions:[4:2, 8:1, 16:4, >:16]",
     900 * MIB,
     SIZE_MAX,
     0,
     {2, 2, 2, 1, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}},
    {"roundup_power2_divisions:[2:4,16:8]", 900 * MIB, SIZE_MAX, 0, {4, 4, 0, 0, 8}},
    {"roundup_power2_divisions:[>:2]", 900 * MIB, SIZE_MAX, 0, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
    {"garbage_collection_threshold:0.5", 900 * MIB, SIZE_MAX, 0.5, {0}},
    {"garbage_collection_threshold:0.9", 900 * MIB, SIZE_MAX, 0.9, {0}},
    {"garbage_collection_threshold:0.5", SIZE_MAX, SIZE_MAX, 0.5, {0}},
    {"max_split_size_mb:32, roundup_power2_divisions:4, garbage_collection_threshold:0.6",
     700 * MIB,
     32 * MIB,
     0.6,
     {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
};

/* Mostly small, some around every threshold, some large. */
static size_t draw_size(uint32_t kind, uint32_t r) {
    static const size_t edges[] = {1,        511,      512,          513,          4096,           4097,
                                   MIB,      MIB + 1,  2 * MIB,      10 * MIB - 1, 10 * MIB,       10 * MIB + 1,
                                   20 * MIB, 21 * MIB, 32 * MIB - 1, 32 * MIB,     64 * MIB - 512, 64 * MIB};
    if (kind < 3) return 1 + r % (8 * KIB);
    if (kind < 5) return 1 + r % (2 * MIB);
    if (kind < 6) return edges[r % (sizeof edges / sizeof *edges)];
    if (kind < 9) return 1 + r % (24 * MIB);
    return 1 + r % (90 * MIB);
}

/* Expects the bytes allocated, reserved, and cached next to a live neighbour, per pool. */
static void expect_flows(size_t c, int operation) {
    static const fr_memory_flow_kind kinds[] = {FR_FLOW_ALLOCATED, FR_FLOW_RESERVED, FR_FLOW_INACTIVE_SPLIT,
                                                FR_FLOW_INACTIVE_SPLITS};
    size_t want[4][2] = {{0}};
    fr_memory_flows t;
    cr_assert_eq(fri_memory_flows_get(FR_META, &t), FR_OK);
    for (int i = 0; i < m.n; i++) {
        want[0][m.p[i].small] += m.p[i].live ? m.p[i].size : 0;
        want[1][m.p[i].small] += m.p[i].size;
        want[2][m.p[i].small] += !m.p[i].live && !unsplit(i) ? m.p[i].size : 0;
        want[3][m.p[i].small] += !m.p[i].live && !unsplit(i);
    }
    for (int k = 0; k < 4; k++) {
        const fr_memory_flow *f = t.flow[kinds[k]];
        cr_assert(f[FR_MEMORY_SMALL].now == want[k][1] && f[FR_MEMORY_LARGE].now == want[k][0] &&
                      f[FR_MEMORY_ALL].now == want[k][0] + want[k][1],
                  "'%s', operation %d, flow %d: small %zu, model %zu; large %zu, %zu", cases[c].text, operation, k,
                  f[FR_MEMORY_SMALL].now, want[k][1], f[FR_MEMORY_LARGE].now, want[k][0]);
        cr_assert_eq(f[FR_MEMORY_ALL].total - f[FR_MEMORY_ALL].freed, f[FR_MEMORY_ALL].now);
    }
}

static void expect_equal(const fri_allocator *a, size_t c, int operation) {
    fr_memory_stats t;
    fri_allocator_stats(a, &t);
    cr_assert(t.reserved == m.reserved && t.allocated == m.allocated && t.segment_allocs == m.taken &&
                  t.segment_frees == m.given && t.ooms == m.ooms,
              "'%s', operation %d: reserved %zu, model %zu; allocated %zu, %zu; segments %llu - %llu, %zu - %zu",
              cases[c].text, operation, t.reserved, m.reserved, t.allocated, m.allocated,
              (unsigned long long)t.segment_allocs, (unsigned long long)t.segment_frees, m.taken, m.given);
}

static void run(fri_allocator *a, size_t c) {
    static fri_block *block[MAX_LIVE];
    static uintptr_t at[MAX_LIVE];
    fr_shape shape = FRI_SHAPE(1);
    fr_tag tag = fri_tag_make(FR_MEM_OTHER, FR_F32, &shape);
    int n = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        fri_philox4 r = fri_philox(7, c, (uint64_t)i);
        if (i == FREE_OPERATIONS) {
            fri_allocator_limit(a, cases[c].limit);
            m.limit = cases[c].limit;
        }
        if (r.v[0] % 1000 == 0) {
            fri_allocator_empty_cache(a);
            model_empty();
        } else if (n == 0 || (r.v[0] % 100 < 52 && n < MAX_LIVE)) {
            size_t bytes = draw_size(r.v[1] % 10, r.v[2]);
            fr_status s = fri_block_alloc(a, bytes, &tag, &block[n]);
            at[n] = model_alloc(bytes);
            cr_assert_eq(s == FR_OK, at[n] != 0, "'%s', operation %d: one failed", cases[c].text, i);
            if (s == FR_OK) n++;
        } else {
            int k = (int)(r.v[3] % (uint32_t)n);
            fri_block_free(&block[k]);
            model_free(at[k]);
            block[k] = block[--n];
            at[k] = at[n];
        }
        expect_equal(a, c, i);
        expect_flows(c, i);
    }
    while (n > 0) fri_block_free(&block[--n]);
}

Test(settings, equal_to_the_published_rules, .timeout = 240) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fri_allocator *a = NULL;
        fr_memory_stats t;
        memset(&m, 0, sizeof m);
        m.limit = SIZE_MAX;
        m.max_split = cases[c].max_split;
        m.threshold = cases[c].threshold;
        m.end = next_address = (uintptr_t)1 << 45;
        memcpy(m.divisions, cases[c].divisions, sizeof m.divisions);
        cr_assert_eq(fri_allocator_create(FR_META, (fri_segment_source){take, give}, &a), FR_OK);
        cr_assert_eq(fri_allocator_set(a, cases[c].text), FR_OK, "'%s': %s", cases[c].text, fr_last_error());
        fri_allocator *was = fri_allocator_override(FR_META, a);
        run(a, c);
        (void)fri_allocator_override(FR_META, was);
        fri_allocator_stats(a, &t);
        cr_expect(cases[c].limit == SIZE_MAX || t.ooms > 0, "'%s': the limit was never met", cases[c].text);
        cr_expect_eq(t.requested, 0u);
        fri_allocator_destroy(&a);
    }
}

/* Requested bytes do not depend on settings; allocated bytes do. */
Test(settings, requested_stays) {
    fr_memory_stats t;
    fr_tensor *x = NULL;
    cr_assert_eq(fr_memory_settings_set(FR_META, "roundup_power2_divisions:4"), FR_OK);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){1200 * 1024}, FR_U8, FR_META, &x), FR_OK);
    cr_assert_eq(fr_memory_stats_get(FR_META, &t), FR_OK);
    cr_expect_eq(t.requested, 1200 * KIB);
    cr_expect_eq(t.allocated, 1280 * KIB, "%zu", t.allocated);
    fr_tensor_release(&x);
}

static const struct {
    const char *text, *sentence;
} wrong[] = {
    {"max_split:20", "key: expected max_split_size_mb, roundup_power2_divisions or garbage_collection_threshold, found "
                     "'max_split'"},
    {"max_split_size_mb", "max_split_size_mb: expected ':', found the end"},
    {"max_split_size_mb:", "max_split_size_mb: expected a whole number of MiB, at least 20, found the end"},
    {"max_split_size_mb:19", "max_split_size_mb: expected a whole number of MiB, at least 20, found '19'"},
    {"max_split_size_mb:2x", "max_split_size_mb: expected a whole number of MiB, at least 20, found '2x'"},
    {"max_split_size_mb:99999999999999999999",
     "max_split_size_mb: expected a whole number of MiB, at least 20, found '99999999999999999999'"},
    {"max_split_size_mb:20 roundup_power2_divisions:2",
     "max_split_size_mb: expected ',' and the next key, found 'roundup_power2_divisions'"},
    {"roundup_power2_divisions:3",
     "roundup_power2_divisions: expected a power of two, or a list as [256:1,512:2,>:4], found '3'"},
    {"roundup_power2_divisions:[3:1]", "roundup_power2_divisions: expected a power of two in MiB, or '>', found '3'"},
    {"roundup_power2_divisions:[4:3]",
     "roundup_power2_divisions: expected a number of divisions, a power of two or 0, found '3'"},
    {"roundup_power2_divisions:[4:2", "roundup_power2_divisions: expected ',' or ']', found the end"},
    {"garbage_collection_threshold:1", "garbage_collection_threshold: expected a number between 0 and 1, found '1'"},
    {"garbage_collection_threshold:nan",
     "garbage_collection_threshold: expected a number between 0 and 1, found 'nan'"},
};

Test(settings, a_wrong_one_is_named) {
    char sentence[320];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(fr_memory_settings_set(FR_META, wrong[i].text), FR_EINVAL, "'%s' was taken", wrong[i].text);
        snprintf(sentence, sizeof sentence, "allocator settings: %s", wrong[i].sentence);
        cr_expect_str_eq(fr_last_error(), sentence);
    }
}

/* The variable applies to every pool and to plans; a wrong value stops the first allocation. */
Test(settings, environment) {
    fr_memory_stats t;
    fr_tensor *x = NULL;
    setenv("FRUGAL_ALLOC", "roundup_power2_divisions:1,max_split_size_mb:32", 1);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){33 << 20}, FR_U8, FR_META, &x), FR_OK);
    fr_tensor_release(&x);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){3 << 20}, FR_U8, FR_META, &x), FR_OK);
    cr_assert_eq(fr_memory_stats_get(FR_META, &t), FR_OK);
    cr_expect_eq(t.reserved, 54 * MIB, "%zu reserved: a block of 34 MiB was split", t.reserved);
    fr_tensor_release(&x);
    fr_plan *plan = NULL;
    fr_plan_section_stats planned;
    cr_assert_eq(fr_plan_begin(FR_CPU, &plan), FR_OK);
    cr_assert_eq(fr_plan_section(plan, "all"), FR_OK);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){5 << 20}, FR_U8, FR_META, &x), FR_OK);
    fr_tensor_release(&x);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){33 << 20}, FR_U8, FR_META, &x), FR_OK);
    fr_tensor_release(&x);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){21 << 20}, FR_U8, FR_META, &x), FR_OK);
    fr_tensor_release(&x);
    cr_assert_eq(fr_plan_end(plan), FR_OK);
    cr_assert_eq(fr_plan_section_get(plan, 0, &planned), FR_OK);
    cr_expect_eq(planned.memory.peak_reserved, 76 * MIB, "%zu planned", planned.memory.peak_reserved);
    fr_plan_release(&plan);
}

Test(settings, wrong_environment) {
    fr_tensor *x = NULL;
    setenv("FRUGAL_ALLOC", "max_split_size_mb:1", 1);
    cr_expect_eq(fr_tensor_empty(1, (int64_t[]){1}, FR_U8, FR_META, &x), FR_EINVAL);
    cr_expect_str_eq(fr_last_error(),
                     "FRUGAL_ALLOC: max_split_size_mb: expected a whole number of MiB, at least 20, found '1'");
}
