/* report.c - the summary table and the out-of-memory report. */
#include "memory/report.h"

#include "backend/backend.h"
#include "base/container.h"
#include "base/env.h"
#include "base/number.h"
#include "base/process.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 8, REPORT_BYTES = 3900 };

const char *fri_report_shape(const fr_shape *s, char buf[FRI_SHAPE_TEXT]) {
    fr_shape t = *s;
    if (t.rank == 4) {
        t.dim[1] = s->dim[3];
        t.dim[2] = s->dim[1];
        t.dim[3] = s->dim[2];
    }
    return fri_shape_text(&t, buf);
}

const char *fr_bytes_text(size_t bytes, char buf[FR_BYTES_TEXT]) {
    if (buf == NULL) return NULL;
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes < 1024) {
        snprintf(buf, FR_BYTES_TEXT, "%zu B", bytes);
        return buf;
    }
    double v = (double)bytes / 1024;
    size_t u = 0;
    while (v >= 1024 && u + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        u++;
    }
    fr_snprintf(buf, FR_BYTES_TEXT, "%.2f %s", v, units[u]);
    return buf;
}

/* Live blocks with equal op, module, type and shape share a line. */
struct block_kind {
    fr_tag tag;
    size_t bytes, count;
};

struct block_kinds {
    struct block_kind *items;
    size_t count;
};

static void group_add(void *ctx, const fri_block *b) {
    struct block_kinds *g = ctx;
    for (size_t i = 0; i < g->count; i++) {
        struct block_kind *it = &g->items[i];
        if (it->tag.op == b->tag.op && it->tag.module == b->tag.module && it->tag.dtype == b->tag.dtype &&
            it->tag.category == b->tag.category && fri_shape_equal(&it->tag.shape, &b->tag.shape)) {
            it->bytes += b->size;
            it->count++;
            return;
        }
    }
    if (FRI_ROOM(g->items, g->count, "report") < 0) return; /* a shorter report is better than none */
    g->items[g->count++] = (struct block_kind){b->tag, b->size, 1};
}

static int by_bytes_descending(const void *a, const void *b) {
    const struct block_kind *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static const char *or_dash(const char *s) {
    return s != NULL && s[0] != '\0' ? s : "-";
}

static void use_line(char buf[FRI_MEMORY_USE_TEXT], const char *name, size_t bytes, const char *rest) {
    char text[FR_BYTES_TEXT];
    size_t at = strlen(buf);
    snprintf(buf + at, FRI_MEMORY_USE_TEXT - at, "  %-10s %12s%s%s\n", name,
             bytes > 0 ? fr_bytes_text(bytes, text) : "-", rest[0] != '\0' ? "  " : "", rest);
}

void fr_memory_use_get(fr_device d, fr_memory_use *out) {
    if (out == NULL) return;
    const fri_backend *b = fri_device_built(d) ? fri_backend_get(d) : NULL;
    *out = (fr_memory_use){.source = ""};
    if (b != NULL && b->memory_use != NULL) b->memory_use(out);
}

const char *fri_memory_use_text(fr_device d, const fr_memory_stats *now, char buf[FRI_MEMORY_USE_TEXT]) {
    fr_memory_use use;
    char total[FR_BYTES_TEXT], device[192];
    if (now == NULL || buf == NULL) return NULL;
    buf[0] = '\0';
    fr_memory_use_get(d, &use);
    if (use.device == 0) return buf;
    snprintf(device, sizeof device, "of %s (%s)", fr_bytes_text(use.total, total), use.source);
    use_line(buf, "requested", now->requested, "");
    use_line(buf, "allocated", now->allocated, "");
    use_line(buf, "reserved", now->reserved, "");
    use_line(buf, "process", use.process, "");
    use_line(buf, "context", use.process > now->reserved ? use.process - now->reserved : 0,
             "process minus reserved: CUDA's context and libraries");
    use_line(buf, "device", use.device, device);
    return buf;
}

fr_status fri_report_out_of_memory(const fri_allocator *a, size_t requested, const fr_tag *tag) {
    char use[FRI_MEMORY_USE_TEXT], text[REPORT_BYTES], b1[FR_BYTES_TEXT], b2[FR_BYTES_TEXT], b3[FR_BYTES_TEXT],
        shape[FRI_SHAPE_TEXT];
    size_t at = 0;
    fr_memory_stats t;
    fri_allocator_stats(a, &t);
#define LINE(...)                                                       \
    do {                                                                \
        if (at < sizeof text) {                                         \
            int n = snprintf(text + at, sizeof text - at, __VA_ARGS__); \
            if (n > 0) at += (size_t)n;                                 \
        }                                                               \
    } while (0)
    LINE("out of memory on %s: op %s in module %s tried to allocate %s (%zu bytes, %s %s %s)",
         fr_device_name(fri_allocator_device(a)), or_dash(tag->op), or_dash(tag->module), fr_bytes_text(requested, b1),
         requested, fr_category_name(tag->category), fr_dtype_name(tag->dtype), fri_report_shape(&tag->shape, shape));
    if (t.limit != SIZE_MAX) LINE("; the limit is %s (%zu bytes)", fr_bytes_text(t.limit, b1), t.limit);
    const size_t container = fri_container_get()->memory;
    if (container > 0 && fri_allocator_device(a) == FR_CPU)
        LINE("; the container's limit is %s (%zu bytes)", fr_bytes_text(container, b1), container);
    LINE(". Live: %s allocated, %s requested; reserved: %s, of which %s is cached and free (largest piece %s).\n",
         fr_bytes_text(t.allocated, b1), fr_bytes_text(t.requested, b2), fr_bytes_text(t.reserved, b3),
         fr_bytes_text(t.reserved - t.allocated, (char[FR_BYTES_TEXT]){0}),
         fr_bytes_text(t.largest_free, (char[FR_BYTES_TEXT]){0}));
    if (fri_memory_use_text(fri_allocator_device(a), &t, use)[0] != '\0') LINE("%s", use);
    LINE("  by category:");
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        if (t.allocated_by[c]) LINE(" %s %s;", fr_category_name((fr_category)c), fr_bytes_text(t.allocated_by[c], b1));
    LINE("\n  largest live tensors:\n");
    struct block_kinds g = {0};
    fri_allocator_each(a, group_add, &g);
    if (g.count > 0) qsort(g.items, g.count, sizeof *g.items, by_bytes_descending);
    for (size_t i = 0; i < g.count && i < LARGEST; i++) {
        const fr_tag *k = &g.items[i].tag;
        LINE("    %10s  %3zu x %s %s  %s, %s, %s\n", fr_bytes_text(g.items[i].bytes, b1), g.items[i].count,
             fr_dtype_name(k->dtype), fri_report_shape(&k->shape, shape), fr_category_name(k->category), or_dash(k->op),
             or_dash(k->module));
    }
    free(g.items);
#undef LINE
    return fri_fail_report(FR_ENOMEM, text);
}

/* ---- public: an allocator of a device ------------------------------------------------------------------------- */

fr_status fr_memory_stats_get(fr_device d, fr_memory_stats *out) {
    FRI_NOT_NULL(out);
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    fri_allocator_stats(a, out);
    return FR_OK;
}

fr_status fr_memory_reset_peak(fr_device d) {
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    fri_allocator_reset_peak(a);
    return FR_OK;
}

bool fri_memory_unpooled(void) {
    return fri_env_get()->no_pool;
}

fr_status fr_memory_empty_cache(fr_device d) {
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    fri_allocator_empty_cache(a);
    return FR_OK;
}

fr_status fr_memory_limit_set(fr_device d, size_t bytes) {
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    fri_allocator_limit(a, bytes);
    return FR_OK;
}

fr_status fr_memory_summary(fr_device d, FILE *out) {
    FRI_NOT_NULL(out);
    char use[FRI_MEMORY_USE_TEXT];
    fr_memory_stats t;
    FRI_TRY(fr_memory_stats_get(d, &t));
    fprintf(out, "memory on %s, bytes        %15s %15s %15s\n", fr_device_name(d), "now", "at peak", "requested now");
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        fprintf(out, "  %-22s %15zu %15zu %15zu\n", fr_category_name((fr_category)c), t.allocated_by[c],
                t.at_peak_allocated[c], t.requested_by[c]);
    fprintf(out, "  %-22s %15zu %15zu %15zu\n", "allocated", t.allocated, t.peak_allocated, t.requested);
    fprintf(out, "  %-22s %15zu %15zu\n", "reserved", t.reserved, t.peak_reserved);
    fprintf(out, "  peak in op %s, module %s, phase %s; requested peak %zu\n", or_dash(t.peak_op),
            or_dash(t.peak_module), fr_phase_name(t.peak_phase), t.peak_requested);
    fputs(fri_memory_use_text(d, &t, use), out);
    return ferror(out) ? fr_fail(FR_EIO, "memory summary: the stream reports a write error") : FR_OK;
}
