/* summary.c - what each layer is and what a step keeps of it.
 *
 * Three sources, one step: modules tell their results (shapes, parameters), the event log tells bytes by module path,
 * meta's kernel calls tell operations. A row is a module path; what runs under the empty path after the outermost
 * module has ended is the loss. The picture is taken before the first event of backward. */
#include "plan/summary.h"

#include "base/number.h"
#include "base/status.h"
#include "memory/event.h"
#include "memory/report.h"
#include "meta/calls.h"
#include "meta/meta.h"
#include "net/module.h"
#include "plan/cost.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum summary_stage { BEFORE_STEP, STEP_FORWARD, STEP_BACKWARD, STEP_OVER } summary_stage;

typedef struct row {
    fr_summary_layer layer;
    bool ended, loss;
    int order; /* among ended modules */
} row;

typedef struct live_block {
    uint64_t block;
    size_t bytes;
    fr_category category;
    int row;
} live_block;

struct fr_summary {
    fr_device device;
    summary_stage stage;
    bool listening, failed, root_ended;
    fri_call_listener was_listener;
    fri_module_watch was_watch;
    row *rows;
    int n_rows, ended;
    live_block *blocks;
    size_t n_blocks;
    fri_cost *cost; /* of the plan's target; opened by the first call */
    fri_summary_totals totals;
};

/* The row of an interned path (pointers identify paths). -1 without host memory. */
static int row_of(fr_summary *s, const char *path) {
    static const char outside[] = "";
    if (path == NULL || path[0] == '\0') path = outside;
    bool loss = path[0] == '\0' && s->root_ended;
    for (int i = s->n_rows - 1; i >= 0; i--)
        if (s->rows[i].layer.path == path && s->rows[i].loss == loss) return i;
    if (FRI_ROOM(s->rows, s->n_rows, "summary") < 0) {
        s->failed = true;
        return -1;
    }
    s->rows[s->n_rows] = (row){.layer = {.path = path, .kind = loss ? "loss" : ""}, .loss = loss};
    return s->n_rows++;
}

/* ---- the three sources ---------------------------------------------------------------------------------------- */

static void on_module(void *ctx, const fr_module *m, const fr_tensor *x) {
    fr_summary *s = ctx;
    if (s->stage != STEP_FORWARD || s->root_ended || fri_device_of(x) != s->device) return;
    const char *path = fri_scope_module();
    int i = row_of(s, path);
    if (i < 0) return;
    fr_summary_layer *l = &s->rows[i].layer;
    l->rank = x->shape.rank;
    memcpy(l->shape, x->shape.dim, sizeof l->shape);
    if (l->moved > 0) l->written += (double)fri_nbytes(x);
    if (!s->rows[i].ended) { /* a module that runs twice counts parameters once */
        s->rows[i].ended = true;
        s->rows[i].order = s->ended++;
        l->kind = m->class_->name;
        for (int t = 0; t < m->n_tensors; t++) {
            size_t bytes = fri_nbytes(m->tensors[t].tensor);
            if (m->tensors[t].is_parameter) l->parameters += fri_numel(m->tensors[t].tensor);
            if (m->tensors[t].tensor->requires_grad) s->totals.trained += fri_numel(m->tensors[t].tensor);
            *(m->tensors[t].is_parameter ? &l->parameter_bytes : &l->buffer_bytes) += bytes;
            s->totals.parameters_requested += fri_round_bytes(bytes);
        }
    }
    if (path[0] == '\0') s->root_ended = true;
}

static void summary_call(void *ctx, const fri_kernel_call *c) {
    fr_summary *s = ctx;
    if (s->was_listener.fn != NULL) s->was_listener.fn(s->was_listener.ctx, c);
    if (s->stage != STEP_FORWARD && s->stage != STEP_BACKWARD) return;
    const fri_backend *target = fri_meta_target();
    if (s->cost == NULL && fri_cost_open(target != NULL ? target->device : FR_META, &s->cost) < 0) s->failed = true;
    double seconds = s->cost != NULL ? fri_cost_seconds(s->cost, c) : 0;
    if (s->stage == STEP_BACKWARD) {
        s->totals.flops_backward += c->flops;
        s->totals.seconds_backward += seconds;
    }
    if (s->stage != STEP_FORWARD || fr_phase_get() == FR_PHASE_BACKWARD) return;
    int i = row_of(s, fri_scope_module());
    if (i < 0) return;
    fr_summary_layer *l = &s->rows[i].layer;
    l->flops += c->flops;
    l->moved += c->bytes;
    l->seconds += seconds;
    if (strcmp(c->name, "conv2d_forward") == 0 || strcmp(c->name, "linear_forward") == 0)
        l->multiply_adds += c->flops / 2;
}

static live_block *find_block(fr_summary *s, uint64_t block) {
    for (size_t i = s->n_blocks; i-- > 0;)
        if (s->blocks[i].block == block) return &s->blocks[i];
    return NULL;
}

static void memory_event(fr_summary *s, const fr_event *e) {
    live_block *b = NULL;
    if (e->kind == FR_EVENT_ALLOC) {
        int i = row_of(s, e->tag.module);
        if (i < 0 || FRI_ROOM(s->blocks, s->n_blocks, "summary") < 0) {
            s->failed = true;
            return;
        }
        s->blocks[s->n_blocks++] = (live_block){e->block, e->requested, e->tag.category, i};
    } else if ((b = find_block(s, e->block)) != NULL) {
        if (e->kind == FR_EVENT_RELABEL)
            b->category = e->tag.category;
        else
            *b = s->blocks[--s->n_blocks];
    }
}

static void take_picture(fr_summary *s) {
    for (size_t i = 0; i < s->n_blocks; i++) {
        const live_block *b = &s->blocks[i];
        if (b->category == FR_MEM_INPUT) s->totals.input += b->bytes;
        if (b->category != FR_MEM_ACTIVATION) continue;
        s->rows[b->row].layer.saved += b->bytes;
        s->totals.saved += b->bytes;
    }
}

/* Blocks are known from the start: the batch exists before the step. */
static void summary_event(void *ctx, const fr_event *e) {
    fr_summary *s = ctx;
    bool memory = e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE || e->kind == FR_EVENT_RELABEL;
    bool backward = fr_phase_get() == FR_PHASE_BACKWARD;
    if (memory && e->device != s->device) return;
    if (s->stage == BEFORE_STEP && e->kind == FR_EVENT_STEP_BEGIN) s->stage = STEP_FORWARD;
    if (s->stage == STEP_FORWARD && backward) {
        take_picture(s);
        s->stage = STEP_BACKWARD;
    }
    if (s->stage == STEP_BACKWARD && (!backward || e->kind == FR_EVENT_STEP_END)) s->stage = STEP_OVER;
    if (memory && (s->stage == BEFORE_STEP || s->stage == STEP_FORWARD)) memory_event(s, e);
}

/* ---- begin and end -------------------------------------------------------------------------------------------- */

fr_status fr_summary_begin(fr_device device, fr_summary **out) {
    FRI_NOT_NULL(out);
    FRI_OWNED(fri_free) fr_summary *s = NULL;
    if (fri_here.in_summary) return fr_fail(FR_EUSAGE, "summary: another summary runs on this thread; end it");
    if ((s = calloc(1, sizeof *s)) == NULL) return fr_fail(FR_ENOMEM, "summary: out of host memory");
    s->device = device;
    FRI_TRY(fr_event_subscribe(summary_event, s));
    s->was_listener = fri_meta_listen((fri_call_listener){summary_call, s});
    s->was_watch = fri_module_watch_set((fri_module_watch){on_module, s});
    s->listening = fri_here.in_summary = true;
    fr_summary_release(out);
    FRI_MOVE(out, s);
    return FR_OK;
}

static void stop_listening(fr_summary *s) {
    if (!s->listening) return;
    fr_event_unsubscribe(summary_event, s);
    (void)fri_meta_listen(s->was_listener);
    (void)fri_module_watch_set(s->was_watch);
    s->listening = fri_here.in_summary = false;
}

static int in_order(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->ended != y->ended) return x->ended ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

fr_status fr_summary_end(fr_summary *s) {
    FRI_NOT_NULL(s);
    if (!s->listening) return fr_fail(FR_EUSAGE, "summary: ended already; begin another");
    stop_listening(s);
    free(s->blocks);
    s->blocks = NULL;
    fri_cost_release(&s->cost);
    if (s->failed) return fr_fail(FR_ENOMEM, "summary: out of host memory");
    if (s->stage != STEP_BACKWARD && s->stage != STEP_OVER)
        return fr_fail(FR_EUSAGE, "summary: no step with a forward and a backward ran on %s between begin and end",
                       fr_device_name(s->device));
    qsort(s->rows, (size_t)s->n_rows, sizeof *s->rows, in_order);
    for (int i = 0; i < s->n_rows; i++) {
        fr_summary_layer *l = &s->rows[i].layer;
        if (!s->rows[i].ended && l->path[0] == '\0') l->kind = "loss"; /* units ran, no outermost module */
        s->totals.parameters += l->parameters;
        s->totals.parameter_bytes += l->parameter_bytes;
        s->totals.buffer_bytes += l->buffer_bytes;
        s->totals.flops += l->flops;
        s->totals.multiply_adds += l->multiply_adds;
        s->totals.moved += l->moved;
        s->totals.written += l->written;
        s->totals.seconds += l->seconds;
    }
    return FR_OK;
}

void fr_summary_release(fr_summary **p) {
    if (p == NULL) return;
    fr_summary *s = *p;
    *p = NULL;
    if (s == NULL) return;
    stop_listening(s);
    fri_cost_release(&s->cost);
    free(s->blocks);
    free(s->rows);
    free(s);
}

int fr_summary_layers(const fr_summary *s) {
    return s != NULL ? s->n_rows : 0;
}

fr_status fr_summary_layer_get(const fr_summary *s, int i, fr_summary_layer *out) {
    FRI_NOT_NULL(s, out);
    if (i < 0 || i >= s->n_rows) return fr_fail(FR_EINVAL, "summary: layer %d is outside 0..%d", i, s->n_rows - 1);
    *out = s->rows[i].layer;
    return FR_OK;
}

const fri_summary_totals *fri_summary_totals_of(const fr_summary *s) {
    return &s->totals;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static const char *shape_text(const fr_summary_layer *l, char text[FRI_SHAPE_TEXT]) {
    fr_shape shape = fri_shape_of(l->rank, l->shape);
    if (l->rank == 0) return "";
    return fri_report_shape(&shape, text);
}

/* True for a layer without parameters, kept bytes and operations. */
static bool is_idle_layer(const fr_summary_layer *l) {
    return l->parameter_bytes + l->buffer_bytes == 0 && l->saved == 0 && l->flops == 0 && l->moved == 0;
}

static const struct {
    const char *heading;
    int width;
} columns[] = {{"parameters", 12}, {"bytes", 12},       {"saved, bytes", 14},  {"FLOPs forward", 16},
               {"MAdd", 16},       {"read, bytes", 14}, {"written, bytes", 14}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_row(const fr_summary_layer *l, const char *path, double seconds, FILE *out) {
    const double value[COLUMNS] = {(double)l->parameters,
                                   (double)(l->parameter_bytes + l->buffer_bytes),
                                   (double)l->saved,
                                   l->flops,
                                   l->multiply_adds,
                                   l->moved - l->written,
                                   l->written};
    char text[FRI_SHAPE_TEXT];
    fprintf(out, "%-36s %-18s %-22s", path, l->kind, shape_text(l, text));
    for (int c = 0; c < COLUMNS; c++) fr_fprintf(out, " %*.0f", columns[c].width, value[c]);
    fr_fprintf(out, " %10.3f %6.1f%%\n", 1e3 * l->seconds, seconds > 0 ? 100 * l->seconds / seconds : 0);
}

static void print_sums(const fri_summary_totals *t, FILE *out) {
    char a[FR_BYTES_TEXT], b[FR_BYTES_TEXT];
    fprintf(out,
            "parameters: %" PRId64 " of %zu bytes (%s), buffers of %zu; requested, each rounded up to 512: %zu bytes\n",
            t->parameters, t->parameter_bytes, fr_bytes_text(t->parameter_bytes, a), t->buffer_bytes,
            t->parameters_requested);
    if (t->trained < t->parameters)
        fprintf(out, "trained: %" PRId64 " parameters; frozen: %" PRId64 "\n", t->trained, t->parameters - t->trained);
    fprintf(out, "kept when backward begins: %zu bytes (%s) of the layers, and %zu (%s) of the batch\n", t->saved,
            fr_bytes_text(t->saved, a), t->input, fr_bytes_text(t->input, b));
    if (t->flops > 0)
        fr_fprintf(out,
                   "FLOPs: %.0f forward, of them %.0f multiply-adds (2 each) in convolutions and linear layers; %.0f "
                   "backward\n"
                   "time: forward %.3f ms, backward %.3f, predicted; measured kernels count where --calibrate ran\n",
                   t->flops, t->multiply_adds, t->flops_backward, 1e3 * t->seconds, 1e3 * t->seconds_backward);
}

fr_status fr_summary_print(const fr_summary *s, FILE *out) {
    FRI_NOT_NULL(s, out);
    const fri_summary_totals *t = &s->totals;
    fprintf(out, "%-36s %-18s %-22s", "layer", "kind", "output");
    for (int c = 0; c < COLUMNS; c++) fprintf(out, " %*s", columns[c].width, columns[c].heading);
    fprintf(out, " %10s %7s\n", "ms, est.", "share");
    for (int i = 0; i < s->n_rows; i++) {
        const fr_summary_layer *l = &s->rows[i].layer;
        if (!is_idle_layer(l)) print_row(l, l->path[0] != '\0' ? l->path : "-", t->seconds, out);
    }
    fr_summary_layer total = {.kind = "",
                              .parameters = t->parameters,
                              .parameter_bytes = t->parameter_bytes,
                              .buffer_bytes = t->buffer_bytes,
                              .saved = t->saved,
                              .flops = t->flops,
                              .multiply_adds = t->multiply_adds,
                              .moved = t->moved,
                              .written = t->written,
                              .seconds = t->seconds};
    print_row(&total, "total", t->seconds, out);
    print_sums(t, out);
    return ferror(out) ? fr_fail(FR_EIO, "summary: the stream reports a write error") : FR_OK;
}
