/* switches_plot.c - the picture of --plan=switches: a bar per row, divided by category. */
#include "session/plan_switches.h"

#include <frugal/files.h>
#include <frugal/number.h>

#include <errno.h>
#include <string.h>

enum { WIDTH = 900, LEFT = 250, ROW = 18, HEAD = 44, LEGEND = 40, BAR = WIDTH - LEFT - 210 };

static const char *const colors[FR_CATEGORY_COUNT] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                      "#edc948", "#b07aa1", "#76b7b2", "#9c9c9c"};

static void draw_row(FILE *f, const fr_plan_switch_row *r, int y, size_t most) {
    double x = LEFT;
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT - 8, y + 12, r->name);
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        const double w = (double)BAR * (double)r->at_peak[c] / (double)most;
        if (w < 0.05) continue;
        fr_fprintf(f, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", x, y, w, ROW - 4,
                   colors[c]);
        x += w;
    }
    fr_fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.4g MB, step memory %.2fx</text>\n", x + 6, y + 12,
               (double)r->planned * 1e-6, r->ratio);
}

static void draw(FILE *f, const fri_config *c, const fr_plan_switch_row *rows, int64_t n) {
    int y = HEAD;
    size_t most = 1;
    for (int64_t i = 0; i < n; i++) most = rows[i].planned > most ? rows[i].planned : most;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"10\" y=\"26\" font-weight=\"bold\">%s on %s, batch %lld: a step under each switch</text>\n",
            WIDTH, LEGEND + HEAD + ROW * (int)n, c->program->name, fr_device_name(c->opts.device),
            (long long)c->opts.optim.batch_size);
    for (int64_t i = 0; i < n; i++)
        if (rows[i].planned > 0) draw_row(f, &rows[i], y, most), y += ROW;
    for (int k = 0; k < FR_CATEGORY_COUNT; k++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                20 + k * 105, y + 16, colors[k], 36 + k * 105, y + 26, fr_category_name((fr_category)k));
    fprintf(f, "</svg>\n");
}

fr_status fri_switches_plot(const fri_config *c, const fr_plan_switch_row *rows, int64_t n) {
    fr_flag_output to = {0};
    const fr_status s = fr_flag_output_open("memory-plot", c->opts.files.memory_plot, &to);
    if (s == FR_END) return FR_OK;
    if (s < 0) return s;
    draw(to.output.stream, c, rows, n);
    if (ferror(to.output.stream) == 0) return fr_flag_output_commit(&to);
    fr_atomic_abandon(&to.output);
    return fr_fail(FR_EIO, "--memory-plot %s: cannot be written: %s", to.path, strerror(errno));
}
