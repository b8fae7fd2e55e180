/* memory_timeline.c - a training step's memory over time, by category, as a picture.
 *
 *     build/benchmarks/memory_timeline FILE.svg [batch] [image size]        (VGG-16, 64 images of 224 pixels, f32)
 *
 * Runs two steps of VGG-16 on addresses without memory (FR_META), once with all switches off, as PyTorch eager, and
 * once with the defaults and a fused step; draws the second step of each. The numbers are exact and equal on every
 * machine: no kernel runs, library scratch is not included. Peaks equal the plans of
 * `train_vgg --plan=switches --device meta`. */
#include <frugal/frugal.h>
#include <frugal/views.h>
#include <stdio.h>
#include <stdlib.h>

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "memory_timeline: %s\n", fr_last_error());
    exit(1);
}

static void step(fr_module *m, fr_optimizer *o, int64_t batch, int64_t size) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL, *correct = NULL;
    fr_step_scope scope;
    must(fr_step_begin(&scope));
    must(fr_tensor_empty(4, (int64_t[]){batch, size, size, 3}, FR_F32, FR_META, &x));
    must(fr_tensor_empty(1, &batch, FR_I64, FR_META, &target));
    must(fr_module_forward(m, x, &x));
    must(fr_cross_entropy(x, target, NULL, &loss));
    must(fr_count_correct(x, target, &correct));
    fr_tensor_release(&x);
    must(fr_backward(loss, NULL));
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&loss);
    fr_tensor_release(&target);
    fr_tensor_release(&correct);
    must(fr_step_end(&scope));
}

/* Records the second of two steps, with the optimizer's state from the begin. */
static void record(fr_switches switches, bool fused, int64_t batch, int64_t size, fr_timeline_recorder *r) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_switches_set(switches);
    must(fr_timeline_begin(r, FR_META));
    must(fr_vgg(16, FR_MODEL_OPTS(.image_size = size, .device = FR_META), &m));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
    must(fr_optimizer_fuse(o, fused));
    step(m, o, batch, size);
    step(m, o, batch, size);
    must(fr_timeline_end(r));
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

int main(int argc, char **argv) {
    fr_timeline_recorder off = {0}, on = {0};
    char heading[128];
    int64_t batch = argc > 2 ? atoll(argv[2]) : 64, size = argc > 3 ? atoll(argv[3]) : 224;
    if (argc < 2 || batch < 1 || size < 32) {
        fprintf(stderr, "usage: memory_timeline FILE.svg [batch >= 1] [image size >= 32]\n");
        return 2;
    }
    record(fr_switches_all_off(), false, batch, size, &off);
    record(fr_switches_default(), true, batch, size, &on);
    snprintf(heading, sizeof heading,
             "VGG-16, batch %lld, %lld pixels, f32: one training step, requested bytes by category", (long long)batch,
             (long long)size);
    must(fr_timeline_draw(argv[1], heading,
                          (const fr_timeline_panel[]){{&off.most, "all switches off: "},
                                                      {&on.most, "default switches: "}},
                          2));
    printf("all off %zu bytes, default %zu bytes (%.3f)\n", off.most.peak, on.most.peak,
           (double)on.most.peak / (double)off.most.peak);
    fr_timeline_free(&off);
    fr_timeline_free(&on);
    return 0;
}
