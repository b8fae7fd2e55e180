/* peak_write.c - see peak_write.h. */
#include "peak_write.h"

#include <string.h>

static const char *const colors[FR_CATEGORY_COUNT] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                      "#edc948", "#b07aa1", "#76b7b2", "#9c9c9c"};

/* "1,234,567" */
static const char *grouped(size_t n, char text[32]) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%zu", n), k = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[k++] = ',';
        text[k++] = digits[i];
    }
    text[k] = 0;
    return text;
}

static double share(size_t a, size_t b) {
    return b > 0 ? (double)a / (double)b : 0;
}

static const char *type_name(const peak_table *t) {
    return t->c[0].amp ? fr_dtype_name(t->at.low) : "f32";
}

static void write_row(FILE *f, const peak_table *t, int i) {
    char peak[32], step[32], kept[32], time[16] = "";
    const peak_result *r = &t->r[i], *base = &t->r[0];
    if (r->time_ratio > 0) snprintf(time, sizeof time, "%6.2f", r->time_ratio);
    if (!r->possible)
        fprintf(f, "%-30s  not possible: the network has too few units\n", t->c[i].label);
    else
        fprintf(f, "%-30s %15s %15s %6.3f %15s %6.3f %s\n", t->c[i].label, grouped(r->peak, peak),
                grouped(r->step_memory, step), share(r->step_memory, base->step_memory), grouped(r->saved, kept),
                share(r->saved, base->saved), time);
}

void peak_write_text(FILE *f, const peak_table *t) {
    char text[32];
    bool timed = false;
    for (int i = 0; i < t->n; i++) timed |= t->r[i].time_ratio > 0;
    fprintf(f, "%s, %lld images of %lld x %lld pixels, %s, %s, on %s\n\n", t->at.net->title, (long long)t->at.batch,
            (long long)t->at.image_size, (long long)t->at.image_size, type_name(t),
            t->c[0].adam ? "Adam" : "SGD with momentum", fr_device_name(t->at.device));
    fprintf(f, "%-30s %15s %15s %6s %15s %6s%s\n", "switch", "peak", "step memory", "ratio", "activations", "ratio",
            timed ? "   time" : "");
    for (int i = 0; i < t->n; i++) write_row(f, t, i);
    fprintf(
        f,
        "\nBytes. The step memory is the peak without parameters and optimizer state; activations are what is kept\n"
        "for backward, with the batch. A ratio divides the number on its left by the first row's.%s\n"
        "Floor of the first row: %s bytes, its parameters, optimizer state and largest op.\n",
        timed ? " time: a step's\ntime, divided by the first row's." : "", grouped(t->r[0].floor, text));
}

/* "4,539,740,672 (-28 %)": the change is from the row before which the case's work begins. */
static void write_cell(FILE *f, const peak_table *t, int i) {
    char text[32];
    int base = 0;
    while (t->c[i].work != PEAK_TRAIN && t->c[base].work != PEAK_EVALUATE_GRAPH) base++;
    double change = 100 * (share(t->r[i].peak, t->r[base].peak) - 1);
    fprintf(f, " %s", grouped(t->r[i].peak, text));
    if (i != base) fprintf(f, " (%.0f %%)", change);
    fprintf(f, " |");
}

void peak_write_readme(FILE *f, const peak_table *t, int tables) {
    fprintf(f, "| switch | flag | call |");
    for (int k = 0; k < tables; k++) fprintf(f, " %s |", t[k].at.net->title);
    fprintf(f, "\n|---|---|---|");
    for (int k = 0; k < tables; k++) fprintf(f, "--:|");
    fprintf(f, "\n");
    for (int i = 0; i < t->n; i++) {
        const peak_case *c = &t->c[i];
        if (c->call == NULL) continue;
        fprintf(f, c->flag[0] == '-' ? "| %s | `%s` | `%s` |" : "| %s | %s | `%s` |", c->label, c->flag, c->call);
        for (int k = 0; k < tables; k++)
            for (int j = 0; j < t[k].n; j++)
                if (strcmp(t[k].c[j].label, c->label) == 0) write_cell(f, &t[k], j);
        fprintf(f, "\n");
    }
}

void peak_write_csv(FILE *f, const peak_table *t, bool header) {
    if (header) {
        fprintf(f,
                "model,device,dtype,optimizer,batch,image_size,switches,peak,step_memory,step_ratio,saved,saved_ratio,"
                "saved_part,floor,update,weight_casts,largest_weight_cast,time_ratio");
        for (int c = 0; c < FR_CATEGORY_COUNT; c++) fprintf(f, ",%s_at_peak", fr_category_name((fr_category)c));
        fprintf(f, "\n");
    }
    for (int i = 0; i < t->n; i++) {
        const peak_result *r = &t->r[i];
        if (!r->possible) continue;
        fprintf(f, "%s,%s,%s,%s,%lld,%lld,%s,%zu,%zu,%.4f,%zu,%.4f,%zu,%zu,%zu,%zu,%zu,%.3f", t->at.net->name,
                fr_device_name(t->at.device), type_name(t), t->c[i].adam ? "adam" : "sgd", (long long)t->at.batch,
                (long long)t->at.image_size, t->c[i].label, r->peak, r->step_memory,
                share(r->step_memory, t->r[0].step_memory), r->saved, share(r->saved, t->r[0].saved), r->saved_part,
                r->floor, r->update, r->casts, r->largest_cast, r->time_ratio);
        for (int c = 0; c < FR_CATEGORY_COUNT; c++) fprintf(f, ",%zu", r->by[c]);
        fprintf(f, "\n");
    }
}

/* ---- the picture --------------------------------------------------------------------------------------------- */

enum { WIDTH = 900, LEFT = 250, ROW = 18, HEAD = 44, LEGEND = 40, BAR = WIDTH - LEFT - 210 };

static int rows(const peak_table *t) {
    int n = 0;
    for (int i = 0; i < t->n; i++) n += t->r[i].possible;
    return n;
}

static void draw_table(FILE *f, const peak_table *t, int top) {
    size_t most = 1;
    for (int i = 0; i < t->n; i++) most = t->r[i].peak > most ? t->r[i].peak : most;
    fprintf(f, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s, batch %lld, %lld pixels, %s</text>\n", top + 26,
            t->at.net->title, (long long)t->at.batch, (long long)t->at.image_size, type_name(t));
    int y = top + HEAD;
    for (int i = 0; i < t->n; i++) {
        const peak_result *r = &t->r[i];
        if (!r->possible) continue;
        double x = LEFT;
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT - 8, y + 12, t->c[i].label);
        for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
            double w = (double)BAR * (double)r->by[c] / (double)most;
            if (w < 0.05) continue;
            fprintf(f, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", x, y, w, ROW - 4,
                    colors[c]);
            x += w;
        }
        fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.2f GB, step memory %.2fx</text>\n", x + 6, y + 12,
                (double)r->peak * 1e-9, share(r->step_memory, t->r[0].step_memory));
        y += ROW;
    }
}

void peak_write_svg(FILE *f, const peak_table *t) {
    int height = LEGEND + HEAD + ROW * rows(t);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, height);
    draw_table(f, t, 0);
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                20 + c * 105, height - 24, colors[c], 36 + c * 105, height - 14, fr_category_name((fr_category)c));
    fprintf(f, "</svg>\n");
}
