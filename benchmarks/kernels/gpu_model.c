/* gpu_model.c - how long a training step of ResNet-50 (224 px, AMP f16, SGD) may take on an H100: a model, no
 * measurement.
 *
 *     build/benchmarks/gpu_model BATCH            the step as this tree makes it, by kernel, in the middle column
 *     build/benchmarks/gpu_model --calls BATCH    its calls from a dry run: times, kernel, type, operations, bytes,
 *                                                 dimensions; above them the number of images
 *     build/benchmarks/gpu_model FILE             the step of such a list, and this tree's beside it. Exit status 1 if
 *                                                 figures are not those that the file expects, or this tree's worse
 *     build/benchmarks/gpu_model --table [FILE]   launches and bytes of own kernels, step by step of five networks at
 *                                                 batch 256. Exit status 1 if FILE holds another table
 *
 * A call takes  max(bytes / (share * bandwidth), operations / (part * rate)) + launches * 1.2 us + chain.  The share
 * and the rate of convolutions differ by column; an own kernel's share is its row's. What ends the sums of a batch norm
 * takes turns over the chunks of rows, and each turn waits for its loads. Not in it: host, loader, PCIe.
 *
 * Two numbers are fitted to times that were estimated before this program was written: fewer than 8 input channels cost
 * as much as 8, and a chain ends 2.4 us later than its loads. */
#include <frugal/frugal.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/calls.h"
#include "meta/meta.h"

enum { COLUMNS = 3, MIDDLE = 1, MOST_CALLS = 4096, MOST_LISTED = 56 /* FRI_STEP_ITEMS */, NAME = 32 };

/* ---- constants ------------------------------------------------------------------------------------------------- */

static const char *const column_name[COLUMNS] = {"optimistic", "middle", "pessimistic"};
static const double rate[COLUMNS] = {600e12, 500e12, 400e12}, conv_share[COLUMNS] = {0.85, 0.75, 0.60};
static const double bandwidth = 3.0e12, launch = 1.2e-6, own_share = 0.88, chain_end = 2.4e-6;
/* cuda/columns.cuh: FRI_COLUMN_BLOCKS; chunks of a turn, FRI_ENDS_LOADS / 2 for each of 4 lanes; chunks of `chain` */
enum { CHUNKS_MOST = 384, TURN = 32, TURN_OF_CHAIN = 8, CHAIN_CHUNKS = 1024 };

/* Exceptions to the rule: an own kernel moves a call's bytes once in a single launch. */
static const struct {
    const char *name;
    double part;  /* of a convolution's rate; 0: an own kernel */
    double share; /* of the bandwidth; 0: own_share */
    double chain; /* seconds of turns for 1,024 chunks, 8 at a time */
    int launches; /* 0: 1 */
} kernels[] = {
    {.name = "conv2d_forward", .part = 1},
    {.name = "conv2d_backward_input", .part = 0.9},
    {.name = "conv2d_backward_weight", .part = 0.75},
    {.name = "linear_forward", .part = 1},
    {.name = "linear_backward_input", .part = 1},
    {.name = "linear_backward_weight", .part = 1},
    {.name = "batchnorm2d_stats", .share = 0.82, .chain = 66e-6},
    {.name = "batchnorm2d_backward", .chain = 23e-6, .launches = 2},
    /* Estimated: no GPU has run these since they were made anew. */
    {.name = "cross_entropy_forward", .share = 0.7, .launches = 2},
    {.name = "cross_entropy_backward", .share = 0.8},
    {.name = "maxpool2d_forward", .share = 0.85},
    {.name = "maxpool2d_backward", .share = 0.85},
    {.name = "avgpool2d_forward", .share = 0.85},
    {.name = "avgpool2d_backward", .share = 0.85},
    {.name = "adaptive_avgpool2d_forward", .share = 0.7},
};

/* ---- the model -------------------------------------------------------------------------------------------------- */

typedef struct call {
    char name[NAME], dtype[NAME];
    double flops, bytes;
    int n;
    int64_t dim[FRI_CALL_DIMS], times;
} call;

typedef struct call_list {
    int64_t images;
    int64_t expect[COLUMNS + 1]; /* images/s and launches */
    int n;
    call call[MOST_CALLS];
} call_list;

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Chunks of rows in half types, as in cuda/columns.cuh. */
static int64_t chunks_of(int64_t rows, int64_t c) {
    int64_t packs = c % 8 == 0 ? c / 8 : c, tx = 1;
    while (tx < packs && tx < 8) tx *= 2;
    int64_t most = CHUNKS_MOST / ceil_div(packs, tx), useful = ceil_div(rows, 256 / tx * 4);
    int64_t chunks = most < 1 ? 1 : most < useful ? most : useful;
    return ceil_div(rows, ceil_div(rows, chunks));
}

/* Seconds and *launches of a call. */
static double seconds(const call *c, int column, int *launches) {
    double flops = c->flops, bytes = c->bytes, share = own_share, part = 0, chain = 0;
    *launches = strcmp(c->name, "sgd") == 0 ? (int)ceil_div(c->dim[1], MOST_LISTED) : 1;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(c->name, kernels[i].name) != 0) continue;
        part = kernels[i].part;
        share = part > 0 ? conv_share[column] : kernels[i].share > 0 ? kernels[i].share : own_share;
        if (kernels[i].launches > 0) *launches = kernels[i].launches;
        if (kernels[i].chain > 0)
            chain = (double)ceil_div(chunks_of(c->dim[0], c->dim[1]), TURN) * TURN_OF_CHAIN / CHAIN_CHUNKS *
                        kernels[i].chain +
                    chain_end;
    }
    if (strncmp(c->name, "conv2d", 6) == 0 && part > 0 && c->dim[3] < 8) flops *= 8 / (double)c->dim[3];
    return fmax(bytes / (share * bandwidth), part > 0 ? flops / (part * rate[column]) : 0) + *launches * launch + chain;
}

static double step_seconds(const call_list *l, int column, int64_t *launches) {
    double sum = 0;
    *launches = 0;
    for (int i = 0; i < l->n; i++) {
        int own = 0;
        sum += (double)l->call[i].times * seconds(&l->call[i], column, &own);
        *launches += l->call[i].times * own;
    }
    return sum;
}

/* ---- lists of calls --------------------------------------------------------------------------------------------- */

static void fail(const char *what, const char *why) {
    fprintf(stderr, "gpu_model: %s: %s\n", what, why);
    exit(1);
}

static void must(fr_status s, const char *what) {
    if (s < 0) fail(what, fr_last_error());
}

static void append(call_list *l, const call *c) {
    if (l->n == MOST_CALLS) fail("calls", "more than 4096 kinds");
    l->call[l->n++] = *c;
}

static void on_call(void *ctx, const fri_kernel_call *k) {
    call_list *l = ctx;
    call c = {.flops = k->flops, .bytes = k->bytes, .n = k->n, .times = 1};
    snprintf(c.name, sizeof c.name, "%s", k->name);
    snprintf(c.dtype, sizeof c.dtype, "%s", fr_dtype_name(k->dtype));
    memcpy(c.dim, k->dim, (size_t)k->n * sizeof *k->dim);
    for (int i = 0; i < l->n; i++) {
        const call *o = &l->call[i];
        if (strcmp(o->name, c.name) != 0 || strcmp(o->dtype, c.dtype) != 0) continue;
        if (o->n != c.n || memcmp(o->dim, c.dim, sizeof c.dim) != 0) continue;
        l->call[i].times++;
        return;
    }
    append(l, &c);
}

/* ---- the step --------------------------------------------------------------------------------------------------- */

typedef enum network { RESNET50, VGG16, DENSENET121, UNET, MOBILENET_V2, NETWORKS } network;

static const char *const network_name[NETWORKS] = {"ResNet-50", "VGG-16", "DenseNet-121", "U-Net", "MobileNetV2"};

static fr_module *network_make(network which) {
    const fr_model_opts *o = FR_MODEL_OPTS(.device = FR_META, .classes = 1000);
    fr_module *m = NULL;
    if (which == RESNET50) must(fr_resnet(50, o, &m), "model");
    if (which == VGG16) must(fr_vgg(16, o, &m), "model");
    if (which == DENSENET121) must(fr_densenet(121, o, &m), "model");
    if (which == UNET) must(fr_unet(4, FR_MODEL_OPTS(.device = FR_META, .classes = 2), &m), "model");
    if (which == MOBILENET_V2) must(fr_mobilenet(2, o, &m), "model");
    return m;
}

/* A device with CUDA's convolutions that sum for batch norms (cuda/conv2d.c), without scratch. */
static fr_status no_scratch(const fri_conv2d_desc *d, size_t *bytes) {
    (void)d;
    *bytes = 0;
    return FR_OK;
}

static fr_status no_linear_scratch(const fri_linear_desc *d, size_t *bytes) {
    (void)d;
    *bytes = 0;
    return FR_OK;
}

static bool reads_parts(fr_dtype dtype, int64_t granule) {
    return granule > 0 && granule * (int64_t)fr_dtype_size(dtype) % 16 == 0;
}

static const fri_backend scratchless = {.name = "scratchless",
                                        .device = FR_CUDA,
                                        .kernels = {.conv2d_forward_workspace = no_scratch,
                                                    .conv2d_backward_input_workspace = no_scratch,
                                                    .conv2d_backward_weight_workspace = no_scratch,
                                                    .linear_forward_workspace = no_linear_scratch,
                                                    .linear_backward_input_workspace = no_linear_scratch,
                                                    .linear_backward_weight_workspace = no_linear_scratch,
                                                    .batchnorm2d_reads_parts = reads_parts}};

static void step(fr_module *m, fr_optimizer *o, fr_grad_scaler *g, int64_t batch, bool pixels) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL, *scaled = NULL;
    fr_step_scope scope;
    fr_autocast_state was;
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    must(fr_tensor_empty(4, (int64_t[]){batch, 224, 224, 3}, FR_U8, FR_META, &x), "images");
    must(fr_tensor_empty(pixels ? 3 : 1, (int64_t[]){batch, 224, 224}, FR_I64, FR_META, &target), "targets");
    must(fr_step_begin(&scope), "step");
    must(fr_images_normalize(x, mean, std, FR_F16, &x), "images");
    must(fr_autocast_begin(FR_F16, &was), "autocast");
    must(fr_module_forward(m, x, &y), "forward");
    fr_tensor_release(&x);
    must(fr_cross_entropy(y, target, NULL, &loss), "loss");
    fr_tensor_release(&y);
    fr_tensor_release(&target);
    fr_autocast_end(was);
    must(fr_grad_scaler_scale(g, loss, &scaled), "scale");
    must(fr_backward(scaled, NULL), "backward");
    fr_tensor_release(&scaled);
    fr_tensor_release(&loss);
    must(fr_grad_scaler_step(g, o), "optimizer");
    must(fr_grad_scaler_update(g, NULL), "scale");
    fr_optimizer_zero_grad(o);
    must(fr_step_end(&scope), "step");
}

/* The second step, because the first makes the momentum. */
static void dry_run(network which, int64_t batch, call_list *out) {
    fr_module *m = network_make(which);
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    const fri_backend *target = fri_meta_target_set(&scratchless);
    memset(out, 0, sizeof *out);
    out->images = batch;
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o), "optimizer");
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(), FR_META, &g), "scaler");
    step(m, o, g, batch, which == UNET);
    fri_call_listener was = fri_meta_listen((fri_call_listener){on_call, out});
    step(m, o, g, batch, which == UNET);
    fri_meta_listen(was);
    fri_meta_target_set(target);
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

static void write_list(const call_list *l) {
    printf("images %" PRId64 "\n", l->images);
    for (int i = 0; i < l->n; i++) {
        const call *c = &l->call[i];
        printf("%" PRId64 " %s %s %.17g %.17g", c->times, c->name, c->dtype, c->flops, c->bytes);
        for (int k = 0; k < c->n; k++) printf(" %" PRId64, c->dim[k]);
        printf("\n");
    }
}

static void read_call(const char *line, call_list *l) {
    call c = {0};
    int at = 0, used = 0;
    if (sscanf(line, "%" SCNd64 " %31s %31s %lf %lf%n", &c.times, c.name, c.dtype, &c.flops, &c.bytes, &at) != 5)
        fail("not a call", line);
    for (; c.n < FRI_CALL_DIMS && sscanf(line + at, "%" SCNd64 "%n", &c.dim[c.n], &used) == 1; c.n++) at += used;
    append(l, &c);
}

static bool read_expect(const char *line, const char *word, int64_t e[COLUMNS + 1]) {
    size_t n = strlen(word);
    return strncmp(line, word, n) == 0 && sscanf(line + n, "%" SCNd64 "%" SCNd64 "%" SCNd64 "%" SCNd64, &e[0], &e[1],
                                                 &e[2], &e[COLUMNS]) == COLUMNS + 1;
}

static void read_list(const char *path, call_list *out) {
    char line[512];
    FILE *f = fopen(path, "r");
    memset(out, 0, sizeof *out);
    if (f == NULL) fail(path, "no such file");
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] == '#') continue;
        if (sscanf(line, "images %" SCNd64, &out->images) == 1) continue;
        if (read_expect(line, "expect", out->expect)) continue;
        read_call(line, out);
    }
    fclose(f);
    if (out->images < 1 || out->n == 0) fail(path, "expected a line 'images N', and calls");
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* Images per second, rounded to tens, and launches. */
static void row(const char *what, const call_list *l, int64_t out[COLUMNS + 1]) {
    double ms = 0;
    for (int i = 0; i < COLUMNS; i++) {
        double s = step_seconds(l, i, &out[COLUMNS]);
        out[i] = 10 * llround((double)l->images / s / 10);
        if (i == MIDDLE) ms = 1e3 * s;
    }
    printf("| %s | %" PRId64 " | %.1f | %" PRId64 " / %" PRId64 " / %" PRId64 " | %" PRId64 " |\n", what, l->images, ms,
           out[0], out[MIDDLE], out[2], out[COLUMNS]);
}

static void head(void) {
    printf("| step | batch | ms | images/s %s / %s / %s | launches |\n|---|---|---|---|---|\n", column_name[0],
           column_name[1], column_name[2]);
}

static void by_kernel(const call_list *l) {
    printf("\n| kernel | calls | ms |\n|---|---|---|\n");
    for (int i = 0; i < l->n; i++) {
        double sum = 0;
        int64_t times = 0;
        bool first = true;
        for (int k = 0; k < l->n; k++) {
            int launches;
            if (strcmp(l->call[k].name, l->call[i].name) != 0) continue;
            if (k < i) first = false;
            times += l->call[k].times;
            sum += (double)l->call[k].times * seconds(&l->call[k], MIDDLE, &launches);
        }
        if (first) printf("| %s | %" PRId64 " | %.2f |\n", l->call[i].name, times, 1e3 * sum);
    }
}

/* Work of a step in every tree: the operations of convolutions, and the bytes of the optimizer. */
static double work(const call_list *l) {
    double sum = 0;
    for (int i = 0; i < l->n; i++) {
        const call *c = &l->call[i];
        sum += (double)c->times * (strncmp(c->name, "conv2d", 6) == 0 ? c->flops : 0);
        sum += (double)c->times * (strcmp(c->name, "sgd") == 0 ? c->bytes : 0);
    }
    return sum;
}

/* 1 if a figure differs from the expected, or, with `more`, is worse than the expected. */
static int differs(const int64_t expect[COLUMNS + 1], const int64_t got[COLUMNS + 1], bool more) {
    int wrong = 0;
    for (int i = 0; i <= COLUMNS && expect[0] > 0; i++) {
        bool same = got[i] == expect[i], better = i < COLUMNS ? got[i] > expect[i] : got[i] < expect[i];
        if (same || (more && better)) continue;
        printf("%s: %s%" PRId64 " expected, found %" PRId64 "\n", i < COLUMNS ? column_name[i] : "launches",
               !more         ? ""
               : i < COLUMNS ? "at least "
                             : "at most ",
               expect[i], got[i]);
        wrong = 1;
    }
    return wrong;
}

static int compare(const char *path) {
    static call_list list[2];
    int64_t got[COLUMNS + 1];
    int wrong = 0;
    read_list(path, &list[0]);
    dry_run(RESNET50, list[0].images, &list[1]);
    head();
    for (int tree = 0; tree < 2; tree++) {
        row(tree ? "of this tree" : "of the file", &list[tree], got);
        wrong |= differs(list[0].expect, got, tree);
    }
    double expected = work(&list[0]), found = work(&list[1]);
    if (expected == found) return wrong;
    printf("operations of convolutions and bytes of the optimizer: %.0f expected, this tree has %.0f\n", expected,
           found);
    return 1;
}

/* Launches of a step, and gigabytes of own kernels. */
static double own_gigabytes(const call_list *l, int64_t *launches) {
    double sum = 0;
    (void)step_seconds(l, MIDDLE, launches);
    for (int i = 0; i < l->n; i++) {
        bool library = false;
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
            if (strcmp(l->call[i].name, kernels[k].name) == 0) library = kernels[k].part > 0;
        if (!library) sum += (double)l->call[i].times * l->call[i].bytes;
    }
    return sum / 1e9;
}

static int table(const char *path) {
    enum { LINE = 128, BATCH = 256 };
    static call_list l;
    char expected[LINE] = "", line[LINE];
    int wrong = 0;
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    if (path != NULL && f == NULL) fail(path, "no such file");
    for (int i = -2; i < (int)NETWORKS; i++) {
        int64_t launches = 0;
        double moved = 0;
        if (i >= 0) {
            dry_run((network)i, BATCH, &l);
            moved = own_gigabytes(&l, &launches);
        }
        if (i < 0)
            snprintf(line, LINE, i < -1 ? "| batch 256 | launches | GB |\n" : "|---|---|---|\n");
        else
            snprintf(line, LINE, "| %s | %" PRId64 " | %.2f |\n", network_name[i], launches, moved);
        printf("%s", line);
        if (f == NULL || (fgets(expected, LINE, f) != NULL && strcmp(expected, line) == 0)) continue;
        printf("expected: %s\n", expected);
        wrong = 1;
    }
    if (f != NULL) fclose(f);
    return wrong;
}

int main(int argc, char **argv) {
    static call_list l;
    const char *last = argc > 1 ? argv[argc - 1] : "";
    if (argc > 1 && strcmp(argv[1], "--table") == 0 && argc < 4) return table(argc == 3 ? argv[2] : NULL);
    bool calls = argc == 3 && strcmp(argv[1], "--calls") == 0;
    int64_t batch = atoll(last), ignored[COLUMNS + 1];
    if ((argc != 2 && !calls) || (calls && batch < 1)) {
        fprintf(stderr, "usage: gpu_model BATCH | --calls BATCH | FILE | --table [FILE]\n");
        return 2;
    }
    if (batch < 1) return compare(last);
    dry_run(RESNET50, batch, &l);
    if (calls) {
        write_list(&l);
        return 0;
    }
    head();
    row("of this tree", &l, ignored);
    by_kernel(&l);
    return 0;
}
