/* timeline.c - see fr_timeline in frugal/views.h. */
#include <frugal/memory.h>
#include <frugal/tools.h>
#include <frugal/try.h>
#include <frugal/views.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 860, PANEL = 250, LEFT = 84, RIGHT = 20, TOP = 50, GAP = 88, LEGEND = 78, COLUMNS = 1500, LABEL = 90 };

/* Categories from the bottom up: categories of constant height lie under the changing ones. */
static const fr_category stacked[FR_CATEGORY_COUNT] = {FR_MEM_PARAMETER, FR_MEM_OPTIMIZER,  FR_MEM_INPUT,
                                                       FR_MEM_GRADIENT,  FR_MEM_ACTIVATION, FR_MEM_TEMPORARY,
                                                       FR_MEM_WORKSPACE, FR_MEM_OTHER};

static const char *const colors[FR_CATEGORY_COUNT] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                      "#edc948", "#b07aa1", "#76b7b2", "#9c9c9c"};

static size_t total_bytes(const fr_timeline_point *p) {
    size_t sum = 0;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) sum += p->bytes[c];
    return sum;
}

/* ---- recording ------------------------------------------------------------------------------------------------ */

static void add_point(fr_timeline_recorder *r, const fr_event *e) {
    fr_timeline *t = &r->now;
    if (FRI_ROOM(t->points, t->count, "timeline") < 0) {
        r->no_memory = true;
        return;
    }
    fr_timeline_point *p = &t->points[t->count++];
    memcpy(p->bytes, r->live, sizeof p->bytes);
    p->phase = fr_phase_get();
    if (total_bytes(p) <= t->peak) return;
    t->peak = total_bytes(p);
    t->peak_at = t->count - 1;
    t->at_peak = e->tag;
    t->at_peak.phase = p->phase;
}

static void step_over(fr_timeline_recorder *r) {
    r->in_step = false;
    if (r->now.peak < r->most.peak) return;
    fr_timeline was = r->most;
    r->most = r->now;
    r->now = was;
}

static void on_event(void *ctx, const fr_event *e) {
    fr_timeline_recorder *r = ctx;
    bool changed = fr_event_live(e, r->device, r->live);
    if (e->kind == FR_EVENT_STEP_BEGIN) {
        r->now.count = r->now.peak = r->now.peak_at = 0;
        r->in_step = changed = true;
    }
    if (changed && r->in_step) add_point(r, e);
    if (e->kind == FR_EVENT_STEP_END && r->in_step) step_over(r);
}

fr_status fr_timeline_begin(fr_timeline_recorder *r, fr_device device) {
    FRI_NOT_NULL(r);
    *r = (fr_timeline_recorder){.device = device};
    fr_status s = fr_event_subscribe(on_event, r);
    r->listening = s == FR_OK;
    return s;
}

fr_status fr_timeline_end(fr_timeline_recorder *r) {
    FRI_NOT_NULL(r);
    if (r->listening) fr_event_unsubscribe(on_event, r);
    r->listening = false;
    if (r->no_memory) return fr_fail(FR_ENOMEM, "timeline: out of host memory");
    return r->most.count > 0 ? FR_OK : fr_fail(FR_EUSAGE, "timeline: no training step ran");
}

void fr_timeline_free(fr_timeline_recorder *r) {
    if (r == NULL) return;
    if (r->listening) fr_event_unsubscribe(on_event, r);
    free(r->now.points);
    free(r->most.points);
    *r = (fr_timeline_recorder){0};
}

/* ---- drawing -------------------------------------------------------------------------------------------------- */

/* Prints text as XML: & < > become entities. */
static void print_xml(FILE *f, const char *text) {
    char shown[1024];
    for (const char *c = fr_text_printable(text, false, shown, sizeof shown); *c != '\0'; c++) {
        const char *entity = *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : NULL;
        if (entity != NULL)
            fputs(entity, f);
        else
            fputc(*c, f);
    }
}

static double x_of(const fr_timeline *t, size_t i) {
    return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)i / (double)(t->count > 1 ? t->count - 1 : 1);
}

/* The samples to draw: all, or the highest of each column. */
static size_t sample_of_column(const fr_timeline *t, size_t column) {
    if (t->count <= COLUMNS) return column;
    size_t first = column * t->count / COLUMNS, end = (column + 1) * t->count / COLUMNS, best = first;
    for (size_t i = first; i < end; i++)
        if (total_bytes(&t->points[i]) > total_bytes(&t->points[best])) best = i;
    return best;
}

static void draw_areas(FILE *f, const fr_timeline *t, double scale, double bottom) {
    double base[COLUMNS] = {0};
    size_t at[COLUMNS], n = t->count < COLUMNS ? t->count : COLUMNS;
    for (size_t i = 0; i < n; i++) at[i] = sample_of_column(t, i);
    for (int k = 0; k < FR_CATEGORY_COUNT; k++) {
        const fr_category c = stacked[k];
        bool any = false;
        for (size_t i = 0; i < n; i++) any = any || t->points[at[i]].bytes[c] > 0;
        if (!any) continue;
        fprintf(f, "<path fill=\"%s\" d=\"M", colors[c]);
        for (size_t i = 0; i < n; i++)
            fr_fprintf(f, "%.1f,%.1f ", x_of(t, at[i]), bottom - (base[i] + (double)t->points[at[i]].bytes[c]) * scale);
        fprintf(f, "L");
        for (size_t i = n; i-- > 0;) fr_fprintf(f, "%.1f,%.1f ", x_of(t, at[i]), bottom - base[i] * scale);
        fprintf(f, "Z\"/>\n");
        for (size_t i = 0; i < n; i++) base[i] += (double)t->points[at[i]].bytes[c];
    }
}

/* A step's default phase is forward, also between backward and optimizer and after the optimizer. */
static const char *phase_name(const fr_timeline *t, size_t i, fr_phase was) {
    fr_phase now = t->points[i].phase;
    if (now != FR_PHASE_FORWARD || was == FR_PHASE_NONE) return fr_phase_name(now);
    while (i < t->count && t->points[i].phase == now) i++;
    if (was == FR_PHASE_OPTIMIZER || (i < t->count && t->points[i].phase == FR_PHASE_OPTIMIZER)) return NULL;
    return i < t->count ? fr_phase_name(now) : "update";
}

/* A dashed line at the start of a phase, with the name if space permits. */
static void draw_phases(FILE *f, const fr_timeline *t, double top, double bottom) {
    fr_phase was = FR_PHASE_NONE;
    double room_from = 0;
    for (size_t i = 0; i < t->count; i++) {
        fr_phase now = t->points[i].phase;
        double x = x_of(t, i);
        const char *name = now == was || now == FR_PHASE_NONE ? NULL : phase_name(t, i, was);
        if (name == NULL) continue;
        if (i > 0)
            fr_fprintf(
                f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#444\" stroke-dasharray=\"3,3\"/>",
                x, top, x, bottom);
        if (x + LABEL > WIDTH) /* too near to the right edge: the name stands before the line */
            fr_fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", x - 4, bottom + 14, name);
        else if (x >= room_from)
            fr_fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 4, bottom + 14, name);
        if (x >= room_from) room_from = x + LABEL;
        was = now;
    }
}

typedef struct axis {
    double step, unit; /* a tick is step * unit bytes */
    const char *name;
    int ticks;
} axis;

/* Ticks of 1, 2 or 5 times a power of ten of a suitable unit; three to seven ticks reach `most`. */
static axis axis_to(size_t most) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    axis a = {.step = 1, .unit = 1};
    int unit = 0;
    for (; unit < 4 && a.unit * 1024 <= (double)most; unit++) a.unit *= 1024;
    while (a.step * a.unit * 3 > (double)most) a.step /= 10;
    for (int i = 0; a.step * a.unit * 7 < (double)most; i++) a.step *= i % 3 == 1 ? 2.5 : 2;
    a.name = names[unit];
    a.ticks = (int)ceil((double)most / (a.step * a.unit));
    return a;
}

/* Marks the peak, also of a single allocation: a line up to the peak, with the height. */
static void draw_peak(FILE *f, const fr_timeline *t, double y, double bottom) {
    char bytes[FR_BYTES_TEXT];
    double x = x_of(t, t->peak_at);
    bool right = x + LABEL > WIDTH - RIGHT;
    fr_fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-width=\"1.5\"/>", x, y,
               x, bottom);
    fr_fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    fr_fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"%s>peak %s</text>\n", x + (right ? -8 : 8), y + 2,
               right ? " text-anchor=\"end\"" : "", fr_bytes_text(t->peak, bytes));
}

static void draw_axes(FILE *f, const axis *a, double top, double bottom) {
    double middle = (top + bottom) / 2;
    for (int i = 0; i <= a->ticks; i++) {
        double y = bottom - PANEL * (double)i / a->ticks;
        fr_fprintf(f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>", LEFT, y, WIDTH - RIGHT, y);
        fr_fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g %s</text>\n", LEFT - 6, y + 4, a->step * i,
                   a->name);
    }
    fr_fprintf(f,
               "<text x=\"12\" y=\"%.1f\" transform=\"rotate(-90 12 %.1f)\" text-anchor=\"middle\">requested</text>\n",
               middle, middle);
    fr_fprintf(f,
               "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">allocations and releases of the step, in their "
               "order</text>\n",
               (LEFT + WIDTH - RIGHT) / 2, bottom + 32);
}

static void draw_panel(FILE *f, const fr_timeline_panel *panel, size_t most, double top) {
    const fr_timeline *t = panel->timeline;
    char bytes[FR_BYTES_TEXT];
    axis a = axis_to(most > 0 ? most : 1);
    double bottom = top + PANEL, scale = PANEL / (a.step * a.unit * a.ticks);
    draw_axes(f, &a, top, bottom);
    draw_areas(f, t, scale, bottom);
    draw_phases(f, t, top, bottom);
    draw_peak(f, t, bottom - (double)t->peak * scale, bottom);
    fr_fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">", LEFT, top - 10);
    print_xml(f, panel->title);
    fprintf(f, "peak %s (%zu bytes) in %s", fr_bytes_text(t->peak, bytes), t->peak, fr_phase_name(t->at_peak.phase));
    if (t->at_peak.op != NULL && t->at_peak.op[0] != '\0') fprintf(f, ", %s", t->at_peak.op);
    if (t->at_peak.module != NULL && t->at_peak.module[0] != '\0') {
        fputs(" of ", f);
        print_xml(f, t->at_peak.module);
    }
    fputs("</text>\n", f);
}

static void draw_legend(FILE *f, double y) {
    for (int k = 0; k < FR_CATEGORY_COUNT; k++) {
        const fr_category c = stacked[k];
        double x = LEFT + (double)k * 98;
        fr_fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>", x, y - 10, colors[c]);
        fr_fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 16, y, fr_category_name(c));
    }
}

fr_status fr_timeline_draw(const char *path, const char *heading, const fr_timeline_panel *panel, int panels) {
    FRI_NOT_NULL(path, heading, panel);
    int height = TOP + panels * (PANEL + GAP) - GAP + LEGEND;
    size_t most = 0;
    for (int i = 0; i < panels; i++)
        if (panel[i].timeline->peak > most) most = panel[i].timeline->peak;
    FRI_OWNED(fr_atomic_abandon) fr_atomic_file output;
    fr_status s = fr_atomic_open(path, 0666, &output);
    if (s == FR_OK) s = fr_atomic_stream(&output);
    if (s < 0) return fr_fail_prefix(s, "%s: ", path);
    FILE *f = output.stream;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, height);
    fprintf(f, "<text x=\"%d\" y=\"18\" font-size=\"14\">", LEFT);
    print_xml(f, heading);
    fputs("</text>\n", f);
    for (int i = 0; i < panels; i++) draw_panel(f, &panel[i], most, TOP + i * (PANEL + GAP));
    draw_legend(f, height - 14);
    fputs("</svg>\n", f);
    s = fr_atomic_commit(&output);
    return s < 0 ? fr_fail_prefix(s, "%s: ", path) : s;
}
