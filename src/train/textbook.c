/* textbook.c - --summary --textbook: figures that tools and guides publish, from first principles.
 *
 * Each line computes a figure from shapes alone (the networks run on meta), writes it as its source does, and compares
 * the texts. Five published figures are wrong; the right value stands beside them with the reason. */
#include "train/textbook.h"

#include "base/status.h"
#include "memory/tracker.h"
#include "train/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static const double mega = 1e6, mebi = 1048576;

typedef struct table {
    FILE *out;
    int right, wrong, unexpected;
} table;

/* why NULL: the figure is right, as far as its source prints it; else why it is not. */
static void line(table *t, const char *item, const char *published, const char *why, const char *computed) {
    bool same = strcmp(published, computed) == 0;
    const char *verdict = same ? "equal" : "DIFFERS";
    if (why != NULL && !same) verdict = "published figure is wrong";
    if (same && why == NULL)
        t->right++;
    else if (!same && why != NULL)
        t->wrong++;
    else
        t->unexpected++;
    fprintf(t->out, "  %-66s %16s %16s  %s\n", item, published, computed, verdict);
    if (why != NULL) fprintf(t->out, "      erratum %s\n", why);
}

__attribute__((format(printf, 5, 6))) static void figure(table *t, const char *item, const char *published,
                                                         const char *why, const char *format, ...) {
    char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line(t, item, published, why, text);
}

static void heading(const table *t, const char *text) {
    fprintf(t->out, "\n%-68s %16s %16s\n", text, "published", "computed");
}

/* ---- memory of a small model ---------------------------------------------------------------------------------- */

static fr_status guide(table *t) {
    fri_textbook g;
    fr_status s = fri_textbook_run(FRI_TEXTBOOK_GUIDE, &g);
    if (s < 0) return s;
    heading(t, "A guide's model: conv 3-64, relu, conv 64-64, relu, pool, conv 64-128");
    figure(t, "parameters, elements: weights + biases", "112576", NULL, "%" PRId64, g.parameters);
    figure(t, "parameters, 10^6 bytes", "0.450304", NULL, "%.6f", (double)g.parameters * 4 / mega);
    /* The post gives no image size with the sum; its tracker log shows (1, 3, 682, 700). */
    int64_t maps = fri_textbook_sum(&g, "Conv2d MaxPool2d");
    figure(t, "maps of one 682 x 700 image, bytes, relu in place", "336089600", NULL, "%" PRId64, maps * 4);
    figure(t, "the same with backward (twice)", "672179200", NULL, "%" PRId64, maps * 8);
    figure(t, "relu not in place (derived)", "580518400", NULL, "%" PRId64, fri_textbook_sum(&g, NULL) * 4);
    return FR_OK;
}

/* ---- tracker lines -------------------------------------------------------------------------------------------- */

typedef struct tracker_line {
    int64_t count;
    int rank;
    int64_t dim[4]; /* PyTorch's order */
    const char *published;
} tracker_line;

static const tracker_line tracker_lines[] = {
    {7, 4, {512, 512, 3, 3}, "66.060"},
    {1, 4, {512, 256, 3, 3}, "4.7185"},
    {1, 4, {64, 64, 3, 3}, "0.1474"},
    {1, 4, {128, 64, 3, 3}, "0.2949"},
    {1, 4, {128, 128, 3, 3}, "0.5898"},
    {8, 1, {512}, "0.0163"},
    {3, 4, {256, 256, 3, 3}, "7.0778"},
    {1, 4, {256, 128, 3, 3}, "1.1796"},
    {2, 1, {64}, "0.0005"},
    {4, 1, {256}, "0.0040"},
    {2, 1, {128}, "0.0010"},
    {1, 4, {64, 3, 3, 3}, "0.0069"},
    {1, 2, {4096, 25088}, "411.04"},
    {1, 2, {4096, 4096}, "67.108"},
    {1, 2, {1000, 4096}, "16.384"},
    {2, 1, {4096}, "0.0327"},
    {1, 1, {1000}, "0.004"},
    {5, 4, {512, 512, 3, 3}, "47.185"},
    {1, 4, {30, 3, 512, 512}, "94.371"},
    {1, 4, {40, 3, 512, 512}, "125.82"},
    {1, 4, {60, 3, 512, 512}, "188.74"},
    {1, 4, {80, 3, 512, 512}, "251.65"},
    {1, 4, {120, 3, 512, 512}, "377.48"},
    {2, 4, {1, 3, 500, 500}, "6.0"},
    {2, 4, {1, 64, 500, 500}, "128.0"},
    {2, 4, {1, 128, 250, 250}, "64.0"},
    {2, 4, {1, 256, 125, 125}, "32.0"},
    {2, 4, {1, 512, 62, 62}, "15.745"},
};

static void print_tracker_lines(table *t) {
    char text[FRI_MEGABYTES_TEXT], shape[FRI_SHAPE_TEXT], item[FRI_SHAPE_TEXT + 32];
    heading(t, "Lines of a memory tracker: count * shape, f32, 10^6 bytes cut off");
    for (size_t i = 0; i < sizeof tracker_lines / sizeof *tracker_lines; i++) {
        const tracker_line *l = &tracker_lines[i];
        const int64_t *d = l->dim;
        fri_shape in_memory = fri_shape_of(l->rank, l->rank == 4 ? (int64_t[]){d[0], d[2], d[3], d[1]} : d);
        size_t bytes = (size_t)(l->count * fri_shape_numel(&in_memory)) * 4;
        snprintf(item, sizeof item, "%" PRId64 " * %s", l->count, fri_tracker_shape(&in_memory, shape));
        line(t, item, l->published, NULL, fri_tracker_megabytes(bytes, text));
    }
}

/* Two totals of a log, 10^6 bytes, each rounded to one digit: their difference is right within 0.1. */
static void difference(table *t, const char *what, double before, double after, int64_t bytes) {
    char item[96], published[32], computed[32];
    double off = after - before - (double)bytes / mega;
    snprintf(item, sizeof item, "%s: %.1f to %.1f", what, before, after);
    snprintf(published, sizeof published, "%.1f", after - before);
    snprintf(computed, sizeof computed, "%.5f", (double)bytes / mega);
    bool right = off > -0.1 && off < 0.1;
    *(right ? &t->right : &t->unexpected) += 1;
    fprintf(t->out, "  %-66s %16s %16s  %s\n", item, published, computed, right ? "equal, rounded" : "DIFFERS");
}

static fr_status tracker(table *t) {
    fri_textbook vgg16, vgg19;
    char text[FRI_MEGABYTES_TEXT];
    const int64_t image = 3 * 512 * 512 * 4;
    fr_status s = FR_OK;
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_VGG16, &vgg16));
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_VGG19, &vgg19));
    print_tracker_lines(t);
    difference(t, "images come, batches of 30 + 40 + 60", 1142.0, 1550.9, 130 * image);
    difference(t, "images come, batches of 80 + 120", 1550.9, 2180.1, 200 * image);
    difference(t, "images go, batches of 40 + 120", 2180.1, 1676.8, -160 * image);
    figure(t, "500 x 500 RGB image, f32 bytes", "3000000", NULL, "%d", 500 * 500 * 3 * 4);
    figure(t, "256 RGB images of 100 x 100, f32 bytes", "30720000", NULL, "%d", 256 * 3 * 100 * 100 * 4);
    figure(t, "bytes of the table called VGG-19, 10^6", "551.8",
           "A: its lines (5 of (512, 512, 3, 3), 2 of (256, 256, 3, 3)) are VGG-16's 138,357,544 parameters", "%.1f",
           (double)vgg16.parameters * 4 / mega);
    figure(t, "VGG-19 itself: parameters, MiB", "548", NULL, "%.0f", (double)vgg19.parameters * 4 / mebi);
    line(t, "12 bytes, as the oldest tracker cuts them (\"1.14 M\" is 1.1444e-05)", "1.14",
         "B: the cut loses the exponent; without one it is 0.0000, and the line gives the 12 bytes beside it",
         fri_tracker_megabytes(12, text));
    figure(t, "an int16 element in today's tracker, bytes: 16 / 6", "2.67", "B: 16 bits are 2 bytes", "%.2f",
           (double)fr_dtype_size(FR_I16));
done:
    return s;
}

/* ---- estimators and textbooks --------------------------------------------------------------------------------- */

static void estimate(table *t, const char *name, const fri_textbook *n, int64_t batch, int64_t values, double unit,
                     const char *const published[4]) {
    static const char *const parts[4] = {"input", "outputs twice", "parameters", "total"};
    double bytes[4] = {(double)(batch * n->input * 4), (double)(batch * values * 8), (double)n->parameters * 4, 0};
    char item[96];
    bytes[3] = bytes[0] + bytes[1] + bytes[2];
    for (int i = 0; i < 4; i++) {
        if (published[i] == NULL) continue;
        snprintf(item, sizeof item, "%s: %s, %s", name, parts[i], unit == mebi ? "MiB" : "10^6 bytes");
        figure(t, item, published[i], NULL, "%.2f", bytes[i] / unit);
    }
}

/* cs231n's table of VGG-16: values of each row. */
static void rows_of_vgg16(table *t, const fri_textbook *v) {
    static const int64_t rows[] = {150528, 3211264, 3211264, 802816, 1605632, 1605632, 401408, 802816,
                                   802816, 802816,  200704,  401408, 401408,  401408,  100352, 100352,
                                   100352, 100352,  25088,   4096,   4096,    1000};
    enum { ROWS = sizeof rows / sizeof *rows };
    int64_t sum = v->input;
    int equal = rows[0] == v->input, at = 1;
    for (int i = 0; i < v->n && at < ROWS; i++)
        if (strstr("Conv2d MaxPool2d Linear", v->kind[i]) != NULL) {
            equal += rows[at++] == v->values[i];
            sum += v->values[i];
        }
    figure(t, "cs231n, VGG-16: rows of the table that are right", "22", NULL, "%d", equal);
    figure(t, "cs231n, VGG-16: sum of the rows, 10^6 values", "24",
           "E: the rows add up to 15,237,608 values, not 24 million", "%.2f", (double)sum / mega);
    figure(t, "cs231n, VGG-16: the same in bytes", "93MB",
           "E: 4 bytes each are 60,950,432, or 58.13 MiB; 24 million would be 96 MB or 91.6 MiB", "%" PRId64, sum * 4);
    figure(t, "cs231n, VGG-16: parameters without biases", "138344128", NULL, "%" PRId64, v->parameters - v->biases);
}

static fr_status estimators(table *t) {
    fri_textbook vgg, resnet, deep, mnist, stat;
    fr_status s = FR_OK;
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_VGG16, &vgg));
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_RESNET50, &resnet));
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_RESNET152, &deep));
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_MNIST, &mnist));
    FR_TRY(s, fri_textbook_run(FRI_TEXTBOOK_TORCHSTAT, &stat));
    heading(t, "Estimators and textbooks");
    figure(t, "VGG-16: parameters", "138357544", NULL, "%" PRId64, vgg.parameters);
    estimate(t, "torchsummary, VGG-16", &vgg, 1, fri_textbook_sum(&vgg, NULL), mebi,
             (const char *const[]){"0.57", "218.59", "527.79", "746.96"});
    estimate(t, "torchsummary, MNIST net", &mnist, 1, fri_textbook_sum(&mnist, "Conv2d Dropout2d Linear"), mebi,
             (const char *const[]){"0.00", "0.06", "0.08", "0.15"});
    figure(t, "torchsummary, inputs (1, 16, 16) and (1, 28, 28): input, MiB", "0.77",
           "C: it multiplies the two sizes, 256 x 784, where it should add them: 4,160 bytes", "%.3f",
           (256 + 784) * 4 / mebi);
    estimate(t, "torchinfo, ResNet-50, 2 images", &resnet, 2, fri_textbook_sum(&resnet, "*"), mega,
             (const char *const[]){NULL, "355.66", "102.23", "459.10"});
    estimate(t, "torchinfo, ResNet-152, 1 image", &deep, 1, fri_textbook_sum(&deep, "*"), mega,
             (const char *const[]){NULL, "360.87", "240.77", "602.25"});
    figure(t, "torchinfo, ResNet-152: \"input size\", 10^3 bytes", "602.17",
           "D: 602,112 bytes are the image; 56 more are the header of its Python object", "%.2f",
           (double)(deep.input * 4) / 1000);
    estimate(t, "torchinfo, MNIST net, 7 images", &mnist, 7, fri_textbook_sum(&mnist, "*"), mega,
             (const char *const[]){"0.02", "0.40", "0.09", "0.51"});
    figure(t, "torchstat's example: conv1, MiB", "1.85", NULL, "%.2f", (double)stat.values[0] * 4 / mebi);
    figure(t, "torchstat's example: conv2, MiB", "0.86", NULL, "%.2f", (double)stat.values[3] * 4 / mebi);
    figure(t, "torchstat's example: total, MiB", "3.56", NULL, "%.2f",
           (double)fri_textbook_sum(&stat, "Conv2d Dropout2d Linear") * 4 / mebi);
    rows_of_vgg16(t, &vgg);
    figure(t, "ResNet-50: outputs of convolutions, 10^6 values an image (timm)", "11.11", NULL, "%.2f",
           (double)fri_textbook_sum(&resnet, "Conv2d") / mega);
    figure(t, "llm.c, GPT-2 XL: two layer norms, batch 32 of 1024, f16, bytes", "10066329600", NULL, "%" PRId64,
           (int64_t)2 * 48 * 32 * 1024 * 1600 * 2);
done:
    return s;
}

fr_status fri_textbook_print(FILE *out) {
    table t = {.out = out};
    fr_status s = FR_OK;
    FR_TRY(s, guide(&t));
    FR_TRY(s, tracker(&t));
    FR_TRY(s, estimators(&t));
    fprintf(out, "\n%d published figures are reproduced, %d are wrong (errata A to E), %d unexplained\n", t.right,
            t.wrong, t.unexpected);
    if (ferror(out)) s = fri_fail(FR_EIO, "--textbook: standard output cannot be written");
done:
    return s;
}
