/* track_lines.c - --track-lines: allocations, frees and live bytes of each source line, from the model to the last
 * step. */
#include "addons/views/files.h"

typedef struct track_lines {
    fr_flag_output output;
    bool tracks;
} track_lines;

static fr_status begin(void *state, const fr_run *r) {
    track_lines *t = state;
    return fr_flag_output_open("track-lines", r->opts->files.track_lines, &t->output);
}

static fr_status write(track_lines *t) {
    t->tracks = false;
    fr_status s = fr_track_lines_end();
    return s < 0 ? fr_fail_prefix(s, "--track-lines %s: ", t->output.path) : fr_flag_output_commit(&t->output);
}

static fr_status event(void *state, const fr_run *r, fr_run_event e) {
    track_lines *t = state;
    (void)r;
    if (e == FR_RUN_STEPS_END && t->tracks) return write(t);
    if (e != FR_RUN_SETUP) return FR_OK;
    fr_status s = fr_track_lines_begin(t->output.output.stream);
    t->tracks = s == FR_OK;
    return s;
}

/* A failed run keeps the numbers. */
static void end(void *state) {
    track_lines *t = state;
    if (t->tracks) (void)write(t);
    fr_atomic_abandon(&t->output.output);
}

const fr_view fri_track_lines_view = {.bytes = sizeof(track_lines), .begin = begin, .event = event, .end = end};
