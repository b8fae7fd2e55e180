/* track.c - --track: what each phase of the first step adds and frees, in the lines of tracker.h. */
#include "addons/views/files.h"
#include "addons/views/tracker.h"

#include <stdlib.h>
#include <string.h>

typedef struct live_block {
    uint64_t block;
    fr_tag tag;
    size_t bytes;
} live_block;

typedef struct track {
    fr_flag_output output;
    FILE *file; /* stream of output */
    fr_device device;
    live_block *block;
    size_t n, capacity;
    fri_tracker tracker;
    fr_phase phase;
    bool in_step, done, no_memory;
} track;

static live_block *find_block(track *t, uint64_t block) {
    for (size_t i = t->n; i-- > 0;)
        if (t->block[i].block == block) return &t->block[i];
    return NULL;
}

static void memory_event(track *t, const fr_event *e) {
    live_block *b = NULL;
    if (e->kind == FR_EVENT_ALLOC) {
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
    } else if ((b = find_block(t, e->block)) != NULL) {
        fri_tracker_count(&t->tracker, &b->tag, b->bytes, -1);
        if (e->kind == FR_EVENT_FREE) {
            *b = t->block[--t->n];
        } else {
            b->tag.category = e->tag.category;
            fri_tracker_count(&t->tracker, &b->tag, b->bytes, 1);
        }
    }
}

/* A point where the step changes the phase. */
static void phase_event(track *t) {
    char where[64];
    fr_phase now = fr_phase_get();
    if (!t->in_step || now <= t->phase) return; /* steps go forward: returns to an earlier phase are short */
    snprintf(where, sizeof where, "the end of %s", fr_phase_name(t->phase));
    if (t->phase != FR_PHASE_NONE) fri_tracker_point(&t->tracker, where, t->file);
    t->phase = now;
}

static void on_event(void *ctx, const fr_event *e) {
    track *t = ctx;
    bool memory = e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE || e->kind == FR_EVENT_RELABEL;
    if (t->done) return;
    phase_event(t);
    if (e->kind == FR_EVENT_STEP_BEGIN) {
        fri_tracker_point(&t->tracker, "the first step's begin: model and loader", t->file);
        t->in_step = true;
        t->phase = FR_PHASE_NONE;
    } else if (e->kind == FR_EVENT_STEP_END && t->in_step) {
        fri_tracker_point(&t->tracker, "the first step's end", t->file);
        t->done = true;
    } else if (memory && e->device == t->device) {
        memory_event(t, e);
    }
}

static fr_status track_begin(void *state, const fr_run *r) {
    track *t = state;
    t->device = r->opts->device;
    return fr_flag_output_open("track", r->opts->files.track, &t->output);
}

static fr_status track_event(void *state, const fr_run *r, fr_run_event e) {
    track *t = state;
    (void)r;
    t->file = t->output.output.stream;
    if (e != FR_RUN_STEPS_END) return FR_OK;
    if (t->no_memory || t->tracker.no_memory) return fr_fail(FR_ENOMEM, "--track %s: no host memory", t->output.path);
    return fr_flag_output_commit(&t->output);
}

static void track_end(void *state) {
    track *t = state;
    fr_atomic_abandon(&t->output.output);
    free(t->block);
    fri_tracker_free(&t->tracker);
}

const fr_view fri_track_view = {.bytes = sizeof(track),
                                .begin = track_begin,
                                .event = track_event,
                                .end = track_end,
                                .on_memory = on_event};
