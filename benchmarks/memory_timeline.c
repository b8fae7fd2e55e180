/* memory_timeline.c - a training step's memory over time, by category, as a picture.
 *
 *     build/benchmarks/memory_timeline FILE.svg [batch] [image size]        (VGG-16, 64 images of 224 pixels, f32)
 *
 * Runs two steps of VGG-16 on addresses without memory (FR_META), once with all switches off, as PyTorch eager keeps
 * things, and once with the defaults; draws the second step of each. One column per change of memory, areas stacked by
 * category, the peak marked. The numbers are exact and the same on every machine: no kernel runs, library scratch is
 * not included. */
#include "memory/event.h"
#include "memory/report.h"

#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 860, PANEL = 250, LEFT = 70, TOP = 50, GAP = 70, POINTS = 4096 };

typedef struct sample {
    size_t bytes[FR_CATEGORY_COUNT];
    fr_phase phase;
} sample;

typedef struct recording {
    sample points[POINTS];
    size_t live[FR_CATEGORY_COUNT];
    int count;
    bool on;
    size_t peak;
    int peak_at;
} recording;

static const char *const colors[FR_CATEGORY_COUNT] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                      "#edc948", "#b07aa1", "#76b7b2", "#9c9c9c"};

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "memory_timeline: %s\n", fr_last_error());
    exit(1);
}

static void on_event(void *ctx, const fri_event *e) {
    recording *r = ctx;
    size_t total = 0;
    switch (e->kind) {
    case FRI_EVENT_ALLOC: r->live[e->tag.category] += e->requested; break;
    case FRI_EVENT_FREE: r->live[e->tag.category] -= e->requested; break;
    case FRI_EVENT_RELABEL:
        r->live[e->from] -= e->requested;
        r->live[e->tag.category] += e->requested;
        break;
    default: return;
    }
    if (!r->on || r->count == POINTS) return;
    memcpy(r->points[r->count].bytes, r->live, sizeof r->live);
    r->points[r->count].phase = fri_scope_phase();
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) total += r->live[c];
    if (total > r->peak) {
        r->peak = total;
        r->peak_at = r->count;
    }
    r->count++;
}

static void step(fr_module *m, fr_optimizer *o, int64_t batch, int64_t size) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_step_scope scope;
    must(fr_step_begin(&scope));
    must(fr_tensor_empty(4, (int64_t[]){batch, size, size, 3}, FR_F32, FR_META, &x));
    must(fr_tensor_empty(1, &batch, FR_I64, FR_META, &target));
    must(fr_module_forward(m, x, &x));
    must(fr_cross_entropy(x, target, NULL, &loss));
    fr_tensor_release(&x);
    must(fr_backward(loss, NULL));
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&loss);
    fr_tensor_release(&target);
    must(fr_step_end(&scope));
}

static void record(fr_switches switches, int64_t batch, int64_t size, recording *r) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_switches_set(switches);
    must(fri_event_subscribe(on_event, r));
    must(fr_vgg(16, FR_MODEL_OPTS(.image_size = size, .device = FR_META), &m));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
    step(m, o, batch, size);
    r->on = true;
    step(m, o, batch, size);
    fri_event_unsubscribe(on_event, r);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* ---- drawing -------------------------------------------------------------------------------------------------- */

static double x_of(const recording *r, int i) {
    return LEFT + (double)(WIDTH - LEFT - 20) * i / (r->count > 1 ? r->count - 1 : 1);
}

static void draw_areas(FILE *f, const recording *r, double scale, double bottom) {
    static double base[POINTS];
    for (int i = 0; i < r->count; i++) base[i] = 0;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        bool any = false;
        for (int i = 0; i < r->count; i++) any = any || r->points[i].bytes[c] > 0;
        if (!any) continue;
        fprintf(f, "<path fill=\"%s\" d=\"M", colors[c]);
        for (int i = 0; i < r->count; i++)
            fprintf(f, "%.1f,%.1f ", x_of(r, i), bottom - (base[i] + (double)r->points[i].bytes[c]) * scale);
        fprintf(f, "L");
        for (int i = r->count - 1; i >= 0; i--) fprintf(f, "%.1f,%.1f ", x_of(r, i), bottom - base[i] * scale);
        fprintf(f, "Z\"/>\n");
        for (int i = 0; i < r->count; i++) base[i] += (double)r->points[i].bytes[c];
    }
}

static void draw_panel(FILE *f, const recording *r, const char *title, size_t most, double top) {
    char text[FRI_BYTES_TEXT];
    double bottom = top + PANEL, scale = PANEL / (double)most;
    for (int tick = 0; tick <= 4; tick++) {
        double y = bottom - PANEL * tick / 4.0;
        fprintf(f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>", LEFT, y, WIDTH - 20, y);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 6, y + 4,
                fri_bytes_text(most / 4 * (size_t)tick, text));
    }
    draw_areas(f, r, scale, bottom);
    for (int i = 1; i < r->count; i++)
        if (r->points[i].phase != r->points[i - 1].phase && r->points[i].phase != FR_PHASE_NONE) {
            fprintf(f,
                    "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#444\" stroke-dasharray=\"3,3\"/>",
                    x_of(r, i), top, x_of(r, i), bottom);
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x_of(r, i) + 4, bottom + 14,
                    r->points[i - 1].phase == FR_PHASE_BACKWARD ? "gradients released"
                                                                : fr_phase_name(r->points[i].phase));
        }
    double px = x_of(r, r->peak_at), py = bottom - (double)r->peak * scale;
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>", px, py);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">%s: peak %s (%zu bytes)</text>\n", LEFT, top - 10, title,
            fri_bytes_text(r->peak, text), r->peak);
}

static void draw_legend(FILE *f, double y) {
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        double x = LEFT + (double)c * 98;
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>", x, y - 10, colors[c]);
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 16, y, fr_category_name((fr_category)c));
    }
}

int main(int argc, char **argv) {
    static recording off, on;
    int64_t batch = argc > 2 ? atoll(argv[2]) : 64, size = argc > 3 ? atoll(argv[3]) : 224;
    if (argc < 2 || batch < 1 || size < 32) {
        fprintf(stderr, "usage: memory_timeline FILE.svg [batch >= 1] [image size >= 32]\n");
        return 2;
    }
    record(fr_switches_all_off(), batch, size, &off);
    record(fr_switches_default(), batch, size, &on);
    FILE *f = fopen(argv[1], "w");
    if (f == NULL) {
        fprintf(stderr, "memory_timeline: cannot write %s\n", argv[1]);
        return 1;
    }
    int height = TOP + 2 * PANEL + GAP + 60;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, height);
    fprintf(
        f,
        "<text x=\"%d\" y=\"18\" font-size=\"14\">VGG-16, batch %lld, %lld pixels, f32: one training step, requested "
        "bytes by category</text>\n",
        LEFT, (long long)batch, (long long)size);
    draw_panel(f, &off, "all switches off", off.peak, TOP);
    draw_panel(f, &on, "default switches", off.peak, TOP + PANEL + GAP);
    draw_legend(f, height - 14);
    fprintf(f, "</svg>\n");
    if (fclose(f) != 0) {
        fprintf(stderr, "memory_timeline: writing %s failed\n", argv[1]);
        return 1;
    }
    printf("all off %zu bytes, default %zu bytes (%.3f)\n", off.peak, on.peak, (double)on.peak / (double)off.peak);
    return 0;
}
