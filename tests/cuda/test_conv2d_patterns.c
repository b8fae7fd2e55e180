/* test_conv2d_patterns.c - what cuDNN has in one kernel with a convolution, planned for a device description, without a
 * GPU: statistics behind it, a batch norm's scale, shift and relu before it, and what it says about NaN. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/conv2d.h"
#include "cuda/conv2d_graph.h"
#include "cuda/cudnn.h"
#include "cuda/networks.h"
#include "support/golden.h"

static void needs_cudnn(void) {
    char reason[256];
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no folder can be made there: planned anew in each process */
    if (fri_cudnn_open(reason, sizeof reason) == NULL) cr_skip_test("%s", reason);
}

TestSuite(conv2d_patterns, .init = needs_cudnn);

enum { LIMIT = 64 << 20 };

static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};

/* ---- statistics and norms in the convolution's kernel ---------------------------------------------------------- */

typedef struct planned {
    int asked, n, above; /* convolutions, plans, plans above the workspace limit */
    size_t largest;
} planned;

/* cuDNN's engines for these patterns take multiples of 8 channels on both sides. */
static bool eights(const fri_conv2d_desc *d) {
    return d->c % 8 == 0 && d->k % 8 == 0;
}

/* `expected`: exactly the convolutions of f16 data with multiples of 8 channels have a plan; else none has. */
static planned plan(const convolutions *l, fr_dtype type, fri_cuda_conv2d_pass pass, bool expected) {
    planned found = {0};
    int step = type == FR_F16 && expected ? 1 : l->n / 3; /* nothing is soon found out, but not in no time */
    for (int i = 0; i < l->n; i += step) {
        found.asked++;
        fri_conv2d_desc d = l->conv[i];
        fri_cuda_conv2d_choice c;
        d.dtype = type;
        d.workspace_limit = LIMIT;
        bool there = fri_cuda_conv2d_choose(&d, pass, &c) >= 0;
        cr_expect_eq(there, expected && type == FR_F16 && eights(&d), "pass %d: %lld -> %lld channels", pass,
                     (long long)d.c, (long long)d.k);
        if (!there) continue;
        found.n++;
        found.above += c.workspace > LIMIT;
        if (c.workspace > found.largest) found.largest = c.workspace;
    }
    cr_expect_eq(found.above, 0, "pass %d", pass);
    return found;
}

static void expect_patterns(network which) {
    static const struct {
        fri_cuda_conv2d_pass pass;
        const char *what;
        bool expected;
    } patterns[] = {
        {FRI_CUDA_CONV2D_FORWARD_STATS, "with statistics", true},
        {FRI_CUDA_CONV2D_NORM_FORWARD_STATS, "behind scale, shift and relu, with statistics", true},
        {FRI_CUDA_CONV2D_NORM_FORWARD, "behind scale, shift and relu", false},
        {FRI_CUDA_CONV2D_NORM_BACKWARD_WEIGHT, "weight gradient behind scale, shift and relu", true},
    };
    convolutions l;
    network_convolutions(which, &l);
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
            planned p = plan(&l, types[t], patterns[i].pass, patterns[i].expected);
            printf("%s %s: %d of %d convolutions %s; largest workspace %.2f MiB\n", network_name[which],
                   fr_dtype_name(types[t]), p.n, p.asked, patterns[i].what, (double)p.largest / (1 << 20));
        }
    fflush(stdout);
}

Test(conv2d_patterns, vgg16) {
    expect_patterns(VGG16);
}

Test(conv2d_patterns, resnet50) {
    expect_patterns(RESNET50);
}

Test(conv2d_patterns, densenet121) {
    expect_patterns(DENSENET121);
}

Test(conv2d_patterns, unet) {
    expect_patterns(UNET);
}

/* ---- relu and NaN ---------------------------------------------------------------------------------------------- */

/* Deprecated names of the header, by their values: CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION. */
#define NAN_PROPAGATION      ((cudnnBackendAttributeName_t)2)
#define NAN_PROPAGATION_TYPE ((cudnnBackendAttributeType_t)10)
enum { PROPAGATE_NAN = 1, CONFIGURATIONS = 64 };

static const fri_cudnn *real;
static int asked; /* times that cuDNN took the attribute */

/* Where a relu is described, NaN is asked for, too. */
static cudnnStatus_t set_and_ask(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    const int propagate = PROPAGATE_NAN;
    cudnnStatus_t s = real->BackendSetAttribute(d, name, type, n, values);
    if (name == CUDNN_ATTR_POINTWISE_MODE && *(const cudnnPointwiseMode_t *)values == CUDNN_POINTWISE_RELU_FWD)
        asked +=
            real->BackendSetAttribute(d, NAN_PROPAGATION, NAN_PROPAGATION_TYPE, 1, &propagate) == CUDNN_STATUS_SUCCESS;
    return s;
}

typedef struct notes {
    int engines; /* configurations that are compiled already */
    int strict;  /* of those: engines that promise to pass NaN */
    char *text;  /* of the first plan */
} notes;

static void look_at(fri_cudnn_call call, cudnnBackendDescriptor_t configuration, notes *out) {
    cudnnBackendNumericalNote_t number[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0, numbers = 0, behaviors = 0;
    must(fri_descriptor_make(call, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    must(fri_descriptor_get(call, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                            &engine));
    must(fri_descriptor_get(call, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &numbers, number));
    must(fri_descriptor_get(call, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                            CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behaviors, behavior));
    fri_descriptor_destroy(call.dnn, &engine);
    for (int64_t i = 0; i < behaviors; i++)
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return;
    out->engines++;
    for (int64_t i = 0; i < numbers; i++) out->strict += number[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
}

/* The text of the configuration's plan; NULL where it cannot be made. */
static char *text_of(fri_cudnn_call call, cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t configuration) {
    cudnnBackendDescriptor_t plan = NULL;
    char *text = NULL;
    int64_t n = 0;
    must(fri_descriptor_make(call, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    must(fri_descriptor_set_child(call, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration));
    must(fri_descriptor_set_child(call, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device));
    if (call.dnn->BackendFinalize(plan) == CUDNN_STATUS_SUCCESS) {
        must(fri_descriptor_get(call, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &n,
                                NULL));
        text = calloc(1, (size_t)n + 1);
        must(fri_descriptor_get(call, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, &n,
                                text));
    }
    fri_descriptor_destroy(call.dnn, &plan);
    return text;
}

/* The heuristics' list for scale, shift and relu before a convolution, with statistics. */
static notes engines_of(const fri_cudnn *dnn, const fri_conv2d_desc *d) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    fri_cudnn_call call = {dnn, "conv2d_norm_forward_stats"};
    fri_cuda_conv2d_graph g;
    cudnnBackendDescriptor_t device = NULL, heuristic = NULL, configuration[CONFIGURATIONS] = {0};
    int64_t n = 0;
    notes out = {0};
    must(fri_cudnn_device(&device));
    must(fri_cuda_conv2d_graph_make(dnn, d, FRI_CUDA_CONV2D_NORM_FORWARD_STATS, &g));
    must(fri_descriptor_make(call, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic));
    must(fri_descriptor_set_child(call, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g.graph));
    must(fri_descriptor_set(call, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    must(fri_descriptor_set_child(call, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device));
    must(fri_descriptor_finalize(call, heuristic));
    for (int i = 0; i < CONFIGURATIONS; i++)
        must(fri_descriptor_make(call, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configuration[i]));
    must(fri_descriptor_get(call, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            CONFIGURATIONS, &n, configuration));
    for (int64_t i = 0; i < n && i < CONFIGURATIONS; i++) {
        look_at(call, configuration[i], &out);
        if (out.text == NULL) out.text = text_of(call, device, configuration[i]);
    }
    for (int i = 0; i < CONFIGURATIONS; i++) fri_descriptor_destroy(dnn, &configuration[i]);
    fri_descriptor_destroy(dnn, &heuristic);
    fri_cuda_conv2d_graph_release(&g);
    return out;
}

/* Why relu is never left to cuDNN in the forward pass: it takes the wish for NaN and forgets it (the plan, which is
 * what runs, is the same text with and without), and no engine promises to pass NaN. Where that changes (another
 * cuDNN), this fails. */
Test(conv2d_patterns, no_engine_promises_that_relu_passes_nan) {
    char reason[256];
    real = fri_cudnn_open(reason, sizeof reason);
    fri_cudnn asking = *real;
    asking.BackendSetAttribute = set_and_ask;
    notes all = {0};
    int plans = 0, same = 0, total = 0;
    for (int which = VGG16; which <= UNET; which++) {
        convolutions l;
        network_convolutions((network)which, &l);
        for (int i = 0; i < l.n; i++) {
            fri_conv2d_desc d = l.conv[i];
            d.dtype = FR_F16;
            if (!eights(&d)) continue;
            notes plain = engines_of(real, &d), strictly = engines_of(&asking, &d);
            total++;
            all.engines += strictly.engines;
            all.strict += strictly.strict;
            plans += plain.text != NULL && strictly.text != NULL;
            same += plain.text != NULL && strictly.text != NULL && strcmp(plain.text, strictly.text) == 0;
            free(plain.text);
            free(strictly.text);
        }
    }
    printf(
        "relu before a convolution: %d convolutions in f16; cuDNN took the wish for NaN %d times, %d of %d plans are "
        "the same text without it; %d of %d pre-compiled configurations promise to pass NaN\n",
        total, asked, same, plans, all.strict, all.engines);
    fflush(stdout);
    cr_expect_eq(asked, total);
    cr_expect_eq(plans, total);
    cr_expect_eq(same, plans, "%d of %d plans know of the wish", plans - same, plans);
    cr_expect_gt(all.engines, total);
    cr_expect_eq(all.strict, 0, "%d configurations promise to pass NaN: relu may go in", all.strict);
}
