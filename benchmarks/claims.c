/* claims.c - see claims.h. Steps run on meta, with all switches off unless a claim names a switch; only emptying the
 * cache is timed. */
#include "claims.h"

#include "architecture.h"
#include "guide_nets.h"
#include "peak_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t top; /* channels of the next U-Net */

static fr_status hyper(const fr_model_opts *o, fr_module **m) {
    return guide_hyper_unet(top, o->image_size, o->device, m);
}

static const peak_net hyper_net = {"hyper", "U-Net with hypercolumns", 1024, 3, true, NULL, hyper};

static const peak_net *net_of(const char *name) {
    for (int i = 0; i < peak_nets_count; i++)
        if (strcmp(peak_nets[i].name, name) == 0) return &peak_nets[i];
    return &hyper_net;
}

static peak_result measure(const char *name, int64_t batch, int64_t side, bool amp) {
    peak_setting at = {.net = net_of(name), .device = FR_META, .batch = batch, .image_size = side};
    peak_case c = {.switches = fr_switches_all_off(), .how = PEAK_PLAIN, .amp = amp};
    peak_result r;
    peak_measure(&at, &c, &r);
    return r;
}

static void row(const char *claim, const char *ours, const char *command, const char *why) {
    printf("| %s | %s | `%s` | %s |\n", claim, ours, command, why);
}

static double part(size_t a, size_t b) {
    return 100 * (double)a / (double)b;
}

static void mixed_precision(void) {
    char text[160];
    double saved[3];
    static const int64_t batch[] = {64, 8, 2};
    for (int i = 0; i < 3; i++)
        saved[i] = 100 - part(measure("vgg16", batch[i], 224, true).peak, measure("vgg16", batch[i], 224, false).peak);
    snprintf(text, sizeof text, "VGG-16: %.0f %% at batch 64, %.0f %% at 8, %.0f %% at 2", saved[0], saved[1],
             saved[2]);
    row("mixed precision saves about 20 %", text, "build/benchmarks/peak_memory --model vgg16",
        "parameters, gradients and momentum stay f32: the share of activations decides, and with it the batch");
}

static void intermediates(void) {
    char text[160];
    peak_result v = measure("vgg16", 64, 224, false), r = measure("resnet50", 64, 224, false);
    snprintf(text, sizeof text, "VGG-16: %.0f %%, ResNet-50: %.0f %% of the peak at batch 64", part(v.saved, v.peak),
             part(r.saved, r.peak));
    row("intermediate results take nearly 90 %", text, "build/benchmarks/peak_memory --model resnet50",
        "VGG-16 has 138 million parameters beside them, each held three times");
}

static void empty_cache(void) {
    char text[160];
    struct timespec a, b;
    fr_tensor *t[64] = {NULL};
    for (int i = 0; i < 64; i++) peak_must(fr_tensor_zeros(1, (int64_t[]){2 << 20}, FR_F32, FR_CPU, &t[i]));
    for (int i = 0; i < 64; i++) fr_tensor_release(&t[i]);
    clock_gettime(CLOCK_MONOTONIC, &a);
    peak_must(fr_memory_empty_cache(FR_CPU));
    clock_gettime(CLOCK_MONOTONIC, &b);
    double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    snprintf(text, sizeof text, "512 MiB on the CPU: %.4f s", seconds);
    row("empty_cache costs 1 to 2 s", text, "build/benchmarks/textbook",
        "measured now; on a GPU each cudaFree waits for it, and the next step pays cudaMalloc again");
}

static void channels(void) {
    char text[160];
    top = HYPER_TOP;
    peak_result whole = measure("hyper", 1, 1024, false);
    top = HYPER_TOP / 2;
    peak_result half = measure("hyper", 1, 1024, false);
    snprintf(text, sizeof text, "U-Net, 1024 px: saved %zu -> %zu, %.0f %%; parameters %.0f %%", whole.saved,
             half.saved, part(half.saved, whole.saved), part(half.by[FR_MEM_PARAMETER], whole.by[FR_MEM_PARAMETER]));
    row("halve the channels, halve the memory", text, "build/benchmarks/guide_nets unet",
        "maps halve, weights quarter; the image, the hypercolumn and the outputs keep their size");
}

static void stride(void) {
    char text[160];
    size_t pooled = architecture_peak(64, false), strided = architecture_peak(64, true);
    snprintf(text, sizeof text, "VGG-16's convolutions: %zu -> %zu, %.0f %%", pooled, strided, part(strided, pooled));
    row("a stride instead of pooling", text, "build/benchmarks/peak_memory --architecture",
        "encoded, a pool keeps one byte per output and the relu before it nothing: little is left to save");
}

static void patches(void) {
    char text[160];
    peak_result r[3];
    top = HYPER_TOP;
    for (int i = 0; i < 3; i++) r[i] = measure("hyper", 1, 1024 >> i, false);
    snprintf(text, sizeof text, "U-Net, 1024, 512, 256 px: %zu, %zu, %zu", r[0].peak, r[1].peak, r[2].peak);
    row("smaller patches: a quarter for half the side", text, "build/benchmarks/guide_nets unet",
        "parameters, gradients and momentum stay");
}

/* The variance of n normal numbers is estimated with a relative deviation of sqrt(2 / (n - 1)). */
static void small_batches(void) {
    char text[160];
    double noise[2];
    for (int i = 0; i < 2; i++) noise[i] = 100 * sqrt(2.0 / ((i == 0 ? 8 : 2) * 49 - 1));
    snprintf(text, sizeof text,
             "ResNet-50's last norm, 7 x 7: its variance is off by %.1f %% at 8 images, %.1f %% at 2", noise[0],
             noise[1]);
    row("batch norm needs a batch of 8", text, "train_resnet --freeze bn1 --accumulate 4",
        "no border at 8: early norms see 100 times more values; frozen norms read none of the batch");
}

void claims_print(void) {
    printf("\nClaims of the guides, computed\n\n| claim | here | command | why it differs |\n|---|---|---|---|\n");
    mixed_precision();
    intermediates();
    empty_cache();
    channels();
    stride();
    patches();
    small_batches();
}
