/* textbook.c - published figures of tools and guides, from first principles.
 *
 *     build/benchmarks/textbook
 *
 * Each line computes a figure from shapes alone (the networks run on meta), writes it as its source does, and compares
 * the texts. Seven published figures are wrong (errata A to E); the right value stands beside them with the reason.
 * Exit status 1: a figure is neither reproduced nor known to be wrong, or could not be computed. */
#include "claims.h"

#include <frugal/frugal.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- networks ---------------------------------------------------------------------------------------------- */

typedef enum network {
    GUIDE, /* conv 3-64, relu, conv 64-64, relu, pool 2, conv 64-128; padding 1; images of 682 x 700 */
    VGG16,
    VGG19,
    RESNET50,
    RESNET152,
    MNIST,    /* PyTorch's old example: conv 1-10 5x5, pool, conv 10-20 5x5, dropout, pool, 320-50-10 */
    TORCHSTAT /* likewise on 3 x 224 x 224: 56180-50-10 */
} network;

enum { LAYERS = 600 };

/* An image's way through the layers. */
typedef struct values {
    int64_t input;
    int64_t parameters, biases; /* elements; biases: of rank 1, batch norm's too */
    int n;                      /* layers in the order of their end, a network after the parts */
    fr_summary_layer layer[LAYERS];
} values;

static fr_value conv(fr_net *n, fr_value x, int64_t out, int64_t kernel, int64_t padding) {
    return fr_net_conv2d(n, NULL, x, out, kernel, FR_CONV2D_OPTS(.padding = padding), FR_BIAS);
}

static fr_value guide_layers(fr_net *n, fr_value x) {
    x = fr_net_relu(n, NULL, conv(n, x, 64, 3, 1));
    x = fr_net_relu(n, NULL, conv(n, x, 64, 3, 1));
    x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
    return conv(n, x, 128, 3, 1);
}

static fr_value small(fr_net *n, fr_value x) {
    x = fr_net_maxpool2d(n, NULL, conv(n, x, 10, 5, 0), 2, NULL);
    x = conv(n, fr_net_relu(n, NULL, x), 20, 5, 0);
    x = fr_net_maxpool2d(n, NULL, fr_net_dropout2d(n, NULL, x, 0.5), 2, NULL);
    x = fr_net_flatten(n, NULL, fr_net_relu(n, NULL, x), 1);
    x = fr_net_linear(n, NULL, x, 50, FR_BIAS);
    return fr_net_linear(n, NULL, fr_net_relu(n, NULL, x), 10, FR_BIAS);
}

static fr_status build(network net, int64_t input[3], fr_module **m) {
    const fr_model_opts *o = FR_MODEL_OPTS(.device = FR_META);
    memcpy(input, (int64_t[]){224, 224, 3}, 3 * sizeof *input);
    if (net == VGG16 || net == VGG19) return fr_vgg(net == VGG16 ? 16 : 19, o, m);
    if (net == RESNET50 || net == RESNET152) return fr_resnet(net == RESNET50 ? 50 : 152, o, m);
    if (net != TORCHSTAT)
        memcpy(input, net == GUIDE ? (int64_t[]){682, 700, 3} : (int64_t[]){28, 28, 1}, 3 * sizeof *input);
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, input[0], input[1], input[2]});
    x = net == GUIDE ? guide_layers(n, x) : small(n, x);
    return fr_net_end(&n, &x, 1, m);
}

/* ---- counting ---------------------------------------------------------------------------------------------- */

static fr_status count(void *ctx, const char *path, fr_tensor *p, bool is_parameter) {
    values *v = ctx;
    (void)path;
    if (!is_parameter) return FR_OK;
    v->parameters += fr_tensor_numel(p);
    if (fr_tensor_rank(p) == 1) v->biases += fr_tensor_numel(p);
    return FR_OK;
}

static fr_status run(network net, values *out) {
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    fr_summary *summary = NULL;
    fr_step_scope step;
    int64_t input[3] = {0};
    fr_status s = FR_OK;
    *out = (values){0};
    FR_TRY(s, build(net, input, &m));
    out->input = input[0] * input[1] * input[2];
    FR_TRY(s, fr_module_each_tensor(m, count, out));
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){1, input[0], input[1], input[2]}, FR_F32, FR_META, &x));
    FR_TRY(s, fr_summary_begin(FR_META, &summary));
    FR_TRY(s, fr_step_begin(&step));
    FR_TRY(s, fr_module_forward(m, x, &x));
    FR_TRY(s, fr_mean(x, &x));
    FR_TRY(s, fr_backward(x, NULL));
    FR_TRY(s, fr_step_end(&step));
    FR_TRY(s, fr_summary_end(summary));
    while (out->n < LAYERS && out->n < fr_summary_layers(summary)) {
        FR_TRY(s, fr_summary_layer_get(summary, out->n, &out->layer[out->n]));
        out->n++;
    }
done:
    fr_summary_release(&summary);
    fr_tensor_release(&x);
    fr_module_release(&m);
    return s;
}

static int64_t elements(const fr_summary_layer *l) {
    int64_t product = 1;
    for (int i = 0; i < l->rank; i++) product *= l->shape[i];
    return product;
}

/* Sum of the layers' results over the kinds named ("Conv2d ReLU"), or NULL: all layers with parameters. */
static int64_t sum_of(const values *v, const char *kinds) {
    int64_t sum = 0;
    for (int i = 0; i < v->n; i++) {
        const fr_summary_layer *l = &v->layer[i];
        if (kinds != NULL ? strstr(kinds, l->kind) != NULL : l->parameters > 0) sum += elements(l);
    }
    return sum;
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

static const double mega = 1e6, mebi = 1048576;
static const char every_layer[] = "Conv2d ReLU MaxPool2d Dropout Dropout2d Linear";

typedef struct table {
    int right, wrong, unexpected;
} table;

/* why NULL: the figure is right, to the printed digits; else the reason of the error. */
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
    printf("  %-66s %16s %16s  %s\n", item, published, computed, verdict);
    if (why != NULL) printf("      erratum %s\n", why);
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

static void heading(const char *text) {
    printf("\n%-68s %16s %16s\n", text, "published", "computed");
}

/* ---- memory of a small model ---------------------------------------------------------------------------------- */

static fr_status guide(table *t) {
    values g;
    fr_status s = run(GUIDE, &g);
    if (s < 0) return s;
    heading("A guide's model: conv 3-64, relu, conv 64-64, relu, pool, conv 64-128");
    figure(t, "parameters, elements: weights + biases", "112576", NULL, "%" PRId64, g.parameters);
    figure(t, "parameters, 10^6 bytes", "0.450304", NULL, "%.6f", (double)g.parameters * 4 / mega);
    /* The post gives no image size with the sum; its tracker log shows (1, 3, 682, 700). */
    int64_t maps = sum_of(&g, "Conv2d MaxPool2d");
    figure(t, "maps of one 682 x 700 image, bytes, relu in place", "336089600", NULL, "%" PRId64, maps * 4);
    figure(t, "the same with backward (twice)", "672179200", NULL, "%" PRId64, maps * 8);
    figure(t, "relu not in place (derived)", "580518400", NULL, "%" PRId64, sum_of(&g, every_layer) * 4);
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

enum { MEGABYTES_TEXT = 7 };

/* "66.060", "0.004": bytes / 10^6 without trailing zeros, cut off. */
static const char *megabytes(int64_t bytes, char text[MEGABYTES_TEXT]) {
    char all[40];
    snprintf(all, sizeof all, "%f", (double)bytes / mega);
    char *end = all + strlen(all) - 1;
    while (*end == '0' && end[-1] != '.') *end-- = '\0';
    snprintf(text, MEGABYTES_TEXT, "%.6s", all);
    return text;
}

static void print_tracker_lines(table *t) {
    char text[MEGABYTES_TEXT], item[96];
    heading("Lines of a memory tracker: count * shape, f32, 10^6 bytes cut off");
    for (size_t i = 0; i < sizeof tracker_lines / sizeof *tracker_lines; i++) {
        const tracker_line *l = &tracker_lines[i];
        int64_t bytes = l->count * 4;
        int at = snprintf(item, sizeof item, "%" PRId64 " * (", l->count);
        for (int k = 0; k < l->rank; k++) {
            bytes *= l->dim[k];
            at += snprintf(item + at, sizeof item - (size_t)at, "%s%" PRId64, k > 0 ? ", " : "", l->dim[k]);
        }
        snprintf(item + at, sizeof item - (size_t)at, l->rank == 1 ? ",)" : ")");
        line(t, item, l->published, NULL, megabytes(bytes, text));
    }
}

/* Two totals of a log, 10^6 bytes, each rounded to a digit: the difference is right within 0.1. */
static void difference(table *t, const char *what, double before, double after, int64_t bytes) {
    char item[96], published[32], computed[32];
    double off = after - before - (double)bytes / mega;
    snprintf(item, sizeof item, "%s: %.1f to %.1f", what, before, after);
    snprintf(published, sizeof published, "%.1f", after - before);
    snprintf(computed, sizeof computed, "%.5f", (double)bytes / mega);
    bool right = off > -0.1 && off < 0.1;
    *(right ? &t->right : &t->unexpected) += 1;
    printf("  %-66s %16s %16s  %s\n", item, published, computed, right ? "equal, rounded" : "DIFFERS");
}

static fr_status tracker(table *t) {
    values vgg16, vgg19;
    char text[MEGABYTES_TEXT];
    const int64_t image = 3 * 512 * 512 * 4;
    fr_status s = FR_OK;
    FR_TRY(s, run(VGG16, &vgg16));
    FR_TRY(s, run(VGG19, &vgg19));
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
         megabytes(12, text));
    figure(t, "an int16 element in today's tracker, bytes: 16 / 6", "2.67", "B: 16 bits are 2 bytes", "%.2f",
           (double)fr_dtype_size(FR_I16));
done:
    return s;
}

/* ---- estimators and textbooks --------------------------------------------------------------------------------- */

static void estimate(table *t, const char *name, const values *n, int64_t batch, int64_t outputs, double unit,
                     const char *const published[4]) {
    static const char *const parts[4] = {"input", "outputs twice", "parameters", "total"};
    double bytes[4] = {(double)(batch * n->input * 4), (double)(batch * outputs * 8), (double)n->parameters * 4, 0};
    char item[96];
    bytes[3] = bytes[0] + bytes[1] + bytes[2];
    for (int i = 0; i < 4; i++) {
        if (published[i] == NULL) continue;
        snprintf(item, sizeof item, "%s: %s, %s", name, parts[i], unit == mebi ? "MiB" : "10^6 bytes");
        figure(t, item, published[i], NULL, "%.2f", bytes[i] / unit);
    }
}

/* cs231n's table of VGG-16: values of each row. */
static void rows_of_vgg16(table *t, const values *v) {
    static const int64_t rows[] = {150528, 3211264, 3211264, 802816, 1605632, 1605632, 401408, 802816,
                                   802816, 802816,  200704,  401408, 401408,  401408,  100352, 100352,
                                   100352, 100352,  25088,   4096,   4096,    1000};
    enum { ROWS = sizeof rows / sizeof *rows };
    int64_t sum = v->input;
    int equal = rows[0] == v->input, at = 1;
    for (int i = 0; i < v->n && at < ROWS; i++)
        if (strstr("Conv2d MaxPool2d Linear", v->layer[i].kind) != NULL) {
            equal += rows[at++] == elements(&v->layer[i]);
            sum += elements(&v->layer[i]);
        }
    figure(t, "cs231n, VGG-16: rows of the table that are right", "22", NULL, "%d", equal);
    figure(t, "cs231n, VGG-16: sum of the rows, 10^6 values", "24",
           "E: the rows add up to 15,237,608 values, not 24 million", "%.2f", (double)sum / mega);
    figure(t, "cs231n, VGG-16: the same in bytes", "93MB",
           "E: 4 bytes each are 60,950,432, or 58.13 MiB; 24 million would be 96 MB or 91.6 MiB", "%" PRId64, sum * 4);
    figure(t, "cs231n, VGG-16: parameters without biases", "138344128", NULL, "%" PRId64, v->parameters - v->biases);
}

static fr_status estimators(table *t) {
    values vgg, resnet, deep, mnist, stat;
    fr_status s = FR_OK;
    FR_TRY(s, run(VGG16, &vgg));
    FR_TRY(s, run(RESNET50, &resnet));
    FR_TRY(s, run(RESNET152, &deep));
    FR_TRY(s, run(MNIST, &mnist));
    FR_TRY(s, run(TORCHSTAT, &stat));
    heading("Estimators and textbooks");
    figure(t, "VGG-16: parameters", "138357544", NULL, "%" PRId64, vgg.parameters);
    estimate(t, "torchsummary, VGG-16", &vgg, 1, sum_of(&vgg, every_layer), mebi,
             (const char *const[]){"0.57", "218.59", "527.79", "746.96"});
    estimate(t, "torchsummary, MNIST net", &mnist, 1, sum_of(&mnist, "Conv2d Dropout2d Linear"), mebi,
             (const char *const[]){"0.00", "0.06", "0.08", "0.15"});
    figure(t, "torchsummary, inputs (1, 16, 16) and (1, 28, 28): input, MiB", "0.77",
           "C: it multiplies the two sizes, 256 x 784, where it should add them: 4,160 bytes", "%.3f",
           (256 + 784) * 4 / mebi);
    estimate(t, "torchinfo, ResNet-50, 2 images", &resnet, 2, sum_of(&resnet, NULL), mega,
             (const char *const[]){NULL, "355.66", "102.23", "459.10"});
    estimate(t, "torchinfo, ResNet-152, 1 image", &deep, 1, sum_of(&deep, NULL), mega,
             (const char *const[]){NULL, "360.87", "240.77", "602.25"});
    figure(t, "torchinfo, ResNet-152: \"input size\", 10^3 bytes", "602.17",
           "D: 602,112 bytes are the image; 56 more are the header of its Python object", "%.2f",
           (double)(deep.input * 4) / 1000);
    estimate(t, "torchinfo, MNIST net, 7 images", &mnist, 7, sum_of(&mnist, NULL), mega,
             (const char *const[]){"0.02", "0.40", "0.09", "0.51"});
    figure(t, "torchstat's example: conv1, MiB", "1.85", NULL, "%.2f", (double)elements(&stat.layer[0]) * 4 / mebi);
    figure(t, "torchstat's example: conv2, MiB", "0.86", NULL, "%.2f", (double)elements(&stat.layer[3]) * 4 / mebi);
    figure(t, "torchstat's example: total, MiB", "3.56", NULL, "%.2f",
           (double)sum_of(&stat, "Conv2d Dropout2d Linear") * 4 / mebi);
    rows_of_vgg16(t, &vgg);
    figure(t, "ResNet-50: outputs of convolutions, 10^6 values an image (timm)", "11.11", NULL, "%.2f",
           (double)sum_of(&resnet, "Conv2d") / mega);
    figure(t, "llm.c, GPT-2 XL: two layer norms, batch 32 of 1024, f16, bytes", "10066329600", NULL, "%" PRId64,
           (int64_t)2 * 48 * 32 * 1024 * 1600 * 2);
done:
    return s;
}

int main(void) {
    table t = {0};
    fr_status s = FR_OK;
    FR_TRY(s, guide(&t));
    FR_TRY(s, tracker(&t));
    FR_TRY(s, estimators(&t));
    claims_print();
    printf("\n%d published figures are reproduced, %d are wrong (errata A to E), %d unexplained\n", t.right, t.wrong,
           t.unexpected);
done:
    if (s < 0) fprintf(stderr, "textbook: %s\n", fr_last_error());
    return s < 0 || t.unexpected > 0 || fflush(stdout) != 0;
}
