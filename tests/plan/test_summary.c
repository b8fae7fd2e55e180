/* test_summary.c - the table of layers: published parameter counts, and bytes equal to the allocator's. */
#include "plan/calibration.h"
#include "plan/summary.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/plan.h>
#include <stdlib.h>
#include <string.h>

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

typedef struct seen {
    fr_summary *summary;
    fri_summary_totals totals;
    size_t activation, input, parameter; /* the allocator's counts at the start of backward */
} seen;

/* A step on meta under the thread's switches; segments 0: no checkpoints. */
static seen step_of(fr_module *m, int64_t batch, int64_t size, int segments) {
    seen s = {0};
    fr_step_scope scope;
    fr_memory_stats t;
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    must(fr_summary_begin(FR_META, &s.summary));
    must(fr_step_begin(&scope));
    must(fr_tensor_empty(4, (int64_t[]){batch, size, size, 3}, FR_F32, FR_META, &x));
    must(fr_tensor_empty(1, &batch, FR_I64, FR_META, &target));
    if (segments > 0)
        must(fr_checkpoint_sequential(m, segments, x, &x));
    else
        must(fr_module_forward(m, x, &x));
    must(fr_cross_entropy(x, target, NULL, &loss));
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    must(fr_memory_stats_get(FR_META, &t));
    must(fr_backward(loss, NULL));
    fr_tensor_release(&loss);
    must(fr_step_end(&scope));
    fr_module_zero_grad(m);
    must(fr_summary_end(s.summary));
    s.totals = *fri_summary_totals_of(s.summary);
    s.activation = t.requested_by[FR_MEM_ACTIVATION];
    s.input = t.requested_by[FR_MEM_INPUT];
    s.parameter = t.requested_by[FR_MEM_PARAMETER];
    return s;
}

static void expect_totals(const seen *s, const char *name) {
    fri_summary_totals sum = {0};
    for (int i = 0; i < fr_summary_layers(s->summary); i++) {
        fr_summary_layer l;
        must(fr_summary_layer_get(s->summary, i, &l));
        sum.parameters += l.parameters;
        sum.parameter_bytes += l.parameter_bytes;
        sum.buffer_bytes += l.buffer_bytes;
        sum.saved += l.saved;
        sum.flops += l.flops;
    }
    cr_expect_eq(s->totals.saved, s->activation, "%s: saved %zu, the allocator says %zu", name, s->totals.saved,
                 s->activation);
    cr_expect_eq(s->totals.input, s->input, "%s: input %zu, %zu", name, s->totals.input, s->input);
    cr_expect_eq(s->totals.parameters_requested, s->parameter, "%s: parameters %zu, %zu", name,
                 s->totals.parameters_requested, s->parameter);
    cr_expect_eq(sum.saved, s->totals.saved);
    cr_expect_eq(sum.parameters, s->totals.parameters);
    cr_expect_eq(sum.parameter_bytes, s->totals.parameter_bytes);
    cr_expect_eq(sum.buffer_bytes, s->totals.buffer_bytes);
    cr_expect_eq(sum.flops, s->totals.flops);
}

static bool layer_named(const fr_summary *s, const char *path, const char *kind, fr_summary_layer *out) {
    for (int i = 0; i < fr_summary_layers(s); i++) {
        must(fr_summary_layer_get(s, i, out));
        if (strcmp(out->path, path) == 0 && strcmp(out->kind, kind) == 0) return true;
    }
    return false;
}

/* Parameters and MiB equal torchsummary's; multiply-adds equal torchvision's tables (15.47 and 4.09 * 10^9). */
Test(summary, vgg16_has_the_published_numbers) {
    fr_module *m = NULL;
    fr_summary_layer l;
    fr_switches_set(fr_switches_all_off());
    must(fr_vgg(16, FR_MODEL_OPTS(.device = FR_META), &m));
    seen s = step_of(m, 2, 224, 0);
    expect_totals(&s, "VGG-16");
    cr_expect_eq(s.totals.parameters, 138357544);
    cr_expect_eq(s.totals.parameter_bytes, 553430176u);
    cr_expect_eq(s.totals.multiply_adds / 2, 15470264320.0, "%.0f", s.totals.multiply_adds / 2);
    cr_expect_gt(s.totals.flops_backward, 1.9 * s.totals.flops);
    cr_assert(layer_named(s.summary, "features.0", "Conv2d", &l));
    cr_expect(l.rank == 4 && l.shape[0] == 2 && l.shape[1] == 224 && l.shape[2] == 224 && l.shape[3] == 64);
    cr_expect_eq(l.parameters, 3 * 3 * 3 * 64 + 64);
    cr_expect_eq(l.parameter_bytes, 1792u * 4);
    cr_assert(layer_named(s.summary, "features.4", "MaxPool2d", &l));
    cr_expect_eq(l.saved, 2u * 112 * 112 * 64 * (4 + 8), "f32 output and i64 index: %zu", l.saved);
    fr_summary_release(&s.summary);
    /* Encoded: the pool keeps a byte per output and its output, the relu before nothing. */
    fr_switches_set(fr_switches_default());
    s = step_of(m, 2, 224, 0);
    expect_totals(&s, "VGG-16, defaults");
    cr_assert(layer_named(s.summary, "features.4", "MaxPool2d", &l));
    cr_expect_eq(l.saved, 2u * 112 * 112 * 64 * (4 + 1), "%zu", l.saved);
    cr_assert(layer_named(s.summary, "features.3", "ReLU", &l));
    cr_expect_eq(l.saved, 0u);
    fr_summary_release(&s.summary);
    fr_module_release(&m);
}

/* torchstat's columns: a convolution reads input and weight once and writes its output. */
Test(summary, columns_of_torchstat) {
    fr_module *m = NULL;
    fr_summary_layer l;
    fr_switches_set(fr_switches_all_off());
    must(fr_vgg(16, FR_MODEL_OPTS(.device = FR_META), &m));
    seen s = step_of(m, 2, 224, 0);
    cr_assert(layer_named(s.summary, "features.0", "Conv2d", &l));
    double out = 2.0 * 224 * 224 * 64;
    cr_expect_eq(l.multiply_adds, out * 27, "%.0f", l.multiply_adds);
    cr_expect_eq(l.written, 4 * out, "%.0f", l.written);
    cr_expect_eq(l.moved - l.written, 4.0 * (2 * 224 * 224 * 3 + 27 * 64), "%.0f", l.moved - l.written);
    cr_assert(layer_named(s.summary, "features.1", "ReLU", &l));
    cr_expect(l.multiply_adds == 0 && l.written == 4 * out && l.moved == 8 * out, "%.0f of %.0f", l.written, l.moved);
    cr_expect(s.totals.seconds > 0 && s.totals.seconds_backward > s.totals.seconds);
    double sum[4] = {0};
    for (int i = 0; i < fr_summary_layers(s.summary); i++) {
        must(fr_summary_layer_get(s.summary, i, &l));
        sum[0] += l.multiply_adds;
        sum[1] += l.moved;
        sum[2] += l.written;
        sum[3] += l.seconds;
    }
    cr_expect(sum[0] == s.totals.multiply_adds && sum[1] == s.totals.moved && sum[2] == s.totals.written);
    cr_expect_float_eq(sum[3], s.totals.seconds, 1e-9);
    fr_summary_release(&s.summary);
    fr_module_release(&m);
}

/* Predicted times of forward and backward are the fitting clock's. */
Test(summary, times_are_the_clock_s) {
    fr_module *m = NULL;
    fr_summary_layer l;
    must(fr_vgg(11, FR_MODEL_OPTS(.device = FR_META, .batch_norm = true), &m));
    fri_fit_clock *clock = NULL;
    double seconds = 0;
    must(fri_fit_clock_begin(FR_META, &clock));
    seen s = step_of(m, 2, 224, 0);
    fri_fit_clock_end(&clock, &seconds);
    cr_expect_float_eq(s.totals.seconds + s.totals.seconds_backward, seconds, 1e-9, "%g + %g, the clock says %g",
                       s.totals.seconds, s.totals.seconds_backward, seconds);
    cr_assert(layer_named(s.summary, "features.2", "ReLU", &l));
    cr_expect(l.written == 0 && l.moved == 0, "batch norm's last pass rectifies: %.0f written", l.written);
    fr_summary_release(&s.summary);
    fr_module_release(&m);
}

Test(summary, resnet50_has_the_published_numbers) {
    static const struct {
        bool inplace, rebuild;
        int segments;
    } cells[] = {{true, false, 0}, {true, true, 0}, {true, false, 4}, {true, true, 4}, {false, false, 0}};
    fr_module *m = NULL;
    fr_summary_layer l;
    must(fr_resnet(50, FR_MODEL_OPTS(.device = FR_META), &m));
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        fr_switches on = fr_switches_default();
        on.inplace = cells[i].inplace;
        on.rebuild = cells[i].rebuild;
        fr_switches_set(on);
        seen s = step_of(m, 2, 224, cells[i].segments);
        expect_totals(&s, "ResNet-50");
        cr_expect_eq(s.totals.parameters, 25557032);
        cr_expect_eq(s.totals.parameter_bytes + s.totals.buffer_bytes, 102441032u);
        cr_expect_eq(s.totals.multiply_adds / 2, 4089184256.0, "%.0f", s.totals.multiply_adds / 2);
        cr_assert(layer_named(s.summary, "layer1.0.downsample.1", "BatchNorm2d", &l));
        cr_expect_eq(l.parameters, 512);
        cr_expect_eq(l.buffer_bytes, 2u * 256 * 4 + 8);
        cr_assert(layer_named(s.summary, "layer1.0.relu", "ReLU", &l));
        /* Batch norm's last in-place pass computes the sum and its relu, and recomputes both. */
        bool own = !cells[i].inplace;
        cr_expect_eq(l.flops > 0, own, "%.0f FLOPs with in place %d, rebuild %d, %d segments", l.flops,
                     cells[i].inplace, cells[i].rebuild, cells[i].segments);
        fr_summary_release(&s.summary);
    }
    fr_module_release(&m);
}

Test(summary, says_what_it_did_not_see) {
    fr_summary *s = NULL, *second = NULL;
    must(fr_summary_begin(FR_META, &s));
    cr_expect_eq(fr_summary_begin(FR_META, &second), FR_EUSAGE);
    cr_expect_eq(fr_summary_end(s), FR_EUSAGE);
    cr_expect(strstr(fr_last_error(), "no step with a forward and a backward ran on meta") != NULL, "%s",
              fr_last_error());
    cr_expect_eq(fr_summary_end(s), FR_EUSAGE, "ended twice");
    fr_summary_release(&s);
    must(fr_summary_begin(FR_META, &s));
    fr_summary_release(&s); /* without an end */
    must(fr_summary_begin(FR_META, &s));
    fr_summary_release(&s);
    fr_summary_release(&s);
}

Test(summary, prints_shapes_in_pytorch_s_order) {
    fr_module *m = NULL;
    char *text = NULL;
    size_t bytes = 0;
    must(fr_vgg(11, FR_MODEL_OPTS(.device = FR_META, .image_size = 32, .classes = 10), &m));
    seen s = step_of(m, 5, 32, 0);
    FILE *f = open_memstream(&text, &bytes);
    must(fr_summary_print(s.summary, f));
    fclose(f);
    cr_expect(strstr(text, "[5, 64, 32, 32]") != NULL, "%s", text);
    cr_expect(strstr(text, "parameters: ") != NULL && strstr(text, "kept when backward begins: ") != NULL, "%s", text);
    free(text);
    fr_summary_release(&s.summary);
    fr_module_release(&m);
}
