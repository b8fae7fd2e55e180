/* conv2d_run.c - plans on the device: bound to a handle, executed, timed.
 *
 * A plan for a device description is bound to the handle through JSON text, as cuDNN documents for plans without a
 * device. */
#include "conv2d_plan.h"
#include "memory.h"

#include <stdlib.h>

enum {
    TENSORS = 4,      /* no execution has more */
    ROUNDS = 2,       /* A B A B: a changing clock is equal for all plans of a round */
    TIMES = 2,        /* executions in a round; the fastest counts */
    TOO_SLOW = 3,     /* times the fastest so far: not executed again */
    WARM_UP_MS = 30,  /* time of an idle device for raising the clock */
    WARM_UP_MOST = 64 /* executions */
};

/* ---- executing --------------------------------------------------------------------------------------------- */

/* cuDNN's plan for the thread's handle; text before handle, as NVIDIA's frontend sets them. */
static fr_status bind_plan(fri_cudnn_call c, cudnnHandle_t handle, fri_cuda_conv2d_plan *p) {
    cudnnBackendDescriptor_t d = NULL;
    int64_t bytes = 0, n = 0;
    fr_status s = FR_OK;
    if (p->bound != NULL) return FR_OK;
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d));
    FR_TRY(s, fri_descriptor_set(c, d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, p->json_bytes,
                                 p->json));
    FR_TRY(s, fri_descriptor_set(c, d, FRI_CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    FR_TRY(s, fri_descriptor_finalize(c, d));
    FR_TRY(s, fri_descriptor_get(c, d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    if (bytes > 0 && (size_t)bytes > p->choice.workspace) {
        s = fr_fail(FR_EINTERNAL, "%s: the plan needs %lld bytes of workspace on this device but %zu were planned",
                    c.name, (long long)bytes, p->choice.workspace);
        goto done;
    }
    FRI_MOVE(&p->bound, d);
done:
    fri_descriptor_destroy(c.dnn, &d);
    return s;
}

static fr_status execute_plan(fri_cudnn_call c, cudnnHandle_t handle, const fri_cuda_conv2d_plan *p,
                              const fri_cuda_conv2d_data *data) {
    int64_t uid[TENSORS] = {FRI_UID_X, FRI_UID_W, FRI_UID_Y}, n = 3;
    const void *at[TENSORS] = {data->x, data->w, data->y};
    cudnnBackendDescriptor_t pack = NULL;
    fr_status s = FR_OK;
    if (data->b != NULL) {
        uid[n] = FRI_UID_BIAS;
        at[n++] = data->b;
    }
    FR_TRY(s, fri_descriptor_make(c, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    FR_TRY(s, fri_descriptor_set(c, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid));
    FR_TRY(s, fri_descriptor_set(c, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at));
    FR_TRY(s, fri_descriptor_set(c, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &data->workspace));
    FR_TRY(s, fri_descriptor_finalize(c, pack));
    FR_TRY(s, fri_cudnn_check(c.dnn, c.dnn->BackendExecute(handle, p->bound, pack), c.name));
    FR_TRY(s, fri_cuda_launched(c.name));
done:
    fri_descriptor_destroy(c.dnn, &pack);
    return s;
}

static fr_status begin_call(void *stream, fri_cuda_conv2d_pass pass, fri_cudnn_call *c, cudnnHandle_t *handle) {
    char reason[256];
    fr_status s = fri_cudnn_handle(stream, handle);
    *c = (fri_cudnn_call){s >= 0 ? fri_cudnn_open(reason, sizeof reason) : NULL, fri_cuda_conv2d_pass_name[pass]};
    return s;
}

fr_status fri_cuda_conv2d_run(void *stream, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p,
                              const fri_cuda_conv2d_data *data) {
    cudnnHandle_t handle = NULL;
    fri_cudnn_call c;
    FRI_TRY(begin_call(stream, pass, &c, &handle));
    FRI_TRY(bind_plan(c, handle, p));
    return execute_plan(c, handle, p, data);
}

/* ---- timing ------------------------------------------------------------------------------------------------ */

/* Operands for timing. */
typedef struct stage {
    char *memory;
    size_t bytes;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    fri_cuda_conv2d_data data;
} stage;

static size_t round_up(size_t bytes) {
    return (bytes + 511) / 512 * 512;
}

static size_t most_workspace(const fri_cuda_conv2d_plan *plans, int n) {
    size_t most = 0;
    for (int i = 0; i < n; i++)
        if (plans[i].choice.workspace > most) most = plans[i].choice.workspace;
    return most;
}

/* FR_ENOMEM where the driver has no room for x, w, y, b and the largest workspace. Every byte is 0x3c: numbers
 * between 0.01 and 1.1 in all three types. */
static fr_status allocate_stage(stage *t, const fri_conv2d_desc *d, const fri_cuda_conv2d_plan *plans, int n) {
    const size_t size = fr_dtype_size(d->dtype);
    const size_t x = round_up((size_t)(d->n * d->h * d->w * d->c) * size), b = round_up((size_t)d->k * size);
    const size_t w = round_up((size_t)(d->k * d->r * d->s * (d->c / d->groups)) * size);
    const size_t y = round_up((size_t)(d->n * d->p * d->q * d->k) * size);
    void *memory = NULL;
    fr_status s = FR_OK;
    t->bytes = x + w + y + b + round_up(most_workspace(plans, n));
    FR_TRY(s, fri_cuda_segment_alloc(t->bytes, &memory));
    t->memory = memory;
    t->stream = fri_cuda_stream();
    t->data = (fri_cuda_conv2d_data){.x = t->memory,
                                     .w = t->memory + x,
                                     .y = t->memory + x + w,
                                     .b = t->memory + x + w + y,
                                     .workspace = t->memory + x + w + y + b};
    FRI_CUDART(s, MemsetAsync, (memory, 0x3c, t->bytes, t->stream));
    FRI_CUDART(s, EventCreateWithFlags, (&t->begin, cudaEventDefault));
    FRI_CUDART(s, EventCreateWithFlags, (&t->end, cudaEventDefault));
done:
    return s;
}

static void give_back(stage *t) {
    if (t->end != NULL) (void)fri_cudart_table->EventDestroy(t->end);
    if (t->begin != NULL) (void)fri_cudart_table->EventDestroy(t->begin);
    fri_cuda_segment_free(t->memory, t->bytes);
}

/* Milliseconds of an execution. */
static fr_status time_once(const stage *t, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p, float *ms) {
    fr_status s = FR_OK;
    FRI_CUDART(s, EventRecord, (t->begin, t->stream));
    FR_TRY(s, fri_cuda_conv2d_run(t->stream, pass, p, &t->data));
    FRI_CUDART(s, EventRecord, (t->end, t->stream));
    FRI_CUDART(s, EventSynchronize, (t->end));
    FRI_CUDART(s, EventElapsedTime, (ms, t->begin, t->end));
done:
    return s;
}

/* Until the clock is up. */
static void warm_up(const stage *t, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p) {
    float ms = 0, sum = 0;
    for (int i = 0; i < WARM_UP_MOST && sum < WARM_UP_MS && time_once(t, pass, p, &ms) >= 0; i++) sum += ms;
}

/* A round's executions of a plan; `fastest` in ms, of all so far, 0 at first. False: a failure. */
static bool time_plan(const stage *t, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p, float *fastest) {
    int64_t *ns = &p->choice.nanoseconds;
    float ms = 0;
    for (int i = 0; i < TIMES; i++) {
        if (time_once(t, pass, p, &ms) < 0) { /* listed, but not runnable here */
            *ns = 0;
            return false;
        }
        int64_t now = (int64_t)((double)ms * 1e6);
        if (now < 1) now = 1;
        if (*ns == 0 || now < *ns) *ns = now;
        if (*fastest == 0 || ms < *fastest) *fastest = ms;
        if (ms > TOO_SLOW * *fastest) return false;
    }
    return true;
}

/* Each plan runs once before the first timed round, to load the code. */
static void time_rounds(const stage *t, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *plans, int n) {
    bool over[FRI_CONV2D_PLANS] = {false}, warm = false;
    float fastest = 0;
    for (int i = 0; i < ROUNDS * n; i++) {
        const int at = i % n;
        if (i < n) over[at] = fri_cuda_conv2d_run(t->stream, pass, &plans[at], &t->data) < 0;
        if (over[at]) continue;
        if (!warm) warm_up(t, pass, &plans[at]);
        warm = true;
        over[at] = !time_plan(t, pass, &plans[at], &fastest);
    }
}

fr_status fri_cuda_conv2d_time(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *plans, int n,
                               int *best) {
    stage t = {0};
    fr_status s = FR_OK;
    *best = -1;
    FR_TRY(s, fri_cuda_context(NULL));
    s = allocate_stage(&t, d, plans, n);
    if (s == FR_ENOMEM) {
        s = FR_OK; /* not timed, and no failure: the heuristics' choice runs */
        goto done;
    }
    FR_TRY(s, s);
    if (pass != FRI_CUDA_CONV2D_FORWARD_BIAS) t.data.b = NULL;
    time_rounds(&t, pass, plans, n);
    for (int i = 0; i < n; i++) {
        const int64_t ns = plans[i].choice.nanoseconds;
        if (ns > 0 && (*best < 0 || ns < plans[*best].choice.nanoseconds)) *best = i;
    }
done:
    give_back(&t);
    return s;
}
