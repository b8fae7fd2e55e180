/* track.c - --track: what each phase of the first step adds and frees, one line per kind of tensor.
 *
 * The lines are those of the memory trackers that PyTorch's guides use ("+ | 7 * Size:(512, 512, 3, 3) | Memory: 66.060
 * M"): shapes in PyTorch's order, decimal megabytes cut off after six characters; but a kind whose count changed has
 * one line with the difference, largest first, with category, element type and bytes. */
#include "base/status.h"
#include "memory/event.h"
#include "train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct live_block {
    uint64_t block;
    fri_tag tag;
    size_t bytes;
} live_block;

/* Blocks of one kind: how many there are, and were at the last point. */
typedef struct kind {
    fri_tag tag;
    size_t bytes; /* of all of them */
    size_t each;
    int64_t count, before;
} kind;

struct fri_track {
    FILE *file;
    fr_device device;
    live_block *block;
    size_t n, capacity;
    kind *kinds;
    size_t n_kinds, kinds_capacity;
    fr_phase phase;
    bool in_step, done, listening, no_memory;
};

static bool same_kind(const kind *k, const fri_tag *t, size_t bytes) {
    return k->each == bytes && k->tag.category == t->category && k->tag.dtype == t->dtype &&
           k->tag.shape.rank == t->shape.rank &&
           memcmp(k->tag.shape.dim, t->shape.dim, (size_t)t->shape.rank * sizeof t->shape.dim[0]) == 0;
}

static bool reserve(void **array, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity) return true;
    size_t larger = *capacity > 0 ? 2 * *capacity : 256;
    void *p = realloc(*array, larger * size);
    if (p == NULL) return false;
    *array = p;
    *capacity = larger;
    return true;
}

static void count(fri_track *t, const fri_tag *tag, size_t bytes, int by) {
    size_t i = 0;
    while (i < t->n_kinds && !same_kind(&t->kinds[i], tag, bytes)) i++;
    if (i == t->n_kinds) {
        if (!reserve((void **)&t->kinds, t->n_kinds, &t->kinds_capacity, sizeof *t->kinds)) {
            t->no_memory = true;
            return;
        }
        t->kinds[t->n_kinds++] = (kind){.tag = *tag, .each = bytes};
    }
    t->kinds[i].count += by;
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

/* "(512, 512, 3, 3)": NHWC and KRSC are written as NCHW and KCRS. */
static void shape_text(const fri_shape *s, char *text, size_t bytes) {
    static const int order[4] = {0, 3, 1, 2};
    size_t at = (size_t)snprintf(text, bytes, "(");
    for (int i = 0; i < s->rank && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%" PRId64, i > 0 ? ", " : "",
                               s->dim[s->rank == 4 ? order[i] : i]);
    if (at < bytes) snprintf(text + at, bytes - at, s->rank == 1 ? ",)" : ")");
}

static size_t moved(const kind *k) {
    int64_t change = k->count - k->before;
    return (size_t)(change < 0 ? -change : change) * k->each;
}

static int larger_first(const void *a, const void *b) {
    size_t x = moved(a), y = moved(b);
    return (x < y) - (x > y);
}

static void point(fri_track *t, const char *where) {
    size_t total = 0;
    for (size_t i = 0; i < t->n; i++) total += t->block[i].bytes;
    fprintf(t->file, "At %-50s Total Used Memory:%-7.1fMb (%zu bytes)\n", where, (double)total / 1e6, total);
    qsort(t->kinds, t->n_kinds, sizeof *t->kinds, larger_first);
    for (size_t i = 0; i < t->n_kinds && moved(&t->kinds[i]) > 0; i++) {
        kind *k = &t->kinds[i];
        int64_t change = k->count - k->before;
        char shape[128], size[32];
        shape_text(&k->tag.shape, shape, sizeof shape);
        snprintf(size, sizeof size, "%f", (double)moved(k) / 1e6);
        fprintf(t->file, "%c | %" PRId64 " * Size:%-20s | Memory: %.6s M | %s %s, %zu bytes\n", change > 0 ? '+' : '-',
                change > 0 ? change : -change, shape, size, fr_category_name(k->tag.category),
                fr_dtype_name(k->tag.dtype), moved(k));
        k->before = k->count;
    }
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static live_block *find(fri_track *t, uint64_t block) {
    for (size_t i = t->n; i-- > 0;)
        if (t->block[i].block == block) return &t->block[i];
    return NULL;
}

static void memory_event(fri_track *t, const fri_event *e) {
    live_block *b = NULL;
    if (e->kind == FRI_EVENT_ALLOC) {
        if (!reserve((void **)&t->block, t->n, &t->capacity, sizeof *t->block)) {
            t->no_memory = true;
            return;
        }
        size_t exact = (size_t)fri_shape_numel(&e->tag.shape) * fr_dtype_size(e->tag.dtype);
        /* Requests are rounded up to 512; a code (bits of a mask) has another size than its tensor's shape. */
        size_t bytes = exact <= e->requested && e->requested - exact < 512 ? exact : e->requested;
        t->block[t->n++] = (live_block){e->block, e->tag, bytes};
        count(t, &e->tag, bytes, 1);
    } else if ((b = find(t, e->block)) != NULL) {
        count(t, &b->tag, b->bytes, -1);
        if (e->kind == FRI_EVENT_FREE) {
            *b = t->block[--t->n];
        } else {
            b->tag.category = e->tag.category;
            count(t, &b->tag, b->bytes, 1);
        }
    }
}

/* A point where the step goes on to another phase. */
static void phase_event(fri_track *t) {
    char where[64];
    fr_phase now = fri_scope_phase();
    if (!t->in_step || now <= t->phase) return; /* a step goes forward: what falls back to an earlier phase is short */
    snprintf(where, sizeof where, "the end of %s", fr_phase_name(t->phase));
    if (t->phase != FR_PHASE_NONE) point(t, where);
    t->phase = now;
}

static void on_event(void *ctx, const fri_event *e) {
    fri_track *t = ctx;
    bool memory = e->kind == FRI_EVENT_ALLOC || e->kind == FRI_EVENT_FREE || e->kind == FRI_EVENT_RELABEL;
    if (t->done) return;
    phase_event(t);
    if (e->kind == FRI_EVENT_STEP_BEGIN) {
        point(t, "the first step's begin: model and loader");
        t->in_step = true;
        t->phase = FR_PHASE_NONE;
    } else if (e->kind == FRI_EVENT_STEP_END && t->in_step) {
        point(t, "the first step's end");
        t->done = true;
    } else if (memory && e->device == t->device) {
        memory_event(t, e);
    }
}

fr_status fri_track_begin(fri_run *r) {
    const char *path = r->opts.track;
    if (path == NULL) return FR_OK;
    fri_track *t = calloc(1, sizeof *t);
    if (t == NULL) return fri_fail(FR_ENOMEM, "--track %s: no host memory", path);
    r->track = t;
    t->device = r->opts.device;
    t->file = fopen(path, "w");
    if (t->file == NULL) return fri_fail(FR_EIO, "--track %s: cannot be written: %s", path, strerror(errno));
    fr_status s = fri_event_subscribe(on_event, t);
    t->listening = s == FR_OK;
    return s;
}

fr_status fri_track_end(fri_run *r) {
    fri_track *t = r->track;
    fr_status s = FR_OK;
    r->track = NULL;
    if (t == NULL) return FR_OK;
    if (t->listening) fri_event_unsubscribe(on_event, t);
    if (t->no_memory) s = fri_fail(FR_ENOMEM, "--track %s: no host memory", r->opts.track);
    if (t->file != NULL) {
        errno = 0;
        bool fine = ferror(t->file) == 0;
        fine = fclose(t->file) == 0 && fine;
        if (!fine) s = fri_fail(FR_EIO, "--track %s: cannot be written: %s", r->opts.track, strerror(errno));
    }
    free(t->block);
    free(t->kinds);
    free(t);
    return s;
}
