/* gpu_model.c - how long a training step (224 px, AMP f16, SGD with momentum) takes on a GPU: a model, no measurement.
 *
 *     build/benchmarks/gpu_model NETWORK BATCH [--kept] [--device FILE]    the step as this tree makes it, by kernel
 *     build/benchmarks/gpu_model --table [FILE]    five networks, rebuilt and kept. Exit status 1 if FILE holds another
 *                                                  table
 *
 * NETWORK: resnet50, mobilenet_v2, densenet121, unet, vgg16. --kept: nothing is made again in backward, which is the
 * default on a GPU with room; casts of weights are kept, too. The constants are an H200's; FILE, a description of
 * another card (`gpu_first` writes it, FRUGAL_CUDA_DEVICE reads it), scales the copy's speed by the clock of its
 * memory, as if the bus was as wide, and the convolutions' rate by processors and their clock.
 *
 * A call takes  max(bytes / (share * copy), operations / (part * rate)) + launches * 1.2 us + fixed.  Convolutions and
 * layers have part and rate, own kernels a share alone. Fewer than 8 input channels cost as much as 8. Not in it: host,
 * loader, PCIe.
 *
 * Shares are estimates, but for a copy's and elementwise ones: no GPU has run most kernels since they were made anew. A
 * share rises by a measurement only, never with a kernel: so two tables of one file of constants show what the calls
 * save. */
#include <frugal/frugal.h>
#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/calls.h"
#include "meta/meta.h"
#include "ops/casts.h"

enum { MOST_CALLS = 4096, NAME = 40 };

/* ---- constants: NVIDIA H200, 132 processors -------------------------------------------------------------------- */

static double copy = 3.8e12; /* bytes per second of a copy of 51 MB, measured */
static double rate = 670e12; /* operations per second of cuDNN's convolutions, fitted to measured steps */
static const double launch = 1.2e-6, own_share = 0.97, conv_share = 0.75;
static const double processors = 132, clock_khz = 1980000, memory_khz = 3201000;

/* Exceptions to the rule: an own kernel moves a call's bytes once in a single launch, at own_share. */
static const struct {
    const char *name;
    double part;  /* of a convolution's rate; 0: an own kernel */
    double share; /* of a copy; 0: conv_share or own_share */
    double fixed; /* seconds that no bytes explain: what ends sums */
    int launches; /* 0: 1 */
} kernels[] = {
    {.name = "conv2d_forward", .part = 1},
    {.name = "conv2d_backward_input", .part = 0.9},
    {.name = "conv2d_backward_weight", .part = 0.75},
    {.name = "linear_forward", .part = 1},
    {.name = "linear_backward_input", .part = 1},
    {.name = "linear_backward_weight", .part = 1},
    {.name = "depthwise_forward", .share = 0.80},
    {.name = "depthwise_backward_input", .share = 0.78},
    {.name = "depthwise_backward_weight", .share = 0.70, .fixed = 3e-6},
    {.name = "batchnorm2d_stats", .share = 0.92, .fixed = 2.5e-6},
    {.name = "batchnorm2d_apply", .share = 0.95},
    {.name = "batchnorm2d_backward", .share = 0.93, .fixed = 2.5e-6, .launches = 2},
    {.name = "cross_entropy_forward", .share = 0.8, .fixed = 2e-6, .launches = 2},
    {.name = "cross_entropy_backward", .share = 0.8},
    {.name = "maxpool2d_forward", .share = 0.85},
    {.name = "maxpool2d_backward", .share = 0.8},
    {.name = "avgpool2d_forward", .share = 0.9},
    {.name = "avgpool2d_backward", .share = 0.85},
    {.name = "adaptive_avgpool2d_forward", .share = 0.8, .fixed = 2.5e-6},
    {.name = "adaptive_avgpool2d_backward", .share = 0.85},
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
    size_t kept; /* bytes that forward leaves for backward */
    int n;
    call call[MOST_CALLS];
} call_list;

/* Seconds and *launches of a call. */
static double seconds(const call *c, int *launches) {
    double flops = c->flops, share = own_share, part = 0, fixed = 0;
    const int listed = strcmp(c->name, "sgd") == 0 ? 56 : strcmp(c->name, "cast_list") == 0 ? 144 : 0; /* multi.cuh */
    *launches = listed > 0 ? (int)((c->dim[1] + listed - 1) / listed) : 1;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(c->name, kernels[i].name) != 0) continue;
        part = kernels[i].part, fixed = kernels[i].fixed;
        share = kernels[i].share > 0 ? kernels[i].share : part > 0 ? conv_share : own_share;
        if (kernels[i].launches > 0) *launches = kernels[i].launches;
    }
    if (strncmp(c->name, "conv2d", 6) == 0 && c->dim[3] < 8) flops *= 8 / (double)c->dim[3];
    return fmax(c->bytes / (share * copy), part > 0 ? flops / (part * rate) : 0) + *launches * launch + fixed;
}

typedef struct sum {
    double seconds, bytes;
    int64_t calls, launches;
} sum;

/* Sums of the calls of a kernel, or of all (NULL); bytes are those of own kernels. */
static sum sum_of(const call_list *l, const char *name) {
    sum all = {0};
    for (int i = 0; i < l->n; i++) {
        const call *c = &l->call[i];
        int launches;
        const double s = seconds(c, &launches);
        const bool library = strncmp(c->name, "conv2d", 6) == 0 || strncmp(c->name, "linear", 6) == 0;
        if (name != NULL && strcmp(c->name, name) != 0) continue;
        all.calls += c->times;
        all.launches += c->times * launches;
        all.seconds += (double)c->times * s;
        if (name != NULL || !library) all.bytes += (double)c->times * c->bytes;
    }
    return all;
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

enum { GROUPS = 13 }; /* the number of groups among a convolution's dimensions */

static void on_call(void *ctx, const fri_kernel_call *k) {
    call_list *l = ctx;
    call c = {.flops = k->flops, .bytes = k->bytes, .n = k->n, .times = 1};
    const bool depthwise = strncmp(k->name, "conv2d_", 7) == 0 && k->n > GROUPS && k->dim[3] > 1 &&
                           k->dim[GROUPS] == k->dim[3] && k->dim[4] == k->dim[3];
    snprintf(c.name, sizeof c.name, "%s%s", depthwise ? "depthwise_" : "", k->name + (depthwise ? 7 : 0));
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

static const struct {
    const char *word, *name;
    int64_t batch; /* of the table */
} networks[NETWORKS] = {{"resnet50", "ResNet-50", 256},
                        {"vgg16", "VGG-16", 64},
                        {"densenet121", "DenseNet-121", 64},
                        {"unet", "U-Net", 64},
                        {"mobilenet_v2", "MobileNetV2", 256}};

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

/* Returns the bytes of activations between forward and backward. */
static size_t step(fr_module *m, fr_optimizer *o, fr_grad_scaler *g, fri_casts *c, int64_t batch, bool pixels) {
    fr_memory_stats stats;
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL, *scaled = NULL;
    fr_step_scope scope;
    fr_autocast_state was;
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    must(fr_tensor_empty(4, (int64_t[]){batch, 224, 224, 3}, FR_U8, FR_META, &x), "images");
    must(fr_tensor_empty(pixels ? 3 : 1, (int64_t[]){batch, 224, 224}, FR_I64, FR_META, &target), "targets");
    must(fr_step_begin(&scope), "step");
    must(fr_images_normalize(x, mean, std, FR_F16, &x), "images");
    must(fr_autocast_begin(FR_F16, &was), "autocast");
    must(fri_casts_begin(c), "weights");
    must(fr_module_forward(m, x, &y), "forward");
    fr_tensor_release(&x);
    must(fr_cross_entropy(y, target, NULL, &loss), "loss");
    fr_tensor_release(&y);
    fr_tensor_release(&target);
    fri_casts_end(c);
    fr_autocast_end(was);
    must(fr_grad_scaler_scale(g, loss, &scaled), "scale");
    must(fr_memory_stats_get(FR_META, &stats), "memory");
    must(fr_backward(scaled, NULL), "backward");
    fr_tensor_release(&scaled);
    fr_tensor_release(&loss);
    must(fr_grad_scaler_step(g, o), "optimizer");
    must(fr_grad_scaler_update(g, NULL), "scale");
    fr_optimizer_zero_grad(o);
    must(fr_step_end(&scope), "step");
    return stats.requested_by[FR_MEM_ACTIVATION];
}

/* The second step, because the first makes the momentum. */
static void dry_run(network which, int64_t batch, bool kept, call_list *out) {
    const fr_switches was_set = fr_switches_get();
    fr_switches set = was_set;
    fr_module *m = network_make(which);
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    fri_casts casts = {0};
    const fri_backend *target = fri_meta_target_set(&scratchless);
    memset(out, 0, sizeof *out);
    out->images = batch;
    set.rebuild = !kept;
    set.cache_casts = kept;
    fr_switches_set(set);
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o), "optimizer");
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(), FR_META, &g), "scaler");
    (void)step(m, o, g, &casts, batch, which == UNET);
    fri_call_listener was = fri_meta_listen((fri_call_listener){on_call, out});
    out->kept = step(m, o, g, &casts, batch, which == UNET);
    fri_meta_listen(was);
    fr_switches_set(was_set);
    fri_meta_target_set(target);
    fri_casts_release(&casts);
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static void by_kernel(const call_list *l) {
    const sum all = sum_of(l, NULL);
    printf("| kernel | calls | launches | ms | GB |\n|---|---|---|---|---|\n");
    for (int i = 0; i < l->n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++) first = strcmp(l->call[k].name, l->call[i].name) != 0;
        if (!first) continue;
        const sum s = sum_of(l, l->call[i].name);
        printf("| %s | %" PRId64 " | %" PRId64 " | %.2f | %.2f |\n", l->call[i].name, s.calls, s.launches,
               1e3 * s.seconds, s.bytes / 1e9);
    }
    printf("| all, GB of own kernels | %" PRId64 " | %" PRId64 " | %.2f | %.2f |\n", all.calls, all.launches,
           1e3 * all.seconds, all.bytes / 1e9);
    printf("%.0f images/s; %zu bytes are kept for backward\n", (double)l->images / all.seconds, l->kept);
}

/* The numbers of a card in place of an H200's. */
static void read_device(const char *path) {
    char text[16384] = "";
    FILE *f = fopen(path, "r");
    if (f == NULL || fread(text, 1, sizeof text - 1, f) == 0) fail(path, "cannot be read");
    fclose(f);
    cJSON *card = cJSON_Parse(text);
    const double cores = cJSON_GetNumberValue(cJSON_GetObjectItem(card, "multiProcessorCount"));
    const double clock = cJSON_GetNumberValue(cJSON_GetObjectItem(card, "smClockRateKHz"));
    const double memory = cJSON_GetNumberValue(cJSON_GetObjectItem(card, "memClockRateKHz"));
    if (!(cores * clock * memory > 0)) fail(path, "holds no multiProcessorCount, smClockRateKHz and memClockRateKHz");
    rate *= cores * clock / (processors * clock_khz);
    copy *= memory / memory_khz;
    cJSON_Delete(card);
}

static int table(const char *path) {
    enum { LINE = 160 };
    static call_list l;
    char expected[LINE] = "", line[LINE];
    int wrong = 0;
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    if (path != NULL && f == NULL) fail(path, "no such file");
    for (int i = -2; i < 2 * (int)NETWORKS; i++) {
        if (i < 0) {
            snprintf(line, LINE,
                     i < -1 ? "| network, batch | memory | ms | launches | GB of own kernels | GB kept |\n"
                            : "|---|---|---|---|---|---|\n");
        } else {
            dry_run((network)(i / 2), networks[i / 2].batch, i % 2, &l);
            const sum all = sum_of(&l, NULL);
            snprintf(line, LINE, "| %s, %" PRId64 " | %s | %.2f | %" PRId64 " | %.2f | %.2f |\n", networks[i / 2].name,
                     l.images, i % 2 ? "kept" : "rebuilt", 1e3 * all.seconds, all.launches, all.bytes / 1e9,
                     (double)l.kept / 1e9);
        }
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
    int which = 0;
    bool kept = false;
    const int64_t batch = argc > 2 ? atoll(argv[2]) : 0;
    if (argc > 1 && strcmp(argv[1], "--table") == 0 && argc < 4) return table(argc == 3 ? argv[2] : NULL);
    while (argc > 1 && which < NETWORKS && strcmp(argv[1], networks[which].word) != 0) which++;
    bool wrong = argc < 3 || which == NETWORKS || batch < 1;
    for (int i = 3; i < argc && !wrong; i++) {
        if (strcmp(argv[i], "--kept") == 0)
            kept = true;
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            read_device(argv[++i]);
        else
            wrong = true;
    }
    if (wrong) {
        fprintf(stderr, "usage: gpu_model resnet50|mobilenet_v2|densenet121|unet|vgg16 BATCH [--kept] [--device FILE]\n"
                        "       gpu_model --table [FILE]\n");
        return 2;
    }
    dry_run((network)which, batch, kept, &l);
    by_kernel(&l);
    return 0;
}
