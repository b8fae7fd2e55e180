/* streams.c - see streams.h. */
#include "streams.h"

#include <pthread.h>
#include <string.h>

typedef struct lane {
    cudaStream_t stream;
    cudaEvent_t event[FRI_FENCES];
    uint64_t marked, passed; /* the last fence; a passed fence */
} lane;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lane lanes[FRI_STREAM_COUNT];

/* Streams are left to the process's end, as the compute stream is. */
void fri_cuda_streams_forget(void) {
    pthread_mutex_lock(&lock);
    memset(lanes, 0, sizeof lanes);
    pthread_mutex_unlock(&lock);
}

/* The stream and events, made at the first use. The lock is held. */
static fr_status lane_of(fri_stream_id id, lane **out) {
    lane *l = &lanes[id];
    fr_status s = FR_OK;
    FR_TRY(s, fri_cuda_context(NULL));
    if (l->stream == NULL && id == FRI_STREAM_COMPUTE) l->stream = fri_cuda_stream();
    if (l->stream == NULL) FRI_CUDART(s, StreamCreateWithFlags, (&l->stream, cudaStreamNonBlocking));
    *out = l;
done:
    return s;
}

static fr_status mark_locked(fri_stream_id id, fri_fence *out) {
    lane *l = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, lane_of(id, &l));
    cudaEvent_t *event = &l->event[(l->marked + 1) % FRI_FENCES];
    if (*event == NULL) FRI_CUDART(s, EventCreateWithFlags, (event, FRI_FENCE_EVENT));
    FRI_CUDART(s, EventRecord, (*event, l->stream));
    *out = (fri_fence){id, ++l->marked};
done:
    return s;
}

static fr_status stream_mark(fri_stream_id id, fri_fence *out) {
    pthread_mutex_lock(&lock);
    fr_status s = mark_locked(id, out);
    pthread_mutex_unlock(&lock);
    return s;
}

static cudaEvent_t event_of(fri_fence f) {
    return lanes[f.stream].event[f.number % FRI_FENCES];
}

static fr_status stream_follow(fri_stream_id id, fri_fence f) {
    lane *l = NULL;
    fr_status s = FR_OK;
    if (f.number == 0 || f.stream == id) return FR_OK;
    pthread_mutex_lock(&lock);
    FR_TRY(s, lane_of(id, &l));
    /* a second thread knows the passed fences of the lane's stream */
    if (f.stream == FRI_STREAM_RANKS || lanes[f.stream].passed < f.number)
        FRI_CUDART(s, StreamWaitEvent, (l->stream, event_of(f), 0));
done:
    pthread_mutex_unlock(&lock);
    return s;
}

static void has_passed(fri_fence f) {
    pthread_mutex_lock(&lock);
    if (f.number > lanes[f.stream].passed) lanes[f.stream].passed = f.number;
    pthread_mutex_unlock(&lock);
}

static bool fence_passed(fri_fence f) {
    pthread_mutex_lock(&lock);
    const bool known = f.number <= lanes[f.stream].passed;
    pthread_mutex_unlock(&lock);
    if (known) return true;
    if (fri_cudart_table->EventQuery(event_of(f)) != cudaSuccess) {
        (void)fri_cudart_table->GetLastError(); /* cudaErrorNotReady is kept as a last error, too */
        return false;
    }
    has_passed(f);
    return true;
}

/* The host waits without the lock, because a single thread uses a stream's events. */
static fr_status fence_wait(fri_fence f) {
    fr_status s = FR_OK;
    if (fence_passed(f)) return FR_OK;
    FRI_CUDART(s, EventSynchronize, (event_of(f)));
    has_passed(f);
done:
    return s;
}

static fr_status stream_exec(fri_stream_id id, fri_exec *out) {
    lane *l = NULL;
    fr_status s = FR_OK;
    pthread_mutex_lock(&lock);
    FR_TRY(s, lane_of(id, &l));
    *out = (fri_exec){.stream = l->stream};
done:
    pthread_mutex_unlock(&lock);
    return s;
}

static fr_status stream_copy(fri_stream_id id, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    static const enum cudaMemcpyKind kinds[] = {
        [FRI_COPY_HOST_TO_DEVICE] = cudaMemcpyHostToDevice,
        [FRI_COPY_DEVICE_TO_HOST] = cudaMemcpyDeviceToHost,
        [FRI_COPY_DEVICE_TO_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    lane *l = NULL;
    fr_status s = FR_OK;
    pthread_mutex_lock(&lock);
    FR_TRY(s, lane_of(id, &l));
    FRI_CUDART(s, MemcpyAsync, (dst, src, bytes, kinds[kind], l->stream));
done:
    pthread_mutex_unlock(&lock);
    return s;
}

static fr_status host_alloc(size_t bytes, void **out) {
    *out = NULL;
    FRI_TRY(fri_cuda_context(NULL));
    cudaError_t code = fri_cudart_table->HostAlloc(out, bytes, cudaHostAllocPortable);
    if (code == cudaSuccess) return FR_OK;
    *out = NULL;
    (void)fri_cudart_table->GetLastError();
    return FR_ENOMEM;
}

/* No queued work may still use the memory. */
static void host_free(void *p, size_t bytes) {
    (void)bytes;
    if (p == NULL) return;
    for (int i = 0; i < FRI_STREAM_COUNT; i++) {
        fri_fence last = {0};
        if (lanes[i].stream != NULL && stream_mark((fri_stream_id)i, &last) == FR_OK) (void)fence_wait(last);
    }
    if (fri_cudart_table->FreeHost(p) != cudaSuccess) (void)fri_cudart_table->GetLastError();
}

const fri_streams fri_cuda_streams = {
    .mark = stream_mark,
    .follow = stream_follow,
    .wait = fence_wait,
    .passed = fence_passed,
    .copy = stream_copy,
    .exec = stream_exec,
    .host_alloc = host_alloc,
    .host_free = host_free,
};
