/* conv2d_plan.c - from a convolution to cuDNN's graph of one operation, its engines, and the choice among them. */
#include "conv2d_plan.h"

#include "base/env.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "plan_file.h"

const char *const fri_cuda_conv2d_pass_name[3] = {
    [FRI_CUDA_CONV2D_FORWARD] = "conv2d_forward",
    [FRI_CUDA_CONV2D_BACKWARD_INPUT] = "conv2d_backward_input",
    [FRI_CUDA_CONV2D_BACKWARD_WEIGHT] = "conv2d_backward_weight",
};

enum {
    CONFIGURATIONS = 64, /* of one heuristic list; cuDNN offers 20 to 40 */
    ALIGNMENT = 16,      /* bytes; blocks start at 512, and a view that does not keep to this is refused */
};

/* One search: the library, what is looked for, and every descriptor made on the way. */
typedef struct search {
    const fri_cudnn *dnn;
    const fri_conv2d_desc *d;
    fri_cuda_conv2d_pass pass;
    cudnnBackendDescriptor_t device, tensor[3], convolution, operation, graph, heuristic;
    cudnnBackendDescriptor_t configuration[CONFIGURATIONS];
    cudnnBackendDescriptor_t best; /* a finalized plan */
    fri_cuda_conv2d_choice choice;
} search;

/* ---- descriptors ------------------------------------------------------------------------------------------- */

static fr_status check(const search *c, cudnnStatus_t code) {
    return fri_cudnn_check(c->dnn, code, fri_cuda_conv2d_pass_name[c->pass]);
}

static fr_status make(const search *c, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    return check(c, c->dnn->BackendCreateDescriptor(type, out));
}

static fr_status set(const search *c, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    return check(c, c->dnn->BackendSetAttribute(d, name, type, n, values));
}

static fr_status set_child(const search *c, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t child) {
    return set(c, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

static fr_status finalize(const search *c, cudnnBackendDescriptor_t d) {
    return check(c, c->dnn->BackendFinalize(d));
}

static void destroy(const search *c, cudnnBackendDescriptor_t *d) {
    if (*d != NULL) c->dnn->BackendDestroyDescriptor(*d);
    *d = NULL;
}

/* cuDNN wants dimensions as (n, c, h, w) and learns the order in memory from the strides. */
static fr_status make_tensor(search *c, int i, int64_t uid, int64_t n, int64_t h, int64_t w, int64_t channels) {
    const int64_t dim[4] = {n, channels, h, w}, stride[4] = {h * w * channels, 1, w * channels, channels};
    const int64_t alignment = ALIGNMENT;
    cudnnDataType_t type = c->d->dtype == FR_F32   ? CUDNN_DATA_FLOAT
                           : c->d->dtype == FR_F16 ? CUDNN_DATA_HALF
                                                   : CUDNN_DATA_BFLOAT16;
    fr_status s = FR_OK;
    FRI_TRY(s, make(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &c->tensor[i]));
    cudnnBackendDescriptor_t t = c->tensor[i];
    FRI_TRY(s, set(c, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    FRI_TRY(s, set(c, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim));
    FRI_TRY(s, set(c, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
    FRI_TRY(s, set(c, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    FRI_TRY(s, set(c, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    FRI_TRY(s, finalize(c, t));
done:
    return s;
}

static fr_status make_convolution(search *c) {
    const fri_conv2d_desc *d = c->d;
    const int64_t pad[2] = {d->pad_h, d->pad_w}, stride[2] = {d->stride_h, d->stride_w};
    const int64_t dilation[2] = {d->dilation_h, d->dilation_w}, spatial = 2;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    fr_status s = FR_OK;
    FRI_TRY(s, make(c, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &c->convolution));
    cudnnBackendDescriptor_t v = c->convolution;
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
    FRI_TRY(s, set(c, v, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    FRI_TRY(s, finalize(c, v));
done:
    return s;
}

/* The attribute names of the three operations, in one order: convolution, x, w, y, alpha, beta. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
} operation_of[3] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static fr_status make_graph(search *c) {
    const fri_conv2d_desc *d = c->d;
    const float one = 1, zero = 0;
    fr_status s = FR_OK;
    FRI_TRY(s, make_tensor(c, 0, FRI_UID_X, d->n, d->h, d->w, d->c));
    FRI_TRY(s, make_tensor(c, 1, FRI_UID_W, d->k, d->r, d->s, d->c / d->groups));
    FRI_TRY(s, make_tensor(c, 2, FRI_UID_Y, d->n, d->p, d->q, d->k));
    FRI_TRY(s, make_convolution(c));
    FRI_TRY(s, make(c, operation_of[c->pass].type, &c->operation));
    FRI_TRY(s, set_child(c, c->operation, operation_of[c->pass].convolution, c->convolution));
    FRI_TRY(s, set_child(c, c->operation, operation_of[c->pass].x, c->tensor[0]));
    FRI_TRY(s, set_child(c, c->operation, operation_of[c->pass].w, c->tensor[1]));
    FRI_TRY(s, set_child(c, c->operation, operation_of[c->pass].y, c->tensor[2]));
    FRI_TRY(s, set(c, c->operation, operation_of[c->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one));
    FRI_TRY(s, set(c, c->operation, operation_of[c->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero));
    FRI_TRY(s, finalize(c, c->operation));
    FRI_TRY(s, make(c, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &c->graph));
    FRI_TRY(s, set_child(c, c->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, c->operation));
    FRI_TRY(s, finalize(c, c->graph));
done:
    return s;
}

/* ---- engines ----------------------------------------------------------------------------------------------- */

/* What is said about an engine decides whether it is tried. */
static bool suits(search *c, cudnnBackendDescriptor_t configuration, int64_t *index, bool *tensor_core) {
    cudnnBackendNumericalNote_t number[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0, numbers = 0, behaviors = 0;
    bool yes = false;
    *tensor_core = false;
    if (c->dnn->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    if (c->dnn->BackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                    &engine) != CUDNN_STATUS_SUCCESS ||
        c->dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, index) !=
            CUDNN_STATUS_SUCCESS ||
        c->dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &numbers, number) != CUDNN_STATUS_SUCCESS ||
        c->dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                    CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behaviors, behavior) != CUDNN_STATUS_SUCCESS)
        goto done;
    yes = true;
    for (int64_t i = 0; i < behaviors; i++) yes = yes && behavior[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    for (int64_t i = 0; i < numbers; i++) {
        *tensor_core = *tensor_core || number[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        yes = yes && number[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
              number[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS &&
              number[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    }
    if (c->d->dtype == FR_F32 && *tensor_core && !fri_env_get()->tf32) yes = false;
done:
    destroy(c, &engine);
    return yes;
}

/* Finalizes the configuration's plan; an engine that cannot is passed over. Keeps it if it is better than the best. */
static void try_configuration(search *c, int i, bool fallback) {
    const size_t limit = c->d->workspace_limit > 0 ? c->d->workspace_limit : SIZE_MAX;
    cudnnBackendDescriptor_t plan = NULL;
    fri_cuda_conv2d_choice found = {.fallback = fallback};
    int64_t bytes = 0, n = 0;
    if (!suits(c, c->configuration[i], &found.engine, &found.tensor_core)) return;
    if (c->dnn->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS) return;
    if (c->dnn->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                    &c->configuration[i]) == CUDNN_STATUS_SUCCESS &&
        c->dnn->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                    &c->device) == CUDNN_STATUS_SUCCESS &&
        c->dnn->BackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        c->dnn->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes) ==
            CUDNN_STATUS_SUCCESS) {
        found.workspace = bytes > 0 ? (size_t)bytes : 0;
        if (c->best == NULL || (c->choice.workspace > limit && found.workspace < c->choice.workspace)) {
            found.configurations = c->choice.configurations;
            destroy(c, &c->best);
            c->best = plan;
            c->choice = found;
            return;
        }
    }
    destroy(c, &plan);
}

static fr_status search_list(search *c, cudnnBackendHeurMode_t mode, bool fallback) {
    const size_t limit = c->d->workspace_limit > 0 ? c->d->workspace_limit : SIZE_MAX;
    int64_t n = 0;
    fr_status s = FR_OK;
    FRI_TRY(s, make(c, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &c->heuristic));
    FRI_TRY(s, set_child(c, c->heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, c->graph));
    FRI_TRY(s, set(c, c->heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    FRI_TRY(s, set_child(c, c->heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->device));
    if (c->dnn->BackendFinalize(c->heuristic) != CUDNN_STATUS_SUCCESS) goto done; /* the list is empty */
    for (int i = 0; i < CONFIGURATIONS; i++)
        FRI_TRY(s, make(c, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c->configuration[i]));
    FRI_TRY(s,
            check(c, c->dnn->BackendGetAttribute(c->heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGURATIONS, &n, c->configuration)));
    for (int64_t i = 0; i < n && i < CONFIGURATIONS; i++) {
        if (c->best != NULL && c->choice.workspace <= limit) break;
        c->choice.configurations++;
        try_configuration(c, (int)i, fallback);
    }
done:
    for (int i = 0; i < CONFIGURATIONS; i++) destroy(c, &c->configuration[i]);
    destroy(c, &c->heuristic);
    return s;
}

static fr_status no_engine(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass) {
    return fri_fail(FR_EUNSUPPORTED,
                    "%s: cuDNN has no pre-compiled, deterministic engine for %s data, x (%lld, %lld, %lld, %lld), w "
                    "(%lld, %lld, %lld, %lld), stride %lld, groups %lld on %s",
                    fri_cuda_conv2d_pass_name[pass], fr_dtype_name(d->dtype), (long long)d->n, (long long)d->c,
                    (long long)d->h, (long long)d->w, (long long)d->k, (long long)(d->c / d->groups), (long long)d->r,
                    (long long)d->s, (long long)d->stride_h, (long long)d->groups, fri_cudnn_device_name());
}

static fr_status keep_json(search *c, fri_cuda_conv2d_plan *p) {
    fr_status s = FR_OK;
    FRI_TRY(s, check(c, c->dnn->BackendGetAttribute(c->best, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, 0, &p->json_bytes, NULL)));
    if ((p->json = malloc((size_t)p->json_bytes + 1)) == NULL)
        return fri_fail(FR_ENOMEM, "%s: out of host memory", fri_cuda_conv2d_pass_name[c->pass]);
    FRI_TRY(s, check(c, c->dnn->BackendGetAttribute(c->best, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, p->json_bytes, &p->json_bytes, p->json)));
done:
    return s;
}

static fr_status make_plan(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p) {
    char reason[256];
    search c = {.d = d, .pass = pass};
    fr_status s = FR_OK;
    if ((c.dnn = fri_cudnn_open(reason, sizeof reason)) == NULL)
        return fri_fail(FR_ELIBRARY, "%s: %s", fri_cuda_conv2d_pass_name[pass], reason);
    FRI_TRY(s, fri_cudnn_device(&c.device));
    FRI_TRY(s, make_graph(&c));
    FRI_TRY(s, search_list(&c, CUDNN_HEUR_MODE_A, false));
    if (c.best == NULL || (d->workspace_limit > 0 && c.choice.workspace > d->workspace_limit))
        FRI_TRY(s, search_list(&c, CUDNN_HEUR_MODE_FALLBACK, true));
    if (c.best == NULL) {
        s = no_engine(d, pass);
        goto done;
    }
    p->choice = c.choice;
    FRI_TRY(s, keep_json(&c, p));
done:
    destroy(&c, &c.best);
    destroy(&c, &c.graph);
    destroy(&c, &c.operation);
    destroy(&c, &c.convolution);
    for (int i = 0; i < 3; i++) destroy(&c, &c.tensor[i]);
    return s;
}

/* ---- the cache --------------------------------------------------------------------------------------------- */

enum { KEY = FRI_CUDA_PLAN_KEY };

typedef struct entry {
    int64_t key[KEY];
    fri_cuda_conv2d_plan plan;
    struct entry *next;
} entry;

/* Per thread: cuDNN does not promise that plans are thread-safe, and one thread runs kernels. */
enum { BUCKETS = 256 };
static _Thread_local entry *cache[BUCKETS];

static void key_of(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, int64_t key[KEY]) {
    const int64_t k[KEY] = {pass,
                            d->dtype,
                            d->n,
                            d->h,
                            d->w,
                            d->c,
                            d->k,
                            d->r,
                            d->s,
                            d->p,
                            d->q,
                            d->stride_h,
                            d->stride_w,
                            d->pad_h,
                            d->pad_w,
                            d->groups,
                            d->dilation_h * 65536 + d->dilation_w,
                            (int64_t)d->workspace_limit};
    memcpy(key, k, sizeof k);
}

static size_t bucket_of(const int64_t key[KEY]) {
    uint64_t h = 1469598103934665603u; /* FNV-1a over words */
    for (int i = 0; i < KEY; i++) h = (h ^ (uint64_t)key[i]) * 1099511628211u;
    return (size_t)((h >> 32) % BUCKETS);
}

fr_status fri_cuda_conv2d_plan_get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan **out) {
    int64_t key[KEY];
    if (d->dtype != FR_F32 && d->dtype != FR_F16 && d->dtype != FR_BF16)
        return fri_cuda_no_type(fri_cuda_conv2d_pass_name[pass], d->dtype);
    key_of(d, pass, key);
    entry **at = &cache[bucket_of(key)];
    for (entry *e = *at; e != NULL; e = e->next)
        if (memcmp(e->key, key, sizeof key) == 0) {
            *out = &e->plan;
            return FR_OK;
        }
    entry *e = calloc(1, sizeof *e);
    if (e == NULL) return fri_fail(FR_ENOMEM, "%s: out of host memory", fri_cuda_conv2d_pass_name[pass]);
    fr_status s = FR_OK;
    if (!fri_cuda_plan_file_find(key, &e->plan)) {
        s = make_plan(d, pass, &e->plan);
        if (s == FR_OK) fri_cuda_plan_file_add(key, &e->plan);
    }
    if (s < 0) {
        free(e->plan.json);
        free(e);
        return s;
    }
    memcpy(e->key, key, sizeof key);
    e->next = *at;
    *at = e;
    *out = &e->plan;
    return FR_OK;
}

fr_status fri_cuda_conv2d_choose(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_choice *out) {
    fri_cuda_conv2d_plan *p = NULL;
    *out = (fri_cuda_conv2d_choice){0};
    if (d->n == 0) return FR_OK; /* nothing runs */
    fr_status s = fri_cuda_conv2d_plan_get(d, pass, &p);
    if (s >= 0) *out = p->choice;
    return s;
}
