/* test_checkpoint_models.c - whole networks with their chain of units checkpointed: loss, gradients, running statistics
 * and counters equal the plain run's bit for bit, and the step needs less memory. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

typedef fr_status model_fn(int depth, const fr_model_opts *opts, fr_module **m);

enum { CLASSES = 10, SIZE = 32, BATCH = 2 };

static const struct {
    const char *name;
    model_fn *make;
    int depth, units;
    bool batch_norm;
    fr_head head;
} nets[] = {
    {"VGG-11", fr_vgg, 11, 16, false, FR_HEAD_AUTO},                /* 8 conv + relu, 5 pool; pool, flatten, linear */
    {"VGG-11 with batch norm", fr_vgg, 11, 24, true, FR_HEAD_AUTO}, /* 8 conv, 8 norm + relu, ... */
    {"ResNet-18", fr_resnet, 18, 14, false, FR_HEAD_AUTO},          /* 3 in the stem, 8 blocks, pool, flatten, fc */
    {"DenseNet-BC-22", fr_densenet, 22, 14, false, FR_HEAD_AUTO},   /* conv0, 3 blocks, 2 transitions of 3, norm5; 3 */
};

enum { NETS = sizeof nets / sizeof *nets };

static fr_module *make(int net, fr_device device) {
    fr_module *m = NULL;
    must(nets[net].make(nets[net].depth,
                        FR_MODEL_OPTS(.classes = CLASSES, .image_size = SIZE, .head = nets[net].head,
                                      .batch_norm = nets[net].batch_norm, .device = device),
                        &m));
    return m;
}

/* All results of a step: loss, gradients, buffers. */
struct outcome {
    unsigned char *bytes;
    size_t n, capacity;
};

static void keep(struct outcome *o, const fr_tensor *t) {
    size_t n = fr_tensor_nbytes(t);
    if (o->n + n > o->capacity) {
        o->capacity = 2 * (o->n + n);
        o->bytes = realloc(o->bytes, o->capacity);
        cr_assert_not_null(o->bytes);
    }
    must(fr_tensor_to_host(t, o->bytes + o->n));
    o->n += n;
}

static fr_status keep_each(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    if (is_parameter) cr_assert_not_null(fr_tensor_get_grad(t), "%s has no gradient", path);
    keep(ctx, is_parameter ? fr_tensor_get_grad(t) : t);
    return FR_OK;
}

/* A forward and backward pass; segments 0: no checkpoints. */
static void step(fr_module *m, int segments, fr_device device, struct outcome *o) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL;
    must(fr_tensor_uniform(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, -1, 1, FR_F32, device, &x));
    must(fr_tensor_full(1, (int64_t[]){BATCH}, 7, FR_I64, device, &target));
    must(segments == 0 ? fr_module_forward(m, x, &y) : fr_checkpoint_sequential(m, segments, x, &y));
    must(fr_cross_entropy(y, target, NULL, &loss));
    must(fr_backward(loss, NULL));
    if (o != NULL) {
        keep(o, loss);
        must(fr_module_each_tensor(m, keep_each, o));
    }
    RELEASE_ALL(&x, &target, &y, &loss);
}

static struct outcome run(int net, int segments) {
    struct outcome o = {0};
    fr_seed(23);
    fr_module *m = make(net, test_device());
    step(m, segments, test_device(), &o);
    fr_module_release(&m);
    return o;
}

Test(checkpoint_models, equals_plain, .timeout = 240) {
    for (int net = 0; net < NETS; net++) {
        const int segments[] = {1, 2, 3, nets[net].units};
        struct outcome plain = run(net, 0);
        for (size_t i = 0; i < sizeof segments / sizeof *segments; i++) {
            uint64_t before = fr_graph_stats_get().recomputed_segments;
            struct outcome o = run(net, segments[i]);
            uint64_t again = fr_graph_stats_get().recomputed_segments - before;
            cr_expect_leq(again, (uint64_t)segments[i] - 1, "%s: %d segments", nets[net].name, segments[i]);
            if (segments[i] == 2 || segments[i] == 3)
                cr_expect_eq(again, (uint64_t)segments[i] - 1, "%s: %d of %d segments ran again", nets[net].name,
                             (int)again, segments[i] - 1);
            cr_assert_eq(o.n, plain.n);
            cr_expect_eq(memcmp(o.bytes, plain.bytes, plain.n), 0, "%s: %d segments change the step", nets[net].name,
                         segments[i]);
            free(o.bytes);
        }
        free(plain.bytes);
    }
    expect_nothing_left();
}

/* The classifier's dropout draws equal numbers when recomputed. Without a graph, no recomputation. */
Test(checkpoint_models, dropout_in_a_segment, .timeout = 120) {
    struct outcome plain = {0}, cut = {0};
    fr_tensor *x = NULL, *w = NULL, *y = NULL;
    for (int segments = 0; segments <= 2; segments += 2) {
        fr_module *m = NULL;
        fr_seed(29);
        fr_net *n = fr_net_begin(test_device());
        fr_value v = fr_net_input(n, FR_F32, 2, (int64_t[]){5, 16});
        for (int i = 0; i < 4; i++) v = fr_net_dropout(n, NULL, fr_net_linear(n, NULL, v, 16, FR_BIAS), 0.5);
        must(fr_net_end(&n, &v, 1, &m));
        must(fr_tensor_uniform(2, (int64_t[]){5, 16}, -1, 1, FR_F32, test_device(), &x));
        must(segments == 0 ? fr_module_forward(m, x, &y) : fr_checkpoint_sequential(m, segments, x, &y));
        must(fr_tensor_uniform(2, (int64_t[]){5, 16}, -1, 1, FR_F32, test_device(),
                               &w)); /* the generator went on alike */
        must(fr_mul(y, w, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        keep(segments == 0 ? &plain : &cut, y);
        must(fr_module_each_tensor(m, keep_each, segments == 0 ? &plain : &cut));
        if (segments > 0) {
            uint64_t before = fr_graph_stats_get().recomputed_segments;
            bool was = fr_no_grad_begin();
            must(fr_checkpoint_sequential(m, segments, x, &y));
            fr_no_grad_end(was);
            cr_expect(!fr_tensor_requires_grad(y));
            cr_expect_eq(fr_graph_stats_get().recomputed_segments, before);
        }
        fr_module_release(&m);
    }
    cr_assert_eq(plain.n, cut.n);
    cr_expect_eq(memcmp(plain.bytes, cut.bytes, plain.n), 0);
    free(plain.bytes);
    free(cut.bytes);
    RELEASE_ALL(&x, &w, &y);
    expect_nothing_left();
}

/* ---- units --------------------------------------------------------------------------------------------------- */

Test(checkpoint_models, units_lie_between_borders) {
    enum { MOST = 64 };
    for (int net = 0; net < NETS; net++) {
        fr_module *m = make(net, FR_META);
        int first[MOST];
        fr_layer l;
        for (int i = 0; i < MOST; i++) first[i] = -1;
        cr_expect_eq(fr_module_units(m, NULL, 0), nets[net].units, "%s has %d units", nets[net].name,
                     fr_module_units(m, NULL, 0));
        cr_assert_eq(fr_module_units(m, first, 3), nets[net].units);
        cr_expect(first[2] > 0 && first[3] == -1, "another number than was asked for was written");
        int n = fr_module_units(m, first, MOST);
        cr_expect_eq(first[0], 0);
        for (int i = 1; i < n; i++) {
            must(fr_module_layer_get(m, first[i], &l));
            cr_expect(first[i] > first[i - 1] && first[i] < fr_module_layers(m));
            cr_expect((fr_module_class_of(l.module)->traits & FR_LAYER_POINTWISE) == 0, "%s: a unit begins with %s",
                      nets[net].name, l.name);
        }
        fr_module_release(&m);
    }
    expect_nothing_left();
}

Test(checkpoint_models, refuses_impossible_cuts) {
    fr_module *m = make(2, FR_META);
    fr_tensor *x = NULL, *y = NULL;
    static const int backwards[] = {0, 5, 5}, late[] = {1, 5}, beyond[] = {0, 5000};
    must(fr_tensor_empty(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, FR_F32, FR_META, &x));
    expect_refused(fr_checkpoint_sequential(m, 15, x, &y), FR_EINVAL, "15 segments", "14 units", NULL);
    expect_refused(fr_checkpoint_sequential(m, -1, x, &y), FR_EINVAL, "-1 segments", "14 units", NULL);
    expect_refused(fr_checkpoint_plan(m, &(fr_unit_plan){.units = 3, .first = backwards}, x, &y), FR_EINVAL, "unit 2",
                   "layer 5", NULL);
    expect_refused(fr_checkpoint_plan(m, &(fr_unit_plan){.units = 2, .first = late}, x, &y), FR_EINVAL, "unit 0",
                   "layer 1", NULL);
    expect_refused(fr_checkpoint_plan(m, &(fr_unit_plan){.units = 2, .first = beyond}, x, &y), FR_EINVAL, "unit 1",
                   "layer 5000", NULL);
    cr_expect_null(y);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* A failure inside a checkpointed unit names its path once and leaks nothing. */
Test(checkpoint_models, a_failing_unit_names_its_path) {
    fr_module *m = make(0, test_device());
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){BATCH, SIZE, SIZE, 5}, FR_F32, test_device(), &x)); /* 5 channels */
    fr_status s = fr_checkpoint_sequential(m, 4, x, &y);
    expect_refused(s, FR_ESHAPE, "features.0 (Conv2d): conv2d: ", "5 channels", y);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static size_t step_bytes(int net, int segments) {
    fr_memory_stats t;
    fr_module *m = make(net, FR_META);
    must(fr_memory_stats_get(FR_META, &t));
    size_t parameters = t.requested;
    must(fr_memory_reset_peak(FR_META));
    step(m, segments, FR_META, NULL);
    must(fr_memory_stats_get(FR_META, &t));
    fr_module_release(&m);
    return t.peak_requested - parameters;
}

/* With PyTorch's saving rules, networks whose activations outweigh their gradients need less. */
Test(checkpoint_models, needs_less) {
    fr_switches was = fr_switches_get();
    fr_switches_set(fr_switches_all_off());
    size_t plain = step_bytes(3, 0), cut = step_bytes(3, 3);
    fr_switches_set(was);
    cr_expect_lt(cut, plain, "%zu bytes with 3 segments, %zu without", cut, plain);
    expect_nothing_left();
}
