/* trace.c - --trace: the first steps as Chrome trace events, for Perfetto and chrome://tracing.
 *
 * Ops are slices ("B", "E") in the order of the event log, bytes per category are counters ("C"), steps are slices
 * around ops. Times are microseconds since the first event. */
#include "addons/views/files.h"

#include <time.h>

enum { STEPS = 3 };

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct trace {
    fr_flag_output output;
    FILE *file; /* the stream */
    fr_device device;
    double began;
    int steps;
    bool comma;
    size_t live[FR_CATEGORY_COUNT];
} trace;

static void begin_event(trace *t, const char *kind) {
    double now = seconds_now();
    if (!t->comma) t->began = now;
    const long long ns = (long long)(1e9 * (now - t->began)); /* "%.3f" would follow the program's locale */
    fprintf(t->file, "%s\n{\"ph\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%lld.%03lld", t->comma ? "," : "", kind, ns / 1000,
            ns % 1000);
    t->comma = true;
}

/* A JSON string, for arbitrary names of ops and modules. */
static void put_text(trace *t, const char *key, const char *value) {
    fprintf(t->file, "\"%s\":\"", key);
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++)
        if (*c == '"' || *c == '\\')
            fprintf(t->file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(t->file, "\\u%04x", *c);
        else
            fputc(*c, t->file);
    fputc('"', t->file);
}

static void put_slice(trace *t, const char *name, const char *category, const char *module) {
    begin_event(t, "B");
    fputc(',', t->file);
    put_text(t, "name", name);
    fputc(',', t->file);
    put_text(t, "cat", category);
    fputs(",\"args\":{", t->file);
    put_text(t, "module", module);
    fputs("}}", t->file);
}

static void slice_end(trace *t) {
    begin_event(t, "E");
    fputc('}', t->file);
}

/* A single counter with all categories, stacked by viewers. */
static void put_counter(trace *t) {
    begin_event(t, "C");
    fputs(",\"name\":\"memory\",\"args\":{", t->file);
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        fprintf(t->file, "%s\"%s\":%zu", c > 0 ? "," : "", fr_category_name((fr_category)c), t->live[c]);
    fputs("}}", t->file);
}

static void on_event(void *ctx, const fr_event *e) {
    trace *t = ctx;
    bool changed = fr_event_live(e, t->device, t->live);
    if (t->steps >= STEPS) return;
    if (changed) put_counter(t);
    switch (e->kind) {
    case FR_EVENT_OP_BEGIN: put_slice(t, e->tag.op, fr_phase_name(e->tag.phase), e->tag.module); break;
    case FR_EVENT_STEP_BEGIN: put_slice(t, "step", "step", ""); break;
    case FR_EVENT_OP_END: slice_end(t); break;
    case FR_EVENT_STEP_END:
        slice_end(t);
        t->steps++;
        break;
    default: break;
    }
}

static fr_status trace_begin(void *state, const fr_run *r) {
    trace *t = state;
    t->device = r->opts->device;
    return fr_flag_output_open("trace", r->opts->files.trace, &t->output);
}

static fr_status trace_event(void *state, const fr_run *r, fr_run_event e) {
    trace *t = state;
    (void)r;
    t->file = t->output.output.stream;
    if (e == FR_RUN_SETUP) fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->file);
    if (e != FR_RUN_STEPS_END) return FR_OK;
    fputs("\n]}\n", t->file);
    return fr_flag_output_commit(&t->output);
}

static void trace_end(void *state) {
    trace *t = state;
    fr_atomic_abandon(&t->output.output);
}

const fr_view fri_trace_view = {.bytes = sizeof(trace),
                                .begin = trace_begin,
                                .event = trace_event,
                                .end = trace_end,
                                .on_memory = on_event};
