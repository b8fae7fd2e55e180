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
    int operations; /* of a graph, and of descriptors made from the graph */
    int graph;      /* likewise: its row in `graphs` */
    int pointers;
    const void *data[POINTERS];
    char uid[POINTERS];
    int64_t dim[4]; /* of a tensor */
    fake_graph of;  /* what an operation adds to its graph */
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
    fake.memory -= fake.handle;
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
    bool refused =
        d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && d->for_handle && fake_dnn.engine[d->engine].unbindable;
    if (fake_dnn.no_memory && d->for_handle) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

/* Sets an operand of an operation. */
static void set_child(descriptor *d, cudnnBackendAttributeName_t name, const descriptor *child) {
    if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X || name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)
        memcpy(d->of.x, child->dim, sizeof d->of.x);
}

static void make_graph(descriptor *d, int64_t n, descriptor *const *operation) {
    fake_graph g = {0};
    for (int64_t i = 0; i < n; i++)
        if (operation[i]->of.x[0] != 0) g = operation[i]->of;
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
    if (name == CUDNN_ATTR_TENSOR_DIMENSIONS) memcpy(d->dim, values, (size_t)n * sizeof *d->dim);
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

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    fake_engine *e = &fake_dnn.engine[((const descriptor *)plan)->engine];
    const descriptor *p = pack;
    (void)handle;
    fake_dnn.x = fake_dnn.w = fake_dnn.y = fake_dnn.b = NULL;
    for (int i = 0; i < p->pointers; i++) {
        if (p->uid[i] == 'x') fake_dnn.x = p->data[i];
        if (p->uid[i] == 'w') fake_dnn.w = p->data[i];
        if (p->uid[i] == 'y') fake_dnn.y = p->data[i];
        if (p->uid[i] == 'b') fake_dnn.b = p->data[i];
    }
    fake_dnn.pointers = p->pointers;
    fake_dnn.operations = ((const descriptor *)plan)->operations;
    fake_dnn.graph = graphs[((const descriptor *)plan)->graph];
    fake.clock_ms += (e->executions == 0 ? e->warm_up_ms : 0) + (fake.clock_ms < fake_dnn.ramp_ms ? 5 : 1) * e->ms;
    e->executions++;
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
