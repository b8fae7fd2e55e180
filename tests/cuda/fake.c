/* fake.c - see fake.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* a recursive lock without a call */
#endif
#include "cuda/fake.h"

#include "backend/backend.h"
#include "cuda/check.h"
#include "cuda/fake_order.h"
#include "cuda/fake_kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fake_state fake;

static const char *hidden, *lacking;

static bool is_lacking(const char *name) {
    return lacking != NULL && strstr(name, lacking) != NULL;
}

enum { STREAMS = FAKE_ORDER_STREAMS, EVENTS = 512, PINNED = 256, SEGMENTS = 1024 };

/* An item in a stream: a copy, a library's call, or an order to follow a second stream up to a place. */
typedef struct work {
    bool (*over)(void *ctx); /* or NULL */
    void *ctx;
    void *dst;
    const void *src;
    size_t bytes;
    int follow; /* the followed stream, or -1 */
    size_t up_to;
} work;

static struct {
    work *items;
    size_t count, capacity, done;
} queue[STREAMS];

static struct {
    int stream;
    size_t at;  /* items queued in the event's stream at the record */
    int begun;  /* kernels begun by the record */
    bool spins; /* waiting thread */
    fake_clock clock;
    double ms;
} events[EVENTS];

static struct { char *begin, *end; } pinned[PINNED];

static size_t made_events, n_pinned;

/* Calls of several threads run in turn. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int fake_enter(void) {
    return pthread_mutex_lock(&lock);
}

void fake_leave(const int *entered) {
    if (*entered == 0) pthread_mutex_unlock(&lock);
}

#define GUARD __attribute__((cleanup(fake_leave), unused)) const int entered = fake_enter()

static cudaError_t fails(cudaError_t code) {
    if (code != cudaSuccess) fake.sticky = code;
    return code;
}

static int index_of(cudaStream_t stream) {
    return (int)((uintptr_t)stream & 0xfff);
}

int fake_compute_stream(void) {
    return index_of(fri_cuda_stream());
}

static void run(int stream, size_t up_to);
static bool calls_wait(int stream, size_t up_to);

void fake_kernel_begins(void *stream) {
    const int i = stream != NULL ? index_of(stream) : fake_compute_stream();
    fake.launches++;
    if (!calls_wait(i, queue[i].count)) run(i, queue[i].count);
    fake_order_begin(i);
}

static void run(int stream, size_t up_to) {
    while (queue[stream].done < up_to) {
        work w = queue[stream].items[queue[stream].done];
        while (w.over != NULL && !w.over(w.ctx)) usleep(20);
        queue[stream].done++;
        if (w.over != NULL) {
            continue;
        } else if (w.follow >= 0) {
            run(w.follow, w.up_to);
        } else {
            memcpy(w.dst, w.src, w.bytes);
            fake.queued--;
        }
    }
}

static void finish_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        const fake_clock now = fake_order_mark(i);
        fake_order_host(&now);
        run(i, queue[i].count);
    }
}

static void append(int stream, work w) {
    if (queue[stream].count == queue[stream].capacity) {
        queue[stream].capacity = queue[stream].capacity > 0 ? 2 * queue[stream].capacity : 256;
        queue[stream].items = realloc(queue[stream].items, queue[stream].capacity * sizeof w);
    }
    queue[stream].items[queue[stream].count++] = w;
}

static bool calls_wait(int stream, size_t up_to) {
    for (size_t i = queue[stream].done; i < up_to; i++)
        if (queue[stream].items[i].over != NULL) return true;
    return false;
}

/* Queued calls of a library move on when the host looks. */
static void look(int stream, size_t up_to) {
    while (calls_wait(stream, up_to)) {
        const work *w = &queue[stream].items[queue[stream].done];
        if (w->over != NULL && !w->over(w->ctx)) return;
        if (w->over != NULL)
            queue[stream].done++;
        else
            run(stream, queue[stream].done + 1);
    }
}

void fake_queue_call(cudaStream_t stream, bool (*over)(void *ctx), void *ctx) {
    GUARD;
    fake_order_begin(index_of(stream));
    append(index_of(stream), (work){.over = over, .ctx = ctx, .follow = -1});
}

bool fake_defers(void *stream) {
    const int i = stream != NULL ? index_of(stream) : fake_compute_stream();
    return calls_wait(i, queue[i].count);
}

static bool is_pinned(const void *p) {
    for (size_t i = 0; i < n_pinned; i++)
        if (pinned[i].begin <= (const char *)p && (const char *)p < pinned[i].end) return true;
    return false;
}

/* ---- cudart ---------------------------------------------------------------------------------------------------- */

static cudaError_t function_attributes(struct cudaFuncAttributes *attributes, const void *function) {
    GUARD;
    (void)attributes;
    (void)function;
    return fails(fake.no_code);
}

static cudaError_t driver_version(int *version) {
    *version = fake.driver;
    return cudaSuccess;
}

static cudaError_t device_count(int *n) {
    *n = fake.devices;
    return fails(fake.count_error);
}

static cudaError_t properties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake %d", device);
    if (fake.name != NULL) snprintf(p->name, sizeof p->name, "%s", fake.name);
    p->major = fake.major;
    p->minor = fake.minor;
    p->multiProcessorCount = 132;
    p->totalGlobalMem = fake.memory;
    p->pciDomainID = 1;
    p->pciBusID = 0x2a;
    return cudaSuccess;
}

static cudaError_t set_device(int device) {
    return device < fake.devices ? cudaSuccess : fails(cudaErrorInvalidDevice);
}

static cudaError_t device_synchronize(void) {
    GUARD;
    fake.device_waits++;
    finish_all();
    return cudaSuccess;
}

static cudaError_t last_error(void) {
    GUARD;
    cudaError_t code = fake.sticky;
    fake.sticky = cudaSuccess;
    return code;
}

static const char *error_string(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "out of memory" : "fake failure";
}

static const char *error_name(cudaError_t code) {
    (void)code;
    return "cudaErrorFake";
}

static struct {
    void *at;
    size_t bytes;
} segments[SEGMENTS];

static cudaError_t allocate(void **out, size_t bytes) {
    GUARD;
    int i = 0;
    while (i < SEGMENTS && segments[i].at != NULL) i++;
    if (bytes > fake.memory || i == SEGMENTS) return fails(cudaErrorMemoryAllocation);
    fake.memory -= bytes;
    if (fake.memory < fake.least) fake.least = fake.memory;
    fake.segments++;
    segments[i].at = *out = aligned_alloc(512, (bytes + 511) / 512 * 512);
    segments[i].bytes = bytes;
    return cudaSuccess;
}

/* Frees memory after a wait for the device, as the real function does. */
static cudaError_t release(void *p) {
    GUARD;
    fake.frees++;
    fake.segments--;
    finish_all();
    for (int i = 0; i < SEGMENTS; i++)
        if (segments[i].at == p && p != NULL) {
            fake.memory += segments[i].bytes;
            segments[i].at = NULL;
        }
    free(p);
    return cudaSuccess;
}

static cudaError_t memory_info(size_t *left, size_t *total) {
    GUARD;
    *left = fake.memory;
    *total = (size_t)1 << 30;
    return cudaSuccess;
}

static cudaError_t host_allocate(void **out, size_t bytes, unsigned flags) {
    GUARD;
    (void)flags;
    if (fake.no_pinned || n_pinned == PINNED) return fails(cudaErrorMemoryAllocation);
    *out = malloc(bytes);
    pinned[n_pinned].begin = *out;
    pinned[n_pinned++].end = (char *)*out + bytes;
    return cudaSuccess;
}

static cudaError_t host_release(void *p) {
    GUARD;
    for (size_t i = 0; i < n_pinned; i++)
        if (pinned[i].begin == p) pinned[i] = pinned[--n_pinned];
    free(p);
    return cudaSuccess;
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    GUARD;
    if (fake.copy_error != cudaSuccess) return fails(fake.copy_error);
    if (kind == cudaMemcpyHostToDevice && !is_pinned(src)) fake.waiting_copies++;
    if (kind == cudaMemcpyDeviceToHost && !is_pinned(dst)) fake.waiting_copies++;
    fake_order_begin(index_of(stream));
    fake_order_access(src, bytes, false);
    fake_order_access(dst, bytes, true);
    append(index_of(stream), (work){.dst = dst, .src = src, .bytes = bytes, .follow = -1});
    fake.copies++;
    fake.queued++;
    return cudaSuccess;
}

static cudaError_t set_bytes(void *p, int value, size_t bytes, cudaStream_t stream) {
    GUARD;
    fake_order_begin(index_of(stream));
    fake_order_access(p, bytes, true);
    run(index_of(stream), queue[index_of(stream)].count);
    memset(p, value, bytes);
    return cudaSuccess;
}

static cudaError_t stream_create(cudaStream_t *out, unsigned flags) {
    GUARD;
    if (flags != cudaStreamNonBlocking || fake.streams + 1 == STREAMS) return fails(cudaErrorInvalidValue);
    fake.streams++;
    *out = (cudaStream_t)(uintptr_t)(0x1000 + fake.streams);
    return cudaSuccess;
}

static cudaError_t stream_synchronize(cudaStream_t stream) {
    GUARD;
    const fake_clock now = fake_order_mark(index_of(stream));
    fake_order_host(&now);
    fake.stream_waits++;
    run(index_of(stream), queue[index_of(stream)].count);
    return cudaSuccess;
}

static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    GUARD;
    (void)flags;
    fake.follows++;
    fake.stalls += stream == fri_cuda_stream() && events[(uintptr_t)event - 1].begun == fake.launches;
    fake_order_follow(index_of(stream), &events[(uintptr_t)event - 1].clock);
    append(index_of(stream),
           (work){.follow = events[(uintptr_t)event - 1].stream, .up_to = events[(uintptr_t)event - 1].at});
    return cudaSuccess;
}

static cudaError_t event_create(cudaEvent_t *out, unsigned flags) {
    GUARD;
    if (made_events == EVENTS) return fails(cudaErrorMemoryAllocation);
    events[made_events].spins = !(flags & cudaEventBlockingSync);
    *out = (cudaEvent_t)(uintptr_t)(++made_events);
    fake.events++;
    return cudaSuccess;
}

/* Only the newest event's place is used again. */
static cudaError_t event_destroy(cudaEvent_t event) {
    GUARD;
    if ((uintptr_t)event == made_events) made_events--;
    fake.events--;
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    GUARD;
    fake.records++;
    events[(uintptr_t)event - 1].clock = fake_order_mark(index_of(stream));
    events[(uintptr_t)event - 1].begun = fake.launches;
    events[(uintptr_t)event - 1].stream = index_of(stream);
    events[(uintptr_t)event - 1].at = queue[index_of(stream)].count;
    events[(uintptr_t)event - 1].ms = fake.clock_ms;
    return cudaSuccess;
}

static cudaError_t event_synchronize(cudaEvent_t event) {
    GUARD;
    fake.event_waits++;
    fake_order_host(&events[(uintptr_t)event - 1].clock);
    fake.spins += events[(uintptr_t)event - 1].spins;
    run(events[(uintptr_t)event - 1].stream, events[(uintptr_t)event - 1].at);
    return cudaSuccess;
}

static cudaError_t event_elapsed_time(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    *ms = (float)(events[(uintptr_t)end - 1].ms - events[(uintptr_t)begin - 1].ms);
    return cudaSuccess;
}

static cudaError_t event_query(cudaEvent_t event) {
    GUARD;
    fake.queries++;
    look(events[(uintptr_t)event - 1].stream, events[(uintptr_t)event - 1].at);
    size_t done = queue[events[(uintptr_t)event - 1].stream].done;
    if (events[(uintptr_t)event - 1].at > done) return fails(cudaErrorNotReady);
    fake_order_host(&events[(uintptr_t)event - 1].clock);
    return cudaSuccess;
}

static const fri_cudart table = {
    .DriverGetVersion = driver_version,
    .GetDeviceCount = device_count,
    .GetDeviceProperties = properties,
    .FuncGetAttributes = function_attributes,
    .SetDevice = set_device,
    .DeviceSynchronize = device_synchronize,
    .GetLastError = last_error,
    .GetErrorString = error_string,
    .GetErrorName = error_name,
    .Malloc = allocate,
    .Free = release,
    .MemGetInfo = memory_info,
    .HostAlloc = host_allocate,
    .FreeHost = host_release,
    .MemcpyAsync = copy,
    .MemsetAsync = set_bytes,
    .StreamCreateWithFlags = stream_create,
    .StreamSynchronize = stream_synchronize,
    .StreamWaitEvent = stream_wait_event,
    .EventCreateWithFlags = event_create,
    .EventDestroy = event_destroy,
    .EventRecord = event_record,
    .EventSynchronize = event_synchronize,
    .EventElapsedTime = event_elapsed_time,
    .EventQuery = event_query,
};

/* ---- libraries ------------------------------------------------------------------------------------------------- */

static size_t cudnn_version(void) {
    return fake.cudnn;
}

/* Every library exists and every symbol has an address: only NVML and cuDNN's version are called, unless a test says
 * so. */
static void *open_fake(const char *name) {
    return hidden != NULL && strstr(name, hidden) != NULL ? NULL : &fake;
}

static void *symbol_of(void *library, const char *name) {
    void *at = fake.symbol != NULL ? fake.symbol(name) : NULL;
    if (is_lacking(name)) return NULL;
    if (strncmp(name, "nvml", 4) == 0) return fake_nvml(name);
    if (strcmp(name, "cudnnGetVersion") == 0) {
        size_t (*f)(void) = cudnn_version;
        memcpy(&at, &f, sizeof at);
    }
    return at != NULL ? at : library;
}

static const fri_cuda_opener opener = {open_fake, symbol_of};

void fake_hide(const char *name) {
    hidden = name;
}

void fake_lack(const char *name) {
    lacking = name;
}

void fake_begin(void) {
    const size_t gib = (size_t)1 << 30;
    fake = (fake_state){.devices = 1, .driver = 13000, .cudnn = 91900, .major = 9, .memory = gib, .least = gib};
    fake_order_reset();
    hidden = "libnccl"; /* fake_nccl.c has one */
    fri_cuda_opener_table = &opener;
    fri_cuda_use(&table);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static fr_status (*room_of_cuda)(size_t *bytes);

/* Makes no handles. */
static fr_status room(size_t *bytes) {
    if (getenv("FRUGAL_CUDA_DEVICE") != NULL) return room_of_cuda(bytes);
    *bytes = fake.memory;
    fake.memory -= fake.others;
    fake.others = 0;
    return FR_OK;
}

void fake_kernels(void) {
    static fri_backend device;
    device = *fri_backend_get(FR_CUDA);
    const fri_backend *cpu = fri_backend_get(FR_CPU);
    fake_kernels_wrap(&cpu->kernels, &cpu->kernels_f64, &device.kernels, &device.kernels_f64);
    device.describe = NULL; /* asks cuDNN */
    room_of_cuda = device.room;
    device.room = room;
    fri_backend_override(FR_CUDA, &device);
}
