/* conv2d_search.c - cuDNN's engines for a graph, and the choice. */
#include "base/env.h"
#include "base/process.h"
#include "conv2d_plan.h"

#include <stdlib.h>
#include <string.h>

enum { CONFIGURATIONS = 64 }; /* of a heuristic list; cuDNN offers 20 to 40 */

/* A search: the target, and all temporary descriptors. */
typedef struct search {
    fri_cudnn_call call;
    const fri_conv2d_desc *d;
    fri_cuda_conv2d_graph graph;
    cudnnBackendDescriptor_t device, heuristic;
    cudnnBackendDescriptor_t configuration[CONFIGURATIONS];
    cudnnBackendDescriptor_t best; /* a finalized plan */
    fri_cuda_conv2d_choice choice; /* of the best */
    int looked_at;
    bool begun, usual;         /* a configuration was found; the first found is slow */
    fri_cuda_conv2d_plan *all; /* or NULL: only the best is wanted */
    int n_all;
} search;

static size_t limit_of(const fri_conv2d_desc *d) {
    return d->workspace_limit > 0 ? d->workspace_limit : SIZE_MAX;
}

void fri_cuda_conv2d_plan_drop(fri_cuda_conv2d_plan *p) {
    char reason[256];
    const fri_cudnn *dnn = p->bound != NULL ? fri_cudnn_open(reason, sizeof reason) : NULL;
    if (dnn != NULL) fri_descriptor_destroy(dnn, &p->bound);
    free(p->json);
    *p = (fri_cuda_conv2d_plan){0};
}

/* ---- engines ----------------------------------------------------------------------------------------------- */

/* Notes of an engine decide whether the search tries the engine and whether it looks for a better one. The engine of
 * last resort, which alone keeps NaN strictly, and in half types an engine without tensor cores take many times as
 * long. */
static bool is_usable(const search *c, cudnnBackendDescriptor_t configuration, fri_cuda_conv2d_choice *found) {
    cudnnBackendNumericalNote_t number[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    const fri_cudnn *dnn = c->call.dnn;
    const bool deterministic = fri_cudnn_deterministic_get();
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0, numbers = 0, behaviors = 0;
    bool yes = false, last_resort = false;
    if (dnn->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    if (dnn->BackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                 &engine) != CUDNN_STATUS_SUCCESS ||
        dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &found->engine) !=
            CUDNN_STATUS_SUCCESS ||
        dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &numbers, number) != CUDNN_STATUS_SUCCESS ||
        dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behaviors, behavior) != CUDNN_STATUS_SUCCESS)
        goto done;
    yes = true;
    for (int64_t i = 0; i < behaviors; i++) yes = yes && behavior[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    for (int64_t i = 0; i < numbers; i++) {
        found->tensor_core = found->tensor_core || number[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        last_resort = last_resort || number[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
        yes = yes && (number[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || !deterministic) &&
              number[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS &&
              number[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    }
    if (c->d->dtype == FR_F32 && found->tensor_core && fri_exact_convolutions_get()) yes = false;
    found->slow = last_resort || (c->d->dtype != FR_F32 && !found->tensor_core);
done:
    fri_descriptor_destroy(dnn, &engine);
    return yes;
}

static fr_status keep_json(const search *c, cudnnBackendDescriptor_t plan, fri_cuda_conv2d_plan *p) {
    FRI_TRY(fri_descriptor_get(c->call, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                               &p->json_bytes, NULL));
    if ((p->json = malloc((size_t)p->json_bytes + 1)) == NULL)
        return fr_fail(FR_ENOMEM, "%s: out of host memory", c->call.name);
    return fri_descriptor_get(c->call, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              p->json_bytes, &p->json_bytes, p->json);
}

/* True for a repeated plan: cuDNN lists some engines with several settings, and some twice. */
static bool is_repeated(const search *c, const fri_cuda_conv2d_plan *p) {
    for (int i = 0; i < c->n_all; i++)
        if (c->all[i].json_bytes == p->json_bytes && memcmp(c->all[i].json, p->json, (size_t)p->json_bytes) == 0)
            return true;
    return false;
}

static fr_status add_plan(search *c, cudnnBackendDescriptor_t plan, const fri_cuda_conv2d_choice *choice) {
    fri_cuda_conv2d_plan p = {.choice = *choice};
    if (c->all == NULL || c->n_all == FRI_CONV2D_PLANS || choice->workspace > limit_of(c->d)) return FR_OK;
    fr_status s = keep_json(c, plan, &p);
    if (s >= 0 && !is_repeated(c, &p)) {
        c->all[c->n_all++] = p;
        p.json = NULL;
    }
    free(p.json);
    return s;
}

/* The lists have the best first: a later engine replaces an earlier only if the earlier is slow or above the limit. If
 * the first engine with a plan is slow, as cuDNN's first choice for a depthwise convolution in f16 is by its notes,
 * slowness decides nothing. */
static bool is_better(const search *c, const fri_cuda_conv2d_choice *found) {
    if (c->best == NULL) return true;
    if (found->slow != c->choice.slow && !c->usual) return c->choice.slow;
    return c->choice.workspace > limit_of(c->d) && found->workspace < c->choice.workspace;
}

/* Finalizes the configuration's plan; skips an engine without plan. Keeps the plan if better than the best. */
static fr_status try_configuration(search *c, int i, bool fallback) {
    const fri_cudnn *dnn = c->call.dnn;
    cudnnBackendDescriptor_t plan = NULL;
    fri_cuda_conv2d_choice found = {.fallback = fallback, .configurations = c->looked_at};
    int64_t bytes = 0, n = 0;
    fr_status s = FR_OK;
    if (!is_usable(c, c->configuration[i], &found)) return FR_OK;
    if (dnn->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS)
        return FR_OK;
    if (dnn->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &c->configuration[i]) != CUDNN_STATUS_SUCCESS ||
        dnn->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &c->device) != CUDNN_STATUS_SUCCESS ||
        dnn->BackendFinalize(plan) != CUDNN_STATUS_SUCCESS ||
        dnn->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes) !=
            CUDNN_STATUS_SUCCESS)
        goto done;
    found.workspace = bytes > 0 ? (size_t)bytes : 0;
    if (!c->begun) c->usual = found.slow;
    c->begun = true;
    FR_TRY(s, add_plan(c, plan, &found));
    if (is_better(c, &found)) {
        fri_descriptor_destroy(dnn, &c->best);
        c->best = plan;
        c->choice = found;
        return FR_OK;
    }
done:
    fri_descriptor_destroy(dnn, &plan);
    return s;
}

/* The first fast engine within the limit ends a search for the best. */
static bool is_found(const search *c) {
    return c->all == NULL && c->best != NULL && (c->usual || !c->choice.slow) && c->choice.workspace <= limit_of(c->d);
}

/* Skips slow engines, because timing would take long; if all engines within the limit are slow, the best is above
 * the limit. */
static void drop_slow(search *c) {
    int kept = 0;
    for (int i = 0; i < c->n_all && !c->choice.slow && !c->usual; i++)
        if (c->all[i].choice.slow) {
            fri_cuda_conv2d_plan_drop(&c->all[i]);
        } else if (kept++ != i) {
            c->all[kept - 1] = c->all[i];
            c->all[i] = (fri_cuda_conv2d_plan){0};
        }
    if (!c->choice.slow && !c->usual) c->n_all = kept;
}

static fr_status search_list(search *c, cudnnBackendHeurMode_t mode, bool fallback) {
    const fri_cudnn_call call = c->call;
    int64_t n = 0;
    fr_status s = FR_OK;
    FR_TRY(s, fri_descriptor_make(call, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &c->heuristic));
    FR_TRY(s, fri_descriptor_set_child(call, c->heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, c->graph.graph));
    FR_TRY(s, fri_descriptor_set(call, c->heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    FR_TRY(s, fri_descriptor_set_child(call, c->heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->device));
    if (call.dnn->BackendFinalize(c->heuristic) != CUDNN_STATUS_SUCCESS) goto done; /* the list is empty */
    for (int i = 0; i < CONFIGURATIONS; i++)
        FR_TRY(s, fri_descriptor_make(call, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c->configuration[i]));
    FR_TRY(s, fri_descriptor_get(call, c->heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 CONFIGURATIONS, &n, c->configuration));
    for (int64_t i = 0; i < n && i < CONFIGURATIONS && !is_found(c); i++) {
        c->looked_at++;
        FR_TRY(s, try_configuration(c, (int)i, fallback));
    }
done:
    for (int i = 0; i < CONFIGURATIONS; i++) fri_descriptor_destroy(call.dnn, &c->configuration[i]);
    fri_descriptor_destroy(call.dnn, &c->heuristic);
    return s;
}

static fr_status no_engine(const search *c) {
    const fri_conv2d_desc *d = c->d;
    return fr_fail(FR_EUNSUPPORTED,
                   "%s: cuDNN has no pre-compiled%s engine for %s data, x (%lld, %lld, %lld, %lld), w (%lld, %lld, "
                   "%lld, %lld), stride %lld, groups %lld on %s",
                   c->call.name, fri_cudnn_deterministic_get() ? ", deterministic" : "", fr_dtype_name(d->dtype),
                   (long long)d->n, (long long)d->c, (long long)d->h, (long long)d->w, (long long)d->k,
                   (long long)(d->c / d->groups), (long long)d->r, (long long)d->s, (long long)d->stride_h,
                   (long long)d->groups, fri_cudnn_device_name());
}

/* ---- searching --------------------------------------------------------------------------------------------- */

static fr_status search_engines(search *c, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *out) {
    char reason[256];
    fr_status s = FR_OK;
    c->call.name = fri_cuda_conv2d_pass_name[pass];
    if ((c->call.dnn = fri_cudnn_open(reason, sizeof reason)) == NULL)
        return fr_fail(FR_ELIBRARY, "%s: %s", c->call.name, reason);
    FR_TRY(s, fri_cudnn_device(&c->device));
    FR_TRY(s, fri_cuda_conv2d_graph_make(c->call.dnn, c->d, pass, &c->graph));
    FR_TRY(s, search_list(c, CUDNN_HEUR_MODE_A, false));
    if (!is_found(c)) FR_TRY(s, search_list(c, CUDNN_HEUR_MODE_FALLBACK, true));
    if (c->best == NULL) {
        s = no_engine(c);
        goto done;
    }
    drop_slow(c);
    if (c->n_all == 0) {
        out->choice = c->choice;
        FR_TRY(s, keep_json(c, c->best, out));
    }
done:
    fri_descriptor_destroy(c->call.dnn, &c->best);
    fri_cuda_conv2d_graph_release(&c->graph);
    return s;
}

fr_status fri_cuda_conv2d_search(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *out) {
    search c = {.d = d};
    *out = (fri_cuda_conv2d_plan){0};
    fr_status s = search_engines(&c, pass, out);
    if (s < 0) fri_cuda_conv2d_plan_drop(out);
    return s;
}

fr_status fri_cuda_conv2d_search_all(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_plan out[FRI_CONV2D_PLANS], int *n) {
    search c = {.d = d, .all = out};
    memset(out, 0, FRI_CONV2D_PLANS * sizeof *out);
    fr_status s = search_engines(&c, pass, &out[0]);
    *n = c.n_all > 0 ? c.n_all : 1;
    if (s >= 0) return s;
    for (int i = 0; i < *n; i++) fri_cuda_conv2d_plan_drop(&out[i]);
    *n = 0;
    return s;
}
