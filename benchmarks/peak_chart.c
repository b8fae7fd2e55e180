/* peak_chart.c - see peak_chart.h. */
#include "peak_chart.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 760, HEIGHT = 460, LEFT = 80, RIGHT = 200, TOP = 40, BOTTOM = 50 };

static const char *const colors[PEAK_LINES] = {"#e15759", "#4e79a7", "#59a14f", "#f28e2b"};

typedef struct frame {
    double x0, x1, y0, y1; /* logarithms at the borders */
} frame;

static double px(const frame *f, double x) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(x) - f->x0) / (f->x1 - f->x0);
}

static double py(const frame *f, double y) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(y) - f->y0) / (f->y1 - f->y0);
}

static frame frame_of(const peak_chart *c) {
    frame f = {log10(c->x[0]), log10(c->x[c->points - 1]), 1e9, -1e9};
    for (int k = 0; k < c->lines; k++)
        for (int i = 0; i < c->points; i++) {
            f.y0 = fmin(f.y0, floor(log10(c->y[k][i])));
            f.y1 = fmax(f.y1, ceil(log10(c->y[k][i])));
        }
    return f;
}

static double theory(int line, double n) {
    return line == 1 ? sqrt(n) : line == 2 ? log2(n) : n;
}

static void draw_line(FILE *o, const peak_chart *c, const frame *f, int k) {
    int last = c->points - 1;
    double scale = c->y[k][last] / theory(k, c->x[last]);
    fprintf(o, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colors[k]);
    for (int i = 0; i <= last; i++) fprintf(o, "%.1f,%.1f ", px(f, c->x[i]), py(f, c->y[k][i]));
    fprintf(o, "\"/><polyline fill=\"none\" stroke=\"%s\" stroke-dasharray=\"4,4\" points=\"", colors[k]);
    for (int i = 0; i <= last; i++) {
        double y = scale * theory(k, c->x[i]);
        if (log10(y) >= f->y0) fprintf(o, "%.1f,%.1f ", px(f, c->x[i]), py(f, y));
    }
    fprintf(o, "\"/>\n");
    for (int i = 0; i <= last; i++)
        fprintf(o, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>", px(f, c->x[i]), py(f, c->y[k][i]),
                colors[k]);
    fprintf(o, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s: fitted exponent %.2f</text>\n", WIDTH - RIGHT + 8,
            py(f, c->y[k][last]) + 4, colors[k], c->line[k].name, c->line[k].exponent);
}

static void draw(FILE *o, const peak_chart *c) {
    frame f = frame_of(c);
    fprintf(o,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"22\" font-size=\"14\">%s; dashed: n, sqrt n, log n</text>\n",
            WIDTH, HEIGHT, LEFT, c->title);
    for (double d = f.y0; d <= f.y1; d++)
        fprintf(o,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g MB</text>\n",
                LEFT, WIDTH - RIGHT, py(&f, pow(10, d)), py(&f, pow(10, d)), LEFT - 6, py(&f, pow(10, d)) + 4,
                pow(10, d - 6));
    for (int i = 0; i < c->points; i++)
        fprintf(o, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", px(&f, c->x[i]),
                HEIGHT - BOTTOM + 18, c->x[i]);
    for (int k = 0; k < c->lines; k++) draw_line(o, c, &f, k);
    fprintf(o, "</svg>\n");
}

static void write_csv(FILE *o, const peak_chart *c) {
    fprintf(o, "layers");
    for (int k = 0; k < c->lines; k++) fprintf(o, ",%s", c->line[k].name);
    fprintf(o, "\n");
    for (int i = 0; i < c->points; i++) {
        fprintf(o, "%g", c->x[i]);
        for (int k = 0; k < c->lines; k++) fprintf(o, ",%.0f", c->y[k][i]);
        fprintf(o, "\n");
    }
}

static bool to_file(const peak_chart *c, const char *path, void (*write)(FILE *o, const peak_chart *c)) {
    FILE *o = fopen(path, "w");
    bool ok = o != NULL;
    if (ok) {
        write(o, c);
        ok = ferror(o) == 0;
        ok = fclose(o) == 0 && ok;
    }
    if (!ok) fprintf(stderr, "depth: cannot write %s\n", path);
    return ok;
}

bool peak_chart_csv(const peak_chart *c, const char *path) {
    return to_file(c, path, write_csv);
}

bool peak_chart_svg(const peak_chart *c, const char *path) {
    return to_file(c, path, draw);
}
