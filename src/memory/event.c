/* event.c - see event.h. */
#include "memory/event.h"

#include "base/status.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SUBSCRIBERS = 16 };

struct fri_event_log {
    pthread_mutex_t lock;
    struct {
        fr_event_fn *fn;
        void *ctx;
    } subscribers[SUBSCRIBERS];
    atomic_int count; /* written under the lock; read without lock to skip events without subscribers */
    uint64_t next_index;
};

static _Thread_local fri_event_log own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static fri_event_log *log_of(const fri_event_log *log) {
    if (log != NULL) return (fri_event_log *)log;
    return fri_here.events != NULL ? fri_here.events : &own;
}

fr_status fri_event_log_create(fri_event_log **out) {
    fri_event_log *l = calloc(1, sizeof *l);
    if (l == NULL) return fr_fail(FR_ENOMEM, "memory events: out of host memory");
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return FR_OK;
}

void fri_event_log_destroy(fri_event_log **log) {
    if (*log != NULL) pthread_mutex_destroy(&(*log)->lock);
    free(*log);
    *log = NULL;
}

fri_event_log *fri_event_log_use(fri_event_log *log) {
    fri_event_log *was = fri_here.events;
    fri_here.events = log;
    return was;
}

fr_status fr_event_subscribe(fr_event_fn *fn, void *ctx) {
    fri_event_log *l = log_of(NULL);
    fr_status s = FR_OK;
    pthread_mutex_lock(&l->lock);
    if (l->count == SUBSCRIBERS) {
        s = fr_fail(FR_ENOMEM, "memory events: %d subscribers are the most, and all are in use", SUBSCRIBERS);
    } else {
        l->subscribers[l->count].fn = fn;
        l->subscribers[l->count].ctx = ctx;
        l->count++;
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

void fr_event_unsubscribe(fr_event_fn *fn, void *ctx) {
    fri_event_log *l = log_of(NULL);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->count; i++)
        if (l->subscribers[i].fn == fn && l->subscribers[i].ctx == ctx) {
            for (int j = i + 1; j < l->count; j++) l->subscribers[j - 1] = l->subscribers[j];
            l->count--;
            break;
        }
    pthread_mutex_unlock(&l->lock);
}

void *fr_event_context(fr_event_fn *fn) {
    fri_event_log *l = log_of(NULL);
    void *ctx = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->count; i++)
        if (l->subscribers[i].fn == fn) ctx = l->subscribers[i].ctx;
    pthread_mutex_unlock(&l->lock);
    return ctx;
}

bool fri_event_wanted(const fri_event_log *log) {
    return atomic_load_explicit(&log_of(log)->count, memory_order_relaxed) > 0;
}

void fri_event_emit(fri_event_log *log, fr_event *e) {
    fri_event_log *l = log_of(log);
    pthread_mutex_lock(&l->lock);
    e->index = l->next_index++;
    for (int i = 0; i < l->count; i++) l->subscribers[i].fn(l->subscribers[i].ctx, e);
    pthread_mutex_unlock(&l->lock);
}

void fri_event_mark(fr_event_kind kind) {
    if (!fri_event_wanted(NULL)) return;
    fr_event e = {.kind = kind, .tag = {.op = fri_scope_op(), .module = fri_scope_module(), .phase = fr_phase_get()}};
    fri_event_emit(NULL, &e);
}

bool fr_event_live(const fr_event *e, fr_device device, size_t live[FR_CATEGORY_COUNT]) {
    bool from = e->kind == FR_EVENT_FREE || e->kind == FR_EVENT_RELABEL;
    bool to = e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_RELABEL;
    if (e->device != device || !(from || to)) return false;
    if (from) live[e->kind == FR_EVENT_FREE ? e->tag.category : e->from] -= e->requested;
    if (to) live[e->tag.category] += e->requested;
    return true;
}
