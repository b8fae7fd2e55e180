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

static int row_of(const peak_table *t, const char *label) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->c[i].label, label) == 0) return i;
    return -1;
}

/* "6,343,887,360 (0.59, 0.52) |", with the time behind them where it was measured. */
static void write_cell(FILE *f, const peak_table *t, const char *label) {
    char text[32];
    int i = row_of(t, label);
    if (i < 0 || !t->r[i].possible) {
        fprintf(f, " - |");
        return;
    }
    const peak_result *r = &t->r[i], *base = &t->r[0];
    fprintf(f, " %s (%.3f, %.3f", grouped(r->peak, text), share(r->step_memory, base->step_memory),
            share(r->saved, base->saved));
    if (r->time_ratio > 0) fprintf(f, ", %.2f", r->time_ratio);
    fprintf(f, ") |");
}

/* Lines under the rows: the floors, what a fused step and mixed precision promise, and the chosen cuts. */
static void write_last_rows(FILE *f, const peak_table *t, int tables) {
    char text[32];
    const char *const low = t->c[0].amp ? "no cached casts" : "amp";
    fprintf(f, "| floor, all off |");
    for (int k = 0; k < tables; k++) fprintf(f, " %s |", grouped(t[k].r[0].floor, text));
    fprintf(f, "\n| parameters + gradients + state at most, fused step |");
    for (int k = 0; k < tables; k++) {
        int i = row_of(&t[k], "fused step");
        fprintf(f, " %s |", i < 0 ? "-" : grouped(t[k].r[i].update, text));
    }
    fprintf(f, "\n| low-precision weights at most, %s |", low);
    for (int k = 0; k < tables; k++) {
        int i = row_of(&t[k], low);
        fprintf(f, " %s |", i < 0 ? "-" : grouped(t[k].r[i].casts, text));
    }
    fprintf(f, "\n| chosen cuts |");
    for (int k = 0; k < tables; k++) {
        const fr_unit_plan *p = &t[k].cuts.plan;
        for (int i = 0; i < p->ranges; i++) fprintf(f, " %d-%d", p->range[i].first, p->range[i].end - 1);
        fprintf(f, p->units > 1 ? " of %d |" : " - |", p->units);
    }
    fprintf(f, "\n");
}

/* Is the row the baseline in every table? Such rows are left out. */
static bool changes_nothing(const peak_table *t, int tables, const char *label) {
    for (int k = 0; k < tables; k++) {
        int i = row_of(&t[k], label);
        const peak_result *base = t[k].r, *r = base + (i >= 0 ? i : 0);
        if (i >= 0 && (!r->possible || r->peak != base->peak || r->saved != base->saved || r->time_ratio > 0))
            return false;
    }
    return true;
}

void peak_write_markdown(FILE *f, const peak_table *t, int tables) {
    const peak_table *longest = t; /* the others lack some of its rows */
    for (int k = 1; k < tables; k++)
        if (t[k].n > longest->n) longest = &t[k];
    fprintf(f, "| %s, %s, %s |", t->c[0].amp ? "mixed precision" : "f32", t->c[0].adam ? "Adam" : "SGD with momentum",
            fr_device_name(t->at.device));
    for (int k = 0; k < tables; k++)
        fprintf(f, " %s, %lld x %lld px |", t[k].at.net->title, (long long)t[k].at.batch,
                (long long)t[k].at.image_size);
    fprintf(f, "\n|---|");
    for (int k = 0; k < tables; k++) fprintf(f, "---|");
    fprintf(f, "\n");
    for (int i = 0; i < longest->n; i++) {
        if (i > 0 && changes_nothing(t, tables, longest->c[i].label)) continue;
        fprintf(f, "| %s |", longest->c[i].label);
        for (int k = 0; k < tables; k++) write_cell(f, &t[k], longest->c[i].label);
        fprintf(f, "\n");
    }
    write_last_rows(f, t, tables);
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

void peak_write_svg(FILE *f, const peak_table *t, int tables) {
    int height = LEGEND;
    for (int i = 0; i < tables; i++) height += HEAD + ROW * rows(&t[i]);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, height);
    int top = 0;
    for (int i = 0; i < tables; i++) {
        draw_table(f, &t[i], top);
        top += HEAD + ROW * rows(&t[i]);
    }
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                20 + c * 105, height - 24, colors[c], 36 + c * 105, height - 14, fr_category_name((fr_category)c));
    fprintf(f, "</svg>\n");
}
