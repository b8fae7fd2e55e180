/* confusion.c - --confusion: the confusion matrix of the last evaluation as a picture. A row per class of targets; a
 * field is the darker the larger its share of the row. */
#include "session/views.h"

#include <inttypes.h>
#include <math.h>

enum { LEFT = 170, TOP = 64, WITH_NAMES = 60, WITH_NUMBERS = 24 }; /* classes that have room for these */

/* Its name, or else its number. */
static void class_name(FILE *f, const fri_session *r, int64_t class) {
    const char *name = fri_class_numbers_of(r, class).name;
    if (name != NULL)
        fr_text_xml(f, name);
    else
        fprintf(f, "%" PRId64, class);
}

/* What targets of class i were taken for. */
static void draw_row(FILE *f, const fri_session *r, int64_t i, int side) {
    const int64_t n = r->config->outputs, y = TOP + i * side, *row = r->confusion + i * n;
    const int64_t all = fri_class_numbers_of(r, i).targets;
    if (n <= WITH_NAMES) {
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, (double)y + 0.5 * side + 4);
        class_name(f, r, i);
        fputs("</text>\n", f);
    }
    for (int64_t k = 0; k < n; k++) {
        const double share = row[k] > 0 ? (double)row[k] / (double)all : 0;
        const int64_t x = LEFT + k * side;
        if (row[k] == 0) continue;
        fprintf(f, "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%d\" height=\"%d\" fill=\"#1f4e8c\" ", x, y, side,
                side);
        fprintf(f, "fill-opacity=\"%.3f\"><title>", share);
        class_name(f, r, i);
        fputs(" taken for ", f);
        class_name(f, r, k);
        fprintf(f, ": %" PRId64 " of %" PRId64 "</title></rect>\n", row[k], all);
        if (n <= WITH_NUMBERS)
            fprintf(f,
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\" fill=\"%s\">%" PRId64
                    "</text>\n",
                    (double)x + 0.5 * side, (double)y + 0.5 * side + 4, share > 0.5 ? "white" : "black", row[k]);
    }
}

static void draw(FILE *f, const fri_session *r) {
    const int64_t n = r->config->outputs;
    const int side = n <= WITH_NUMBERS ? 32 : n <= WITH_NAMES ? 14 : n <= 200 ? 5 : 2;
    const int64_t width = n * side, whole = LEFT + (width > 430 ? width : 430) + 16; /* the heading has room */
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
            "\" font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            whole, TOP + width + 16);
    fprintf(f, "<text x=\"%d\" y=\"20\" font-size=\"14\">%s: %.2f %% of %" PRId64 " right, mean IoU %.4f</text>\n",
            LEFT, r->config->model_name, 100 * r->test_accuracy, r->test_targets, fri_mean_iou(r));
    fprintf(f, "<text x=\"%d\" y=\"40\">rows: classes of targets; columns: what they were taken for</text>\n", LEFT);
    for (int64_t i = 0; i < n && n <= WITH_NAMES; i++)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"%d\">%" PRId64 "</text>\n",
                (double)(LEFT + i * side) + 0.5 * side, TOP - 6, n <= WITH_NUMBERS ? 10 : 8, i);
    for (int64_t i = 0; i < n; i++) draw_row(f, r, i, side);
    fprintf(f,
            "<rect x=\"%d\" y=\"%d\" width=\"%" PRId64 "\" height=\"%" PRId64
            "\" fill=\"none\" stroke=\"#888\"/>\n</svg>\n",
            LEFT, TOP, width, width);
}

static fr_status begin(void *state, const fri_session *r) {
    const char *path = r->config->opts.confusion;
    if (path != NULL && !r->config->accuracy)
        return fr_fail(FR_EINVAL, "--confusion %s: %s has no classes that answers are compared with", path,
                       r->config->model_name);
    return fr_flag_output_open("confusion", path, state);
}

/* A run that ends before its evaluation leaves no picture. */
static fr_status event(void *state, const fri_session *r, fr_run_event e) {
    fr_flag_output *f = state;
    if (e != FR_RUN_END || r->confusion == NULL || !isfinite(r->test_accuracy)) return FR_OK;
    draw(f->output.stream, r);
    return fr_flag_output_commit(f);
}

static void end(void *state) {
    fr_flag_output *f = state;
    fr_atomic_abandon(&f->output);
}

const fri_view fri_confusion_view = {sizeof(fr_flag_output), begin, event, end};
