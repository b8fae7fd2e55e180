/* guide_nets.c - memory of the guides' networks, technique by technique, in bytes.
 *
 *     build/benchmarks/guide_nets [unet | vgg19 | chain]          (default: all)
 *
 * On addresses without memory (FR_META). A step is forward, backward and SGD with momentum; peak and saved are
 * requested bytes, each allocation rounded up to 512. */
#include "guide_nets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1024, CHAIN = 1000, CHAIN_BATCH = 64 };

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "guide_nets: %s\n", fr_last_error());
    exit(1);
}

enum how { PLAIN = -1, HALVES = -2 };

typedef struct measured {
    size_t peak, saved; /* saved: activations when backward begins */
} measured;

static fr_status forward(fr_module *m, int how, fr_tensor *x, fr_tensor **y) {
    if (how == PLAIN) return fr_module_forward(m, x, y);
    if (how >= 0) return fr_checkpoint_segments(m, (fr_segmentation)how, 2, NULL, x, y);
    int units = fr_module_units(m, NULL, 0);
    const fr_unit_range halves[] = {{0, units / 2}, {units / 2, units}};
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = units, .ranges = 2, .range = halves}, x, y);
}

static measured step(fr_module *m, fr_switches switches, int how, bool amp, int rank, const int64_t *shape) {
    fr_optimizer *o = NULL;
    fr_autocast_state was = {0};
    fr_memory_stats t;
    measured r = {0};
    fr_switches_set(switches);
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
    for (int i = 0; i < 2; i++) {
        fr_tensor *x = NULL, *loss = NULL;
        must(fr_memory_reset_peak(FR_META));
        must(fr_tensor_empty(rank, shape, FR_F32, FR_META, &x));
        fr_tensor_category_set(x, FR_MEM_INPUT);
        if (amp) must(fr_autocast_begin(FR_F16, &was));
        must(forward(m, how, x, &x));
        if (amp) fr_autocast_end(was);
        must(fr_mean(x, &loss));
        fr_tensor_release(&x);
        must(fr_memory_stats_get(FR_META, &t));
        r.saved = t.requested_by[FR_MEM_ACTIVATION];
        must(fr_backward(loss, NULL));
        fr_tensor_release(&loss);
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        must(fr_memory_stats_get(FR_META, &t));
        r.peak = t.peak_requested;
    }
    fr_optimizer_release(&o);
    return r;
}

static const struct technique {
    const char *name;
    bool off, inplace, encode, rebuild, early_release, amp;
    int how;
} techniques[] = {
    {"all off, as PyTorch", .off = true, .how = PLAIN},
    {"in-place", .off = true, .inplace = true, .how = PLAIN},
    {"encode", .off = true, .encode = true, .how = PLAIN},
    {"rebuild", .off = true, .rebuild = true, .how = PLAIN},
    {"early release", .off = true, .early_release = true, .how = PLAIN},
    {"mixed precision", .off = true, .amp = true, .how = PLAIN},
    {"defaults", .how = PLAIN},
    {"defaults, mixed precision", .amp = true, .how = PLAIN},
    {"defaults, checkpoint in two", .how = FR_SEGMENTS_COUNT},
    {"defaults, checkpoint sqrt", .how = FR_SEGMENTS_SQRT},
    {"defaults, checkpoint log", .how = FR_SEGMENTS_LOG},
    {"defaults, checkpoint log, mixed precision", .amp = true, .how = FR_SEGMENTS_LOG},
};

static measured apply(fr_module *m, const struct technique *k, int rank, const int64_t *shape) {
    fr_switches on = k->off ? fr_switches_all_off() : fr_switches_default();
    on.inplace |= k->inplace;
    on.encode |= k->encode;
    on.rebuild |= k->rebuild;
    on.early_release |= k->early_release;
    return step(m, on, k->how, k->amp, rank, shape);
}

static void unet(void) {
    fr_module *m = NULL;
    must(guide_hyper_unet(HYPER_TOP, SIDE, FR_META, &m));
    printf("U-Net with center branch and hypercolumns, three outputs, 1 image of %d x %d, f32\n\n"
           "| technique | peak | saved for backward |\n|---|---|---|\n",
           SIDE, SIDE);
    for (size_t i = 0; i < sizeof techniques / sizeof *techniques; i++) {
        measured r = apply(m, &techniques[i], 4, (int64_t[]){1, SIDE, SIDE, 3});
        printf("| unet, %s | %zu | %zu |\n", techniques[i].name, r.peak, r.saved);
    }
    fr_module_release(&m);
}

static void vgg19(void) {
    fr_module *m = NULL;
    fr_tensor *x = NULL, *y[4] = {NULL};
    printf("\nVGG-19 at relu_1, 3, 5, 9 in eval, 8 images of 224 x 224, f32\n\n"
           "| mode | peak | alive behind it |\n|---|---|---|\n");
    must(guide_vgg19_features(224, FR_META, &m));
    fr_module_train(m, false);
    must(fr_tensor_empty(4, (int64_t[]){8, 224, 224, 3}, FR_F32, FR_META, &x));
    for (int mode = 0; mode < 4; mode++) {
        fr_memory_stats t;
        fr_switches_set(mode < 2 ? fr_switches_all_off() : fr_switches_default());
        bool was = mode % 2 == 0 ? false : fr_no_grad_begin();
        must(fr_memory_reset_peak(FR_META));
        must(fr_module_forward_n(m, &x, 1, y, 4));
        must(fr_memory_stats_get(FR_META, &t));
        if (mode % 2 == 1) fr_no_grad_end(was);
        printf("| vgg19, %s, %s | %zu | %zu |\n", mode < 2 ? "all off" : "defaults",
               mode % 2 == 0 ? "with grad" : "no_grad", t.peak_requested, t.requested);
        for (int i = 0; i < 4; i++) fr_tensor_release(&y[i]);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
}

static void chain(void) {
    static const struct {
        const char *name;
        int how;
    } ways[] = {{"plain", PLAIN},
                {"checkpoint in two halves", HALVES},
                {"checkpoint sqrt", FR_SEGMENTS_SQRT},
                {"checkpoint log", FR_SEGMENTS_LOG}};
    fr_module *m = NULL;
    must(guide_chain(CHAIN, FR_META, &m));
    printf("\n%d layers of Linear(10, 10), batch %d, f32\n\n| way | peak | saved for backward |\n|---|---|---|\n",
           CHAIN, CHAIN_BATCH);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        measured r = step(m, fr_switches_default(), ways[i].how, false, 2, (int64_t[]){CHAIN_BATCH, 10});
        printf("| chain, %s | %zu | %zu |\n", ways[i].name, r.peak, r.saved);
    }
    fr_module_release(&m);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*print)(void);
    } all[] = {{"unet", unet}, {"vgg19", vgg19}, {"chain", chain}};
    bool any = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc < 2 || strcmp(argv[1], all[i].name) == 0) {
            all[i].print();
            any = true;
        }
    if (!any) fprintf(stderr, "usage: guide_nets [unet | vgg19 | chain]\n");
    return any ? 0 : 2;
}
