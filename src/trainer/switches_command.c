/* switches_command.c - --plan=switches: prints the table of memory switches, and draws a bar per row, divided by
 * category. */
#include "trainer/command.h"

#include "session/plan_switches.h"

#include <frugal/files.h>
#include <frugal/number.h>

#include <errno.h>
#include <string.h>

enum { BARS_WIDTH = 900, BARS_LEFT = 250, BARS_ROW = 18, BARS_HEAD = 44, BARS_MOST = BARS_WIDTH - BARS_LEFT - 210 };

static const char *const bar_colors[FR_CATEGORY_COUNT] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                          "#edc948", "#b07aa1", "#76b7b2", "#9c9c9c"};

static void draw_bar(FILE *f, const fr_plan_switch_row *r, int y, size_t most) {
    double x = BARS_LEFT;
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", BARS_LEFT - 8, y + 12, r->name);
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        const double w = (double)BARS_MOST * (double)r->at_peak[c] / (double)most;
        if (w >= 0.05)
            fr_fprintf(f, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>", x, y, w,
                       bar_colors[c]);
        x += w;
    }
    fr_fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.4g MB, step memory %.2fx</text>\n", x + 6, y + 12,
               (double)r->planned * 1e-6, r->ratio);
}

static void draw_bars(FILE *f, const fri_config *c, const fr_plan_switch_row *rows, int64_t n) {
    int y = BARS_HEAD;
    size_t most = 1;
    for (int64_t i = 0; i < n; i++) most = rows[i].planned > most ? rows[i].planned : most;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"10\" y=\"26\" font-weight=\"bold\">%s on %s, batch %lld: a step under each switch</text>\n",
            BARS_WIDTH, 2 * BARS_HEAD + BARS_ROW * (int)n, c->program->name, fr_device_name(c->opts.device),
            (long long)c->opts.optim.batch_size);
    for (int64_t i = 0; i < n; i++)
        if (rows[i].planned > 0) draw_bar(f, &rows[i], y, most), y += BARS_ROW;
    for (int k = 0; k < FR_CATEGORY_COUNT; k++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                20 + k * 105, y + 16, bar_colors[k], 36 + k * 105, y + 26, fr_category_name((fr_category)k));
    fprintf(f, "</svg>\n");
}

static fr_status write_bars(const fri_config *c, const fr_plan_switch_row *rows, int64_t n) {
    fr_flag_output to = {0};
    const fr_status s = fr_flag_output_open("memory-plot", c->opts.files.memory_plot, &to);
    if (s != FR_OK) return s == FR_END ? FR_OK : s;
    draw_bars(to.output.stream, c, rows, n);
    return fr_flag_output_commit(&to);
}

fr_status fri_switches_command(const fri_config *c) {
    fr_plan_switch_row rows[FR_PLAN_SWITCH_ROWS];
    int64_t n = 0;
    FRI_TRY(fri_plan_switches(c, &(fr_plan_switches_opts){0}, rows, FR_PLAN_SWITCH_ROWS, &n));
    fprintf(c->out, "%-30s %15s %15s %6s  %s\n", "switch", "planned peak", "step memory", "ratio", "flags");
    for (const fr_plan_switch_row *r = rows; r < rows + n; r++)
        if (r->planned == 0)
            fprintf(c->out, "%-30s cannot be: %s\n", r->name, r->reason);
        else
            fr_fprintf(c->out, "%-30s %15zu %15zu %6.3f  %s\n", r->name, r->planned, r->step_memory, r->ratio,
                       r->flag[0] != '\0' ? r->flag : "(none)");
    if (!c->opts.quiet)
        fputs("Requested bytes at the peak of a training step; step memory is without parameters and\n"
              "optimizer state. The flags stand in place of the command's memory flags. A switch alone can\n"
              "add bytes: in place, batch norm, sum and relu are one op, and its backward holds the maps of\n"
              "all three until early release, a default, lets them go.\n",
              c->out);
    return write_bars(c, rows, n);
}
