/* settings.c - see settings.h. PyTorch's rules to the byte (c10/core/AllocatorConfig.cpp and
 * c10/cuda/CUDACachingAllocator.cpp; the set part of a limit is what set_per_process_memory_fraction allows there):
 *  - max_split_size_mb M: a block of at least M is never split. A request below M never gets such a block, a request of
 *    at least M only a block less than 20 MiB larger. Such blocks go back before the whole cache.
 *  - roundup_power2_divisions D: a request above 512 D is rounded up to the next of D equal steps between two powers of
 *    two; a list gives each power of two its own D.
 *  - garbage_collection_threshold T: a miss with more than T of the limit reserved gives back wholly free segments of
 *    the large pool, oldest first, if the age, in searches of the pool, is at least the average. */
#include "memory/settings.h"

#include "base/env.h"
#include "base/number.h"
#include "base/status.h"
#include "memory/segment.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN = 40, MIB_BITS = 20 };

const fri_settings fri_settings_default = {.max_split = SIZE_MAX};

/* ---- the text ---------------------------------------------------------------------------------------------- */

struct reader {
    const char *where, *key, *at;
    char token[TOKEN]; /* what was read last; "" at the end */
};

static void next_token(struct reader *r) {
    size_t n = 0;
    while (*r->at == ' ') r->at++;
    if (*r->at != '\0' && strchr(",:[]", *r->at) != NULL)
        r->token[n++] = *r->at++;
    else
        while (*r->at != '\0' && strchr(",:[] ", *r->at) == NULL && n + 1 < TOKEN) r->token[n++] = *r->at++;
    r->token[n] = '\0';
}

static bool token_is(const struct reader *r, const char *token) {
    return strcmp(r->token, token) == 0;
}

static fr_status fail_expected(const struct reader *r, const char *what) {
    return fr_fail(FR_EINVAL, "%s: %s: expected %s, found %s%s%s", r->where, r->key, what, token_is(r, "") ? "" : "'",
                   token_is(r, "") ? "the end" : r->token, token_is(r, "") ? "" : "'");
}

static bool whole_number(const char *token, size_t *out) {
    char *end = NULL;
    if (token[0] < '0' || token[0] > '9') return false;
    unsigned long long v = strtoull(token, &end, 10);
    *out = (size_t)v;
    return *end == '\0' && v < SIZE_MAX >> MIB_BITS;
}

static bool power_of_two(size_t v) {
    return v > 0 && (v & (v - 1)) == 0;
}

static int log2_of(size_t v) {
    return 63 - __builtin_clzll((unsigned long long)v);
}

/* Reads from the first to the last token of the value. */
static fr_status read_max_split(struct reader *r, fri_settings *s) {
    size_t mib = 0;
    if (!whole_number(r->token, &mib) || mib < FRI_LARGE_SEGMENT >> MIB_BITS)
        return fail_expected(r, "a whole number of MiB, at least 20");
    s->max_split = mib << MIB_BITS;
    return FR_OK;
}

static fr_status read_collect(struct reader *r, fri_settings *s) {
    char *end = NULL;
    double v = fr_strtod(r->token, &end);
    if (end == r->token || *end != '\0' || !(v > 0 && v < 1)) return fail_expected(r, "a number between 0 and 1");
    s->collect = v;
    return FR_OK;
}

static void fill_divisions(fri_settings *s, int from, int to, size_t divisions) {
    for (int i = from; i < to; i++) s->divisions[i] = divisions;
}

/* One "MiB:divisions" of a list; *last: the interval of the one before, -1 for the first. */
static fr_status read_interval(struct reader *r, fri_settings *s, int *last) {
    size_t mib = 0, divisions = 0;
    bool rest = token_is(r, ">");
    if (!rest && (!whole_number(r->token, &mib) || !power_of_two(mib)))
        return fail_expected(r, "a power of two in MiB, or '>'");
    next_token(r);
    if (!token_is(r, ":")) return fail_expected(r, "':'");
    next_token(r);
    if (!whole_number(r->token, &divisions) || (divisions != 0 && !power_of_two(divisions)))
        return fail_expected(r, "a number of divisions, a power of two or 0");
    if (rest) {
        fill_divisions(s, *last < 0 ? 0 : *last, FRI_ROUNDUP_INTERVALS, divisions);
        return FR_OK;
    }
    int i = log2_of(mib) < FRI_ROUNDUP_INTERVALS ? log2_of(mib) : FRI_ROUNDUP_INTERVALS - 1;
    if (*last < 0) fill_divisions(s, 0, i, divisions);
    s->divisions[i] = divisions;
    *last = i;
    return FR_OK;
}

static fr_status read_divisions(struct reader *r, fri_settings *s) {
    size_t divisions = 0;
    int last = -1;
    if (!token_is(r, "[")) {
        if (!whole_number(r->token, &divisions) || !power_of_two(divisions))
            return fail_expected(r, "a power of two, or a list as [256:1,512:2,>:4]");
        fill_divisions(s, 0, FRI_ROUNDUP_INTERVALS, divisions);
        return FR_OK;
    }
    do {
        next_token(r);
        fr_status status = read_interval(r, s, &last);
        if (status < 0) return status;
        next_token(r);
    } while (token_is(r, ","));
    return token_is(r, "]") ? FR_OK : fail_expected(r, "',' or ']'");
}

static const struct {
    const char *key;
    fr_status (*read)(struct reader *r, fri_settings *s);
} keys[] = {{"max_split_size_mb", read_max_split},
            {"roundup_power2_divisions", read_divisions},
            {"garbage_collection_threshold", read_collect}};

static fr_status read_setting(struct reader *r, fri_settings *s) {
    size_t k = 0, n = sizeof keys / sizeof *keys;
    while (k < n && !token_is(r, keys[k].key)) k++;
    if (k == n) {
        r->key = "key";
        return fail_expected(r, "max_split_size_mb, roundup_power2_divisions or garbage_collection_threshold");
    }
    r->key = keys[k].key;
    next_token(r);
    if (!token_is(r, ":")) return fail_expected(r, "':'");
    next_token(r);
    return keys[k].read(r, s);
}

fr_status fri_settings_parse(const char *where, const char *text, fri_settings *out) {
    struct reader r = {.where = where, .at = text};
    fri_settings s = fri_settings_default;
    for (next_token(&r); !token_is(&r, ""); next_token(&r)) {
        fr_status status = read_setting(&r, &s);
        if (status < 0) return status;
        next_token(&r);
        if (token_is(&r, "")) break;
        if (!token_is(&r, ",")) return fail_expected(&r, "',' and the next key");
    }
    *out = s;
    return FR_OK;
}

/* ---- the rules --------------------------------------------------------------------------------------------- */

size_t fri_settings_round(const fri_settings *s, size_t bytes) {
    int interval = bytes < FRI_SMALL_BYTES ? 0 : log2_of(bytes) - MIB_BITS;
    size_t divisions = s->divisions[interval < FRI_ROUNDUP_INTERVALS ? interval : FRI_ROUNDUP_INTERVALS - 1];
    if (divisions <= 1 || bytes / divisions < FRI_ROUND_BYTES) return fri_round_bytes(bytes);
    size_t step = ((size_t)1 << log2_of(bytes)) / divisions;
    return (bytes + step - 1) / step * step;
}

static bool collects_garbage(const fri_allocator *a) {
    return a->settings.collect > 0 && a->stats.limit != SIZE_MAX;
}

fri_block *fri_settings_cached(fri_allocator *a, size_t size) {
    fri_freelist *pool = fri_freelist_of(a, size <= FRI_SMALL_BYTES);
    size_t max_split = a->settings.max_split;
    if (collects_garbage(a)) pool->searches++;
    fri_block *b = fri_freelist_best_fit(pool, size);
    if (b == NULL || (size < max_split && b->size >= max_split)) return NULL;
    if (size >= max_split && b->size >= size + FRI_LARGE_SEGMENT) return NULL;
    fri_freelist_remove(pool, b);
    return b;
}

static bool is_whole_segment(const fri_block *b) {
    return b->prev == NULL && b->next == NULL;
}

static void give_segment(fri_allocator *a, fri_block *b) {
    fri_freelist_remove(&a->large, b);
    fri_segment_give(a, b->segment);
}

/* A pass returns all segments of at least average age; passes go on until enough is reclaimed. */
void fri_settings_collect(fri_allocator *a) {
    fri_freelist *l = &a->large;
    if (!collects_garbage(a)) return;
    size_t allowed = (size_t)(a->settings.collect * (double)a->stats.limit), reclaimed = 0, count = 0;
    uint64_t total = 0;
    if (a->stats.reserved <= allowed) return;
    size_t target = a->stats.reserved - allowed;
    for (size_t i = 0; i < l->count; i++)
        if (is_whole_segment(l->items[i])) {
            total += l->searches - l->items[i]->idle_since;
            count++;
        }
    while (reclaimed < target && count > 0) {
        double average = (double)total / (double)count;
        for (size_t i = 0; i < l->count;) {
            fri_block *b = l->items[i];
            uint64_t age = l->searches - b->idle_since;
            if (!is_whole_segment(b) || (double)age < average) {
                i++;
                continue;
            }
            reclaimed += b->size;
            total -= age;
            count--;
            give_segment(a, b);
        }
    }
}

/* A fitting block has at least max_split bytes: a smaller block would have served the request. */
bool fri_settings_make_room(fri_allocator *a, size_t size) {
    size_t max_split = a->settings.max_split, released = 0;
    if (max_split == SIZE_MAX || size <= FRI_SMALL_BYTES) return false;
    fri_block *b = fri_freelist_best_fit(&a->large, size);
    if (b != NULL) {
        if (is_whole_segment(b)) give_segment(a, b);
        return true;
    }
    for (size_t i = a->large.count; i > 0 && released < size && a->large.items[i - 1]->size >= max_split; i--) {
        b = a->large.items[i - 1];
        if (!is_whole_segment(b)) continue;
        released += b->size;
        give_segment(a, b);
    }
    return released >= size;
}
