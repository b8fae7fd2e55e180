/* tracker.c - see tracker.h, and FR_TRACK in frugal/views.h. */
#include "addons/views/tracker.h"

#include <frugal/tools.h>
#include <frugal/views.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_BYTES = 512, SHAPE_TEXT = 160 }; /* requested bytes are multiples of 512 */

static int64_t shape_elements(const fr_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

size_t fri_tracker_bytes(const fr_tag *tag, size_t requested) {
    size_t exact = (size_t)shape_elements(&tag->shape) * fr_dtype_size(tag->dtype);
    return exact <= requested && requested - exact < ROUND_BYTES ? exact : requested;
}

static bool same_kind(const fri_tracker_kind *k, const fr_tag *t, size_t bytes) {
    return k->each == bytes && k->tag.category == t->category && k->tag.dtype == t->dtype &&
           k->tag.shape.rank == t->shape.rank &&
           memcmp(k->tag.shape.dim, t->shape.dim, (size_t)t->shape.rank * sizeof *t->shape.dim) == 0;
}

void fri_tracker_count(fri_tracker *t, const fr_tag *tag, size_t bytes, int by) {
    size_t i = 0;
    while (i < t->n && !same_kind(&t->kinds[i], tag, bytes)) i++;
    if (i == t->n) {
        if (FRI_ROOM(t->kinds, t->n, "tracker") < 0) {
            t->no_memory = true;
            return;
        }
        t->kinds[t->n++] = (fri_tracker_kind){.tag = *tag, .each = bytes};
    }
    t->kinds[i].count += by;
}

void fri_tracker_free(fri_tracker *t) {
    free(t->kinds);
    *t = (fri_tracker){0};
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

/* "(512, 512, 3, 3)", "(64,)": NHWC and KRSC are written as NCHW and KCRS. */
static const char *shape_text(const fr_shape *s, char text[SHAPE_TEXT]) {
    static const int order[4] = {0, 3, 1, 2};
    size_t at = (size_t)snprintf(text, SHAPE_TEXT, "(");
    for (int i = 0; i < s->rank && at < SHAPE_TEXT; i++)
        at += (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%" PRId64, i > 0 ? ", " : "",
                               s->dim[s->rank == 4 ? order[i] : i]);
    if (at < SHAPE_TEXT) snprintf(text + at, SHAPE_TEXT - at, s->rank == 1 ? ",)" : ")");
    return text;
}

const char *fri_tracker_megabytes(size_t bytes, char text[FRI_MEGABYTES_TEXT]) {
    char all[40];
    fr_snprintf(all, sizeof all, "%f", (double)bytes / 1e6);
    char *end = all + strlen(all) - 1;
    while (*end == '0' && end[-1] != '.') *end-- = '\0';
    snprintf(text, FRI_MEGABYTES_TEXT, "%.6s", all);
    return text;
}

static size_t moved(const fri_tracker_kind *k) {
    int64_t change = k->count - k->before;
    return (size_t)(change < 0 ? -change : change) * k->each;
}

/* Breaks ties in a fixed order: new tensors before freed. */
static int larger_first(const void *a, const void *b) {
    const fri_tracker_kind *k = a, *l = b;
    size_t x = moved(k), y = moved(l);
    if (x != y) return x < y ? 1 : -1;
    return (l->count > l->before) - (k->count > k->before);
}

void fri_tracker_point(fri_tracker *t, const char *where, FILE *out) {
    size_t total = 0;
    for (size_t i = 0; i < t->n; i++) total += (size_t)t->kinds[i].count * t->kinds[i].each;
    fr_fprintf(out, "At %-50s Total Used Memory:%-7.1fMb (%zu bytes)\n", where, (double)total / 1e6, total);
    if (t->n > 0) qsort(t->kinds, t->n, sizeof *t->kinds, larger_first);
    for (size_t i = 0; i < t->n && moved(&t->kinds[i]) > 0; i++) {
        fri_tracker_kind *k = &t->kinds[i];
        int64_t change = k->count - k->before;
        char shape[SHAPE_TEXT], size[FRI_MEGABYTES_TEXT];
        fprintf(out, "%c | %" PRId64 " * Size:%-20s | Memory: %s M | %s %s, %zu bytes\n", change > 0 ? '+' : '-',
                change > 0 ? change : -change, shape_text(&k->tag.shape, shape), fri_tracker_megabytes(moved(k), size),
                fr_category_name(k->tag.category), fr_dtype_name(k->tag.dtype), moved(k));
        k->before = k->count;
    }
}

/* ---- FR_TRACK ---------------------------------------------------------------------------------------------------- */

/* State of the thread's last FR_TRACK on each device. */
static _Thread_local fri_tracker last[FR_DEVICE_COUNT];

static void count_block(void *ctx, const fr_event *b) {
    const fr_device *d = ctx;
    if (b->device == *d) fri_tracker_count(&last[*d], &b->tag, fri_tracker_bytes(&b->tag, b->requested), 1);
}

fr_status fr_memory_track(fr_device d, const char *file, const char *function, int line, FILE *out) {
    FRI_NOT_NULL(file, function, out);
    if (!fr_device_available(d)) return fr_fail(FR_EDEVICE, "tracker: %s", fr_device_reason(d));
    char where[160];
    const char *base = strrchr(file, '/');
    snprintf(where, sizeof where, "%s %s: line %d", base != NULL ? base + 1 : file, function, line);
    fri_tracker *t = &last[d];
    for (size_t i = 0; i < t->n; i++) t->kinds[i].count = 0;
    fr_event_blocks(count_block, &d);
    bool failed = t->no_memory;
    t->no_memory = false;
    if (failed) return fr_fail(FR_ENOMEM, "tracker: out of host memory");
    fri_tracker_point(t, where, out);
    return ferror(out) ? fr_fail(FR_EIO, "tracker: the stream reports a write error") : FR_OK;
}
