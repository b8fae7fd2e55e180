/* track.c - --track: what each phase of the first step adds and frees, in the lines of memory/tracker.h. */
#include "base/status.h"
#include "memory/event.h"
#include "memory/tracker.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct live_block {
    uint64_t block;
    fri_tag tag;
    size_t bytes;
} live_block;

struct fri_track {
    fri_atomic_file output;
    FILE *file; /* its stream */
    fr_device device;
    live_block *block;
    size_t n, capacity;
    fri_tracker tracker;
    fr_phase phase;
    bool in_step, done, listening, no_memory;
};

static live_block *find(fri_track *t, uint64_t block) {
    for (size_t i = t->n; i-- > 0;)
        if (t->block[i].block == block) return &t->block[i];
    return NULL;
}

static void memory_event(fri_track *t, const fri_event *e) {
    live_block *b = NULL;
    if (e->kind == FRI_EVENT_ALLOC) {
        if (t->n == t->capacity) {
            size_t capacity = t->capacity > 0 ? 2 * t->capacity : 256;
            live_block *block = realloc(t->block, capacity * sizeof *block);
            if (block == NULL) {
                t->no_memory = true;
                return;
            }
            t->block = block;
            t->capacity = capacity;
        }
        size_t bytes = fri_tracker_bytes(&e->tag, e->requested);
        t->block[t->n++] = (live_block){e->block, e->tag, bytes};
        fri_tracker_count(&t->tracker, &e->tag, bytes, 1);
    } else if ((b = find(t, e->block)) != NULL) {
        fri_tracker_count(&t->tracker, &b->tag, b->bytes, -1);
        if (e->kind == FRI_EVENT_FREE) {
            *b = t->block[--t->n];
        } else {
            b->tag.category = e->tag.category;
            fri_tracker_count(&t->tracker, &b->tag, b->bytes, 1);
        }
    }
}

/* A point where the step goes on to another phase. */
static void phase_event(fri_track *t) {
    char where[64];
    fr_phase now = fri_scope_phase();
    if (!t->in_step || now <= t->phase) return; /* a step goes forward: what falls back to an earlier phase is short */
    snprintf(where, sizeof where, "the end of %s", fr_phase_name(t->phase));
    if (t->phase != FR_PHASE_NONE) fri_tracker_point(&t->tracker, where, t->file);
    t->phase = now;
}

static void on_event(void *ctx, const fri_event *e) {
    fri_track *t = ctx;
    bool memory = e->kind == FRI_EVENT_ALLOC || e->kind == FRI_EVENT_FREE || e->kind == FRI_EVENT_RELABEL;
    if (t->done) return;
    phase_event(t);
    if (e->kind == FRI_EVENT_STEP_BEGIN) {
        fri_tracker_point(&t->tracker, "the first step's begin: model and loader", t->file);
        t->in_step = true;
        t->phase = FR_PHASE_NONE;
    } else if (e->kind == FRI_EVENT_STEP_END && t->in_step) {
        fri_tracker_point(&t->tracker, "the first step's end", t->file);
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
    fr_status s = fri_atomic_open(path, 0666, &t->output);
    if (s == FR_OK) s = fri_atomic_stream(&t->output);
    if (s < 0) return fri_fail_prefix(s, "--track %s: ", path);
    t->file = t->output.stream;
    s = fri_event_subscribe(on_event, t);
    t->listening = s == FR_OK;
    return s;
}

fr_status fri_track_end(fri_run *r) {
    fri_track *t = r->track;
    fr_status s = FR_OK;
    r->track = NULL;
    if (t == NULL) return FR_OK;
    if (t->listening) fri_event_unsubscribe(on_event, t);
    if (t->no_memory || t->tracker.no_memory) s = fri_fail(FR_ENOMEM, "--track %s: no host memory", r->opts.track);
    if (t->file != NULL && s == FR_OK) {
        s = fri_atomic_commit(&t->output);
        if (s < 0) s = fri_fail_prefix(s, "--track %s: ", r->opts.track);
    }
    fri_atomic_abandon(&t->output);
    free(t->block);
    fri_tracker_free(&t->tracker);
    free(t);
    return s;
}
