/* conv_error.c - rounding errors of a trained network's 3 x 3 convolutions.
 *
 *     build/benchmarks/conv_error MODEL FOLDER PIXELS [lr]         (vgg16 cifar10 32)
 *
 * Trains a model (fr_model) for one epoch of FOLDER/train (fr_dataset_image_folder) with batches of 64, lr 0.01 and
 * momentum 0.9. Then one batch of 16 passes: what each 3 x 3 layer of stride 1 read, its weights, and the gradient of
 * what it made are convolved once more, as the library does it (Winograd's way where that is faster), as it does it
 * under fr_exact_convolutions_set, and from factors rounded to 10 bits as TF32's are, with exact sums. Prints the
 * largest error of y, dx and dw against f64, over the largest value there: the median and the worst of the layers that
 * Winograd's way computes. */
#include <frugal/extend.h>
#include <frugal/frugal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, RESULTS = 3, WAYS = 3, TRAIN_BATCH = 64, BATCH = 16 };
static const char *const ways[WAYS] = {"as it comes", "exact", "TF32's factors"}, *const results[] = {"y", "dx", "dw"};

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "conv_error: %s: %s\n", what, fr_last_error());
    exit(1);
}

/* ---- tensors of a layer ------------------------------------------------------------------------------------- */

/* A convolution before an identity op that records the gradient. */
typedef struct probe {
    fr_tensor *x, *w, *dy;
} probe;

static fr_status seen_backward(fr_node *node, fr_tensor **dy) {
    probe *p = *(probe *const *)fr_node_params(node);
    fr_status s = fr_tensor_clone(*dy, &p->dy);
    return s < 0 ? s : fr_node_grad(node, 0, dy);
}

static fr_status probed_forward(fr_module *m, fr_tensor **x) {
    static const fr_op seen = {.name = "seen", .backward = seen_backward};
    probe *p = *(probe **)fr_module_state(m);
    fr_status s = fr_tensor_clone(*x, &p->x);
    if (s == FR_OK) s = fr_module_run_child(m, 0, x);
    return s < 0 ? s : fr_op_record(&seen, &p, sizeof(probe *), x, 1, NULL, 0, *x);
}

/* Puts a probe in the place of each layer of [K, 3, 3, C] weights. */
static int replace(fr_module *m, probe *probes, char names[][128]) {
    static const fr_module_class probed = {.name = "Probed", .forward = probed_forward};
    int n = 0;
    for (int i = 0; i < fr_module_layers(m); i++) {
        fr_layer l;
        must(fr_module_layer_get(m, i, &l), "layer");
        if (strcmp(fr_module_class_of(l.module)->name, "Conv2d") != 0) continue;
        fr_tensor *w = fr_module_tensor(l.module, "weight");
        if (fr_tensor_dim(w, 1) != 3 || fr_tensor_dim(w, 2) != 3 || n == MOST) continue;
        fr_module *layer = NULL, *conv = fr_module_retain(l.module);
        must(fr_module_create(&probed, sizeof(probe *), &layer), l.name);
        *(probe **)fr_module_state(layer) = &probes[n];
        must(fr_module_add_child(layer, "conv", &conv), l.name);
        snprintf(names[n], sizeof names[n], "%s", l.name);
        must(fr_tensor_clone(w, &probes[n++].w), l.name);
        must(fr_module_replace(m, names[n - 1], &layer), names[n - 1]);
    }
    return n;
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

/* Rounds to 10 bits of fraction, to nearest, ties to even. */
static void round_to_tf32(fr_tensor *t) {
    uint32_t *bits = fr_tensor_data(t);
    for (int64_t i = 0; i < fr_tensor_numel(t); i++) bits[i] = (bits[i] + 0xfff + (bits[i] >> 13 & 1)) & ~0x1fffu;
}

/* y, dx and dw of copies of x, w and dy in `dtype`, in f64. */
static void convolve(const probe *p, fr_dtype dtype, bool tf32, fr_tensor *out[RESULTS]) {
    fr_tensor *in[RESULTS] = {p->x, p->w, p->dy}, *y = NULL;
    for (int i = 0; i < RESULTS; i++) {
        fr_tensor *copy = NULL;
        must(fr_tensor_clone(in[i], &copy), "copy");
        if (tf32) round_to_tf32(copy);
        const bool was = fr_no_grad_begin();
        in[i] = NULL;
        must(fr_cast(copy, dtype, &in[i]), "cast");
        fr_no_grad_end(was);
        fr_tensor_release(&copy);
        if (i < 2) must(fr_tensor_set_requires_grad(in[i], true), "leaf");
    }
    must(fr_conv2d(in[0], in[1], NULL, FR_CONV2D_OPTS(.padding = 1), &y), "convolution");
    must(fr_backward(y, in[2]), "gradients");
    fr_tensor *made[RESULTS] = {y, fr_tensor_get_grad(in[0]), fr_tensor_get_grad(in[1])};
    const bool was = fr_no_grad_begin();
    for (int i = 0; i < RESULTS; i++) must(fr_cast(made[i], FR_F64, &out[i]), "cast");
    fr_no_grad_end(was);
    fr_tensor_release(&y);
    for (int i = 0; i < RESULTS; i++) fr_tensor_release(&in[i]);
}

static double error(fr_tensor *of, fr_tensor *truth) {
    const double *a = fr_tensor_data(of), *b = fr_tensor_data(truth);
    double off = 0, largest = 0;
    for (int64_t i = 0; i < fr_tensor_numel(truth); i++) {
        off = fmax(off, fabs(a[i] - b[i]));
        largest = fmax(largest, fabs(b[i]));
    }
    return largest > 0 ? off / largest : 0;
}

/* The errors of a layer. Returns whether the default method differs from the exact. */
static bool measure(const probe *p, double of[WAYS][RESULTS]) {
    fr_tensor *truth[RESULTS] = {0}, *made[WAYS][RESULTS] = {0};
    bool other = false;
    convolve(p, FR_F64, false, truth);
    convolve(p, FR_F32, false, made[0]);
    fr_exact_convolutions_set(true);
    convolve(p, FR_F32, false, made[1]);
    fr_exact_convolutions_set(false);
    convolve(p, FR_F64, true, made[2]);
    for (int r = 0; r < RESULTS; r++) {
        other |= memcmp(fr_tensor_data(made[0][r]), fr_tensor_data(made[1][r]), fr_tensor_nbytes(truth[r])) != 0;
        for (int w = 0; w < WAYS; w++) {
            of[w][r] = error(made[w][r], truth[r]);
            fr_tensor_release(&made[w][r]);
        }
        fr_tensor_release(&truth[r]);
    }
    return other;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- a network --------------------------------------------------------------------------------------------- */

/* Forward and backward of a batch; returns the loss. */
static double pass(fr_module *m, fr_loader *loader) {
    fr_tensor *images = NULL, *targets = NULL, *y = NULL, *loss = NULL;
    double value = 0;
    must(fr_loader_next(loader, &images, &targets), "images");
    must(fr_module_forward(m, images, &y), "forward");
    must(fr_cross_entropy(y, targets, NULL, &loss), "loss");
    must(fr_backward(loss, NULL), "backward");
    must(fr_tensor_item(loss, &value), "loss");
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    return value;
}

static fr_loader *loader_of(fr_dataset *d, int64_t pixels, int64_t batch) {
    fr_loader *loader = NULL;
    must(fr_loader_create(d,
                          FR_LOADER_OPTS(.batch_size = batch, .height = pixels, .width = pixels, .channels = 3,
                                         .mean = {0.5, 0.5, 0.5}, .std = {0.25, 0.25, 0.25}),
                          &loader),
         "images");
    return loader;
}

static void train(fr_module *m, fr_dataset *d, int64_t pixels, double lr) {
    fr_loader *loader = loader_of(d, pixels, TRAIN_BATCH);
    fr_optimizer *o = NULL;
    double loss = 0;
    must(fr_sgd(m, FR_SGD_OPTS(.lr = lr, .momentum = 0.9), &o), "optimizer");
    for (int64_t i = 0; i < fr_loader_batches(loader); i++) {
        loss = pass(m, loader);
        must(fr_optimizer_step(o), "optimizer");
        fr_optimizer_zero_grad(o);
    }
    printf("%lld steps, the last one's loss %.3f\n\n", (long long)fr_loader_batches(loader), loss);
    fr_optimizer_release(&o);
    fr_loader_release(&loader);
}

static void print(int layers, double of[WAYS][RESULTS][MOST]) {
    printf("%d layers by Winograd's way\n\n| median, worst |", layers);
    for (int r = 0; r < RESULTS; r++) printf(" %s |", results[r]);
    printf("\n|---|---|---|---|\n");
    for (int w = 0; w < WAYS; w++) {
        printf("| %s |", ways[w]);
        for (int r = 0; r < RESULTS; r++) {
            qsort(of[w][r], (size_t)layers, sizeof(double), ascending);
            printf(" %.1e, %.1e |", of[w][r][layers / 2], of[w][r][layers - 1]);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    static double of[WAYS][RESULTS][MOST];
    static probe probes[MOST];
    static char names[MOST][128];
    const int64_t pixels = argc > 3 ? atoll(argv[3]) : 0;
    fr_dataset *d = NULL;
    fr_dataset_info info;
    fr_module *m = NULL;
    int layers = 0;
    if (argc < 4 || argc > 5 || pixels < 4) {
        fprintf(stderr, "usage: conv_error MODEL FOLDER PIXELS [lr]\n");
        return 2;
    }
    must(fr_dataset_image_folder(argv[2], FR_SPLIT_TRAIN, &d), argv[2]);
    must(fr_dataset_info_get(d, &info), argv[2]);
    fr_seed(1);
    must(fr_model(argv[1], FR_MODEL_OPTS(.classes = info.classes, .image_size = pixels), &m), argv[1]);
    train(m, d, pixels, argc > 4 ? atof(argv[4]) : 0.01);
    const int n = replace(m, probes, names);
    fr_loader *loader = loader_of(d, pixels, BATCH);
    (void)pass(m, loader);
    fr_loader_release(&loader);
    for (int i = 0; i < n; i++) {
        double now[WAYS][RESULTS];
        const probe *p = &probes[i];
        const bool same = p->dy != NULL && fr_tensor_dim(p->x, 1) == fr_tensor_dim(p->dy, 1); /* stride 1 */
        if (!same || !measure(p, now)) continue;
        for (int w = 0; w < WAYS; w++)
            for (int r = 0; r < RESULTS; r++) of[w][r][layers] = now[w][r];
        layers++;
    }
    if (layers > 0) print(layers, of);
    for (int i = 0; i < n; i++) {
        fr_tensor_release(&probes[i].x);
        fr_tensor_release(&probes[i].w);
        fr_tensor_release(&probes[i].dy);
    }
    fr_module_release(&m);
    fr_dataset_release(&d);
    return 0;
}
