/* conv2d_plan.c - the plan of a convolution: from the thread's cache, a search, or timing. */
#include "base/process.h"
#include "conv2d_plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "context.h"

enum { KEY = 19 };

typedef struct entry {
    int64_t key[KEY];
    fri_cuda_conv2d_plan plan;
    fri_cuda_conv2d_plan *stands_in; /* instead of `plan`, for a plan without timing */
    bool none;
    struct entry *next;
} entry;

/* Per thread: cuDNN does not promise that plans are thread-safe, and a single thread runs kernels. */
enum { BUCKETS = 256 };
static _Thread_local entry *cache[BUCKETS];
static _Thread_local int64_t timed, guessed;

/* A thread's cache ends with the thread. Without a key the plans stay until the process ends. */
static pthread_key_t owner;
static bool owned;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop_cache(void *of_thread) {
    entry **bucket = of_thread;
    for (int i = 0; i < BUCKETS; i++)
        while (bucket[i] != NULL) {
            entry *e = bucket[i];
            bucket[i] = e->next;
            fri_cuda_conv2d_plan_drop(&e->plan);
            free(e);
        }
}

static void make_owner(void) {
    owned = pthread_key_create(&owner, drop_cache) == 0;
}

static void key_of(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, bool benchmark, int64_t key[KEY]) {
    const bool exact = d->dtype == FR_F32 && fri_exact_convolutions_get();
    const int64_t k[KEY] = {pass, d->dtype, benchmark, fri_cudnn_deterministic_get() + 2 * exact, FRI_CONV2D_KEY(d)};
    memcpy(key, k, sizeof k);
}

static entry **bucket_of(const int64_t key[KEY]) {
    uint64_t h = fri_hash(FRI_HASH, key, KEY * sizeof *key);
    return &cache[(h >> 32) % BUCKETS];
}

/* ---- making one -------------------------------------------------------------------------------------------- */

/* Times the plans. False: no plan could be timed, or no device; *s has further failures. */
static bool time_all(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *out, fr_status *s) {
    int n = 0, best = -1;
    if (!fri_cudnn_device_is_here()) return false;
    fri_cuda_conv2d_plan *plans = calloc(FRI_CONV2D_PLANS, sizeof *plans);
    if (plans == NULL) {
        *s = fr_fail(FR_ENOMEM, "%s: out of host memory", fri_cuda_conv2d_pass_name[pass]);
        return false;
    }
    FR_TRY(*s, fri_cuda_conv2d_search_all(d, pass, plans, &n));
    FR_TRY(*s, fri_cuda_conv2d_time(d, pass, plans, n, &best));
    if (best >= 0) {
        *out = plans[best];
        out->choice.configurations = n;
        plans[best] = (fri_cuda_conv2d_plan){0};
    }
done:
    for (int i = 0; i < n; i++) fri_cuda_conv2d_plan_drop(&plans[i]);
    free(plans);
    return *s >= 0 && best >= 0;
}

static fr_status get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, bool benchmark, fri_cuda_conv2d_plan **out);

static fr_status make_plan(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, bool benchmark, entry *e) {
    fr_status s = FR_OK;
    if (!benchmark) {
        FR_TRY(s, fri_cuda_conv2d_search(d, pass, &e->plan));
    } else if (time_all(d, pass, &e->plan, &s)) {
        timed++;
    } else {
        FR_TRY(s, s);
        FR_TRY(s, get(d, pass, false, &e->stands_in));
        e->none = e->stands_in == NULL;
        guessed += !e->none;
    }
done:
    return s;
}

static fri_cuda_conv2d_plan *plan_of(entry *e) {
    return e->none ? NULL : e->stands_in != NULL ? e->stands_in : &e->plan;
}

/* ---- the cache --------------------------------------------------------------------------------------------- */

static fr_status get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, bool benchmark, fri_cuda_conv2d_plan **out) {
    int64_t key[KEY];
    key_of(d, pass, benchmark, key);
    entry **at = bucket_of(key);
    for (entry *e = *at; e != NULL; e = e->next)
        if (memcmp(e->key, key, sizeof key) == 0) {
            *out = plan_of(e);
            return FR_OK;
        }
    entry *e = calloc(1, sizeof *e);
    if (e == NULL) return fr_fail(FR_ENOMEM, "%s: out of host memory", fri_cuda_conv2d_pass_name[pass]);
    memcpy(e->key, key, sizeof key);
    fr_status s = make_plan(d, pass, benchmark, e);
    if (s < 0 && s != FR_ENOMEM && pass == FRI_CUDA_CONV2D_FORWARD_BIAS)
        e->none = true; /* the plain pass works, or reports the error */
    if (s < 0 && !e->none) {
        free(e);
        return s;
    }
    e->next = *at; /* creation may have added an entry */
    *at = e;
    (void)pthread_once(&once, make_owner);
    if (owned) (void)pthread_setspecific(owner, cache);
    *out = plan_of(e);
    return FR_OK;
}

fr_status fri_cuda_conv2d_plan_get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan **out) {
    if (d->dtype != FR_F32 && d->dtype != FR_F16 && d->dtype != FR_BF16)
        return fri_cuda_no_type(fri_cuda_conv2d_pass_name[pass], d->dtype);
    return get(d, pass, fri_cudnn_benchmark_get(), out);
}

fr_status fri_cuda_conv2d_choose(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_choice *out) {
    fri_cuda_conv2d_plan *p = NULL;
    *out = (fri_cuda_conv2d_choice){0};
    if (d->n == 0) return FR_OK; /* nothing runs */
    FRI_TRY(fri_cuda_conv2d_plan_get(d, pass, &p));
    if (p == NULL)
        return fr_fail(FR_EUNSUPPORTED, "%s: cuDNN has no engine for the fused pass", fri_cuda_conv2d_pass_name[pass]);
    *out = p->choice;
    return FR_OK;
}

void fri_cuda_conv2d_timed(int64_t *yes, int64_t *no) {
    *yes = timed;
    *no = guessed;
}
