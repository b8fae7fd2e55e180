/* fake_cudnn.c - see fake_cudnn.h. */
#include "cuda/fake_cudnn.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/half.h"
#include "cuda/cudnn.h"

fake_cudnn_state fake_dnn;

enum { POINTERS = 8, GRAPHS = 4096 };

typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    int engine; /* of an engine, a configuration, a plan */
    cudnnBackendHeurMode_t mode;
    bool for_handle;
    int operations; /* of a graph, and of what was made from it */
    int graph;      /* likewise: its row in `graphs` */
    int pointers;
    const void *data[POINTERS];
    char uid[POINTERS];
    fake_tensor tensor;
    fake_graph of; /* what an operation or a convolution's descriptor adds to its graph */
} descriptor;

/* Graphs outlive their descriptors: a plan's text names the row. */
static fake_graph graphs[GRAPHS];
static int graph_count;

static __typeof__(cudnnGetErrorString) error_string;
static __typeof__(cudnnGetLastErrorString) last_error_string;
static __typeof__(cudnnCreate) create;
static __typeof__(cudnnSetStream) set_stream;
static __typeof__(cudnnBackendCreateDescriptor) make;
static __typeof__(cudnnBackendDestroyDescriptor) destroy;
static __typeof__(cudnnBackendFinalize) finalize;
static __typeof__(cudnnBackendSetAttribute) set;
static __typeof__(cudnnBackendGetAttribute) get;
static __typeof__(cudnnBackendExecute) execute;

static const char *error_string(cudnnStatus_t code) {
    return code == CUDNN_STATUS_SUCCESS ? "success" : "fake refusal";
}

static void last_error_string(char *text, size_t bytes) {
    snprintf(text, bytes, "of the fake");
}

static cudnnStatus_t create(cudnnHandle_t *out) {
    *out = (cudnnHandle_t)(uintptr_t)0x2000;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)handle;
    (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t make(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    descriptor *d = calloc(1, sizeof *d);
    if (d == NULL) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->type = type;
    d->engine = -1;
    fake_dnn.descriptors++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnBackendDescriptor_t d) {
    fake_dnn.descriptors--;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t at) {
    const descriptor *d = at;
    bool refused = d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && d->for_handle &&
                   (fake_dnn.engine[d->engine].unbindable || d->graph < fake_dnn.stale);
    if (fake_dnn.no_memory && d->for_handle) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

/* The attributes of a tensor and of a convolution. */
static void set_numbers(descriptor *d, cudnnBackendAttributeName_t name, int64_t n, const void *values) {
    fake_tensor *t = &d->tensor;
    const size_t bytes = (size_t)n * sizeof(int64_t);
    if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID) memcpy(&t->uid, values, bytes);
    if (name == CUDNN_ATTR_TENSOR_DIMENSIONS) memcpy(t->dim, values, bytes);
    if (name == CUDNN_ATTR_TENSOR_STRIDES) memcpy(t->stride, values, bytes);
    if (name == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) memcpy(&t->alignment, values, bytes);
    if (name == CUDNN_ATTR_TENSOR_DATA_TYPE) t->type = *(const cudnnDataType_t *)values;
    if (name == CUDNN_ATTR_TENSOR_IS_VIRTUAL) t->is_virtual = *(const bool *)values;
    if (name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) memcpy(d->of.pad, values, bytes);
    if (name == CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) memcpy(d->of.stride, values, bytes);
    if (name == CUDNN_ATTR_CONVOLUTION_DILATIONS) memcpy(d->of.dilation, values, bytes);
    if (name == CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC) d->of.statistics_math = *(const cudnnDataType_t *)values;
}

/* What an operation is given. */
static void set_child(descriptor *d, cudnnBackendAttributeName_t name, const descriptor *child) {
    fake_graph *g = &d->of;
    if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC ||
        name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC) {
        memcpy(g->pad, child->of.pad, sizeof g->pad);
        memcpy(g->stride, child->of.stride, sizeof g->stride);
        memcpy(g->dilation, child->of.dilation, sizeof g->dilation);
    }
    if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X || name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)
        g->x = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W || name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)
        g->w = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y || name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)
        g->y = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_POINTWISE_BDESC) g->factor[0] = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_GENSTATS_XDESC) g->read = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC) g->sums = child->tensor;
    if (name == CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC) g->squares = child->tensor;
}

static void make_graph(descriptor *d, int64_t n, descriptor *const *operation) {
    fake_graph g = {.operations = (int)n};
    for (int64_t i = 0; i < n; i++) {
        const fake_graph *of = &operation[i]->of;
        g.kind[i] = operation[i]->type;
        if (g.x.uid == 0 && i < 3) g.factor[i] = of->factor[0];
        if (of->x.uid != 0) {
            g.x = of->x;
            g.w = of->w;
            g.y = of->y;
            memcpy(g.pad, of->pad, sizeof g.pad);
            memcpy(g.stride, of->stride, sizeof g.stride);
            memcpy(g.dilation, of->dilation, sizeof g.dilation);
        }
        if (of->read.uid != 0) {
            g.read = of->read;
            g.sums = of->sums;
            g.squares = of->squares;
            g.statistics_math = of->statistics_math;
        }
    }
    d->operations = (int)n;
    d->graph = graph_count < GRAPHS ? graph_count++ : GRAPHS - 1;
    graphs[d->graph] = g;
}

static void inherit(descriptor *d, const descriptor *from) {
    d->engine = from->engine;
    d->operations = from->operations;
    d->graph = from->graph;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    descriptor *d = at;
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) set_numbers(d, name, n, values);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && n == 1) set_child(d, name, *(descriptor *const *)values);
    if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS) make_graph(d, n, values);
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) inherit(d, *(descriptor *const *)values);
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) memcpy(d->data, values, (size_t)n * sizeof *d->data);
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
        for (d->pointers = 0; d->pointers < n && d->pointers < POINTERS; d->pointers++)
            d->uid[d->pointers] = (char)((const int64_t *)values)[d->pointers];
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE) memcpy(&d->mode, values, sizeof d->mode);
    if (name == FRI_CUDNN_PLAN_HANDLE) d->for_handle = true;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) inherit(d, *(descriptor *const *)values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
        char text[64] = "";
        memcpy(text, values, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
        if (sscanf(text, "engine %d for %d, graph %d", &d->engine, &d->operations, &d->graph) != 3)
            return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t results(const descriptor *d, int64_t most, int64_t *n, void *values) {
    int first = d->mode == CUDNN_HEUR_MODE_A ? 0 : fake_dnn.in_list_a;
    int end = d->mode == CUDNN_HEUR_MODE_A ? fake_dnn.in_list_a : fake_dnn.n;
    fake_dnn.searches++;
    *n = 0;
    if (fake_dnn.not_fused && d->operations > 1) return CUDNN_STATUS_SUCCESS;
    for (int i = first; i < end && *n < most; i++) {
        inherit(((descriptor **)values)[*n], d);
        ((descriptor **)values)[(*n)++]->engine = i;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t number(int64_t *n, void *values, int64_t value) {
    *n = 1;
    memcpy(values, &value, sizeof value);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get(const cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most, int64_t *n, void *values) {
    const descriptor *d = at;
    char text[64];
    (void)type;
    *n = 0;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) return results(d, most, n, values);
    if (d->engine < 0) return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE) inherit(*(descriptor **)values, d);
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) return number(n, values, d->engine);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        return number(n, values,
                      d->operations > 1 ? fake_dnn.engine[d->engine].fused_workspace
                                        : fake_dnn.engine[d->engine].workspace);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        const fake_engine *e = &fake_dnn.engine[d->engine];
        cudnnBackendNumericalNote_t *note = values;
        if (e->nondeterministic) note[(*n)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        if (!e->no_tensor_core) note[(*n)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        if (e->strict_nan || (e->fused_strict_nan && d->operations > 1))
            note[(*n)++] = CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
        *n = snprintf(text, sizeof text, "engine %d for %d, graph %d", d->engine, d->operations, d->graph);
        if (most >= *n) memcpy(values, text, (size_t)*n);
    }
    return CUDNN_STATUS_SUCCESS;
}

static fri_conv2d_desc convolution_of(const fake_graph *g) {
    return (fri_conv2d_desc){.dtype = g->w.type == CUDNN_DATA_HALF ? FR_F16 : FR_F32,
                             .bias_dtype = FR_F32,
                             .n = g->x.dim[0],
                             .h = g->x.dim[2],
                             .w = g->x.dim[3],
                             .c = g->x.dim[1],
                             .k = g->w.dim[0],
                             .r = g->w.dim[2],
                             .s = g->w.dim[3],
                             .p = g->y.dim[2],
                             .q = g->y.dim[3],
                             .stride_h = g->stride[0],
                             .stride_w = g->stride[1],
                             .pad_h = g->pad[0],
                             .pad_w = g->pad[1],
                             .dilation_h = g->dilation[0],
                             .dilation_w = g->dilation[1],
                             .groups = g->x.dim[1] / g->w.dim[1]};
}

static fri_exec scratch_of(size_t bytes) {
    return (fri_exec){.workspace = aligned_alloc(512, (bytes + 511) / 512 * 512 + 512), .workspace_bytes = bytes};
}

/* By the CPU's kernel, so that y has its bits; the sums are those of y as it was rounded. */
static bool compute(const fake_graph *g) {
    const fri_kernels *cpu = &fri_backend_get(FR_CPU)->kernels;
    const fri_conv2d_desc d = convolution_of(g);
    size_t bytes = 0;
    if (cpu->conv2d_forward_workspace(&d, &bytes) < 0) return false;
    fri_exec e = scratch_of(bytes);
    fr_status s = cpu->conv2d_forward(&e, &d, fake_dnn.x, fake_dnn.w, NULL, (void *)(uintptr_t)fake_dnn.y);
    free(e.workspace);
    for (int64_t k = 0; fake_dnn.sums != NULL && k < d.k; k++) {
        float sum = 0, square = 0;
        for (int64_t i = 0; i < d.n * d.p * d.q; i++) {
            float v = d.dtype == FR_F16 ? fri_f32_from_f16(((const fri_f16 *)fake_dnn.y)[i * d.k + k])
                                        : ((const float *)fake_dnn.y)[i * d.k + k];
            sum += v;
            square += v * v;
        }
        fake_dnn.sums[k] = sum;
        fake_dnn.squares[k] = square;
    }
    fake_dnn.computed++;
    return s >= 0;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    fake_engine *e = &fake_dnn.engine[((const descriptor *)plan)->engine];
    const descriptor *p = pack;
    (void)handle;
    fake_dnn.x = fake_dnn.w = fake_dnn.y = fake_dnn.b = NULL;
    fake_dnn.sums = fake_dnn.squares = NULL;
    for (int i = 0; i < p->pointers; i++) {
        if (p->uid[i] == 'x') fake_dnn.x = p->data[i];
        if (p->uid[i] == 'w') fake_dnn.w = p->data[i];
        if (p->uid[i] == 'y') fake_dnn.y = p->data[i];
        if (p->uid[i] == 'b') fake_dnn.b = p->data[i];
        if (p->uid[i] == 's') fake_dnn.sums = (float *)(uintptr_t)p->data[i];
        if (p->uid[i] == 'q') fake_dnn.squares = (float *)(uintptr_t)p->data[i];
    }
    fake_dnn.pointers = p->pointers;
    fake_dnn.operations = ((const descriptor *)plan)->operations;
    fake_dnn.graph = graphs[((const descriptor *)plan)->graph];
    fake.clock_ms += (e->executions == 0 ? e->warm_up_ms : 0) + (fake.clock_ms < fake_dnn.ramp_ms ? 5 : 1) * e->ms;
    e->executions++;
    if (fake_dnn.computes && !compute(&fake_dnn.graph)) return CUDNN_STATUS_EXECUTION_FAILED;
    return e->fails ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

typedef void function(void);

static const struct {
    const char *name;
    function *at;
} symbols[] = {
    {"cudnnGetErrorString", (function *)error_string},
    {"cudnnGetLastErrorString", (function *)last_error_string},
    {"cudnnCreate", (function *)create},
    {"cudnnSetStream", (function *)set_stream},
    {"cudnnBackendCreateDescriptor", (function *)make},
    {"cudnnBackendDestroyDescriptor", (function *)destroy},
    {"cudnnBackendFinalize", (function *)finalize},
    {"cudnnBackendSetAttribute", (function *)set},
    {"cudnnBackendGetAttribute", (function *)get},
    {"cudnnBackendExecute", (function *)execute},
};

static void *symbol_of(const char *name) {
    void *at = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, name) == 0) memcpy(&at, &symbols[i].at, sizeof at);
    return at;
}

void fake_cudnn_begin(void) {
    fake_dnn = (fake_cudnn_state){0};
    fake_begin();
    fake.symbol = symbol_of;
}
