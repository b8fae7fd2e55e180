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

/* The peak's parts: a column for each, temporaries with library scratch. */
static void write_parts(FILE *f, const peak_result *r) {
    char text[32];
    fprintf(f, " %s |", grouped(r->by[FR_MEM_PARAMETER], text));
    fprintf(f, " %s |", grouped(r->by[FR_MEM_OPTIMIZER], text));
    fprintf(f, " %s |", grouped(r->by[FR_MEM_GRADIENT], text));
    fprintf(f, " %s |", grouped(r->by[FR_MEM_ACTIVATION], text));
    fprintf(f, " %s |", grouped(r->by[FR_MEM_TEMPORARY] + r->by[FR_MEM_WORKSPACE] + r->by[FR_MEM_OTHER], text));
    fprintf(f, " %s |", grouped(r->by[FR_MEM_INPUT], text));
}

void peak_write_markdown(FILE *f, const peak_table *t) {
    char a[32], b[32], c[32], time[32];
    const peak_result *base = &t->r[0];
    fprintf(f, "\n%s, batch %lld, %lld pixels, %s, %s on %s; requested bytes of the second step\n\n", t->at.net->title,
            (long long)t->at.batch, (long long)t->at.image_size, t->c[0].amp ? "mixed precision" : "f32",
            t->c[0].adam ? "Adam" : "SGD with momentum", fr_device_name(t->at.device));
    fprintf(f, "| switches | peak | parameters | state | gradients | activations | temporaries | batch | step memory | "
               "of all off | saved for backward | of all off | floor | time |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < t->n; i++) {
        const peak_result *r = &t->r[i];
        if (!r->possible) {
            fprintf(f, "| %s | - | | | | | | | | | | | | the network is one unit |\n", t->c[i].label);
            continue;
        }
        snprintf(time, sizeof time, r->time_ratio > 0 ? "%.2f" : "-", r->time_ratio);
        fprintf(f, "| %s | %s |", t->c[i].label, grouped(r->peak, a));
        write_parts(f, r);
        fprintf(f, " %s | %.3f | %s | %.3f |", grouped(r->step_memory, a), share(r->step_memory, base->step_memory),
                grouped(r->saved, b), share(r->saved, base->saved));
        fprintf(f, " %s | %s |\n", grouped(r->floor, c), time);
    }
    if (t->at.net->part == NULL) return;
    fprintf(f, "\n| saved inside the dense blocks | bytes | of all off |\n|---|---|---|\n");
    for (int i = 0; i < t->n; i++)
        if (t->c[i].how == PEAK_PLAIN)
            fprintf(f, "| %s | %s | %.3f |\n", t->c[i].label, grouped(t->r[i].saved_part, a),
                    share(t->r[i].saved_part, base->saved_part));
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

enum { WIDTH = 900, LEFT = 250, ROW = 18, HEAD = 44, LEGEND = 40, BAR = WIDTH - LEFT - 130 };

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
        fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.2f GB, step %.2fx</text>\n", x + 6, y + 12, (double)r->peak * 1e-9,
                share(r->step_memory, t->r[0].step_memory));
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
