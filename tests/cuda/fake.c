/* fake.c - see fake.h. */
#include "cuda/fake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_state fake;

enum { QUEUE = 64, EVENTS = 16 };

static struct {
    void *dst;
    const void *src;
    size_t bytes;
} queue[QUEUE];

static struct {
    size_t at; /* copies queued when it was recorded */
    double ms;
} events[EVENTS];

static size_t done, made_events;

static cudaError_t fails(cudaError_t code) {
    if (code != cudaSuccess) fake.sticky = code;
    return code;
}

static void run_until(size_t n) {
    for (; done < n; done++) memcpy(queue[done % QUEUE].dst, queue[done % QUEUE].src, queue[done % QUEUE].bytes);
    fake.queued = (size_t)fake.copies - done;
}

/* ---- cudart ---------------------------------------------------------------------------------------------------- */

static cudaError_t driver_version(int *version) {
    *version = fake.count_error == cudaErrorInsufficientDriver ? 0 : 13000;
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
    run_until((size_t)fake.copies);
    return cudaSuccess;
}

static cudaError_t last_error(void) {
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

static cudaError_t allocate(void **out, size_t bytes) {
    if (bytes > fake.memory) return fails(cudaErrorMemoryAllocation);
    fake.memory -= bytes;
    *out = aligned_alloc(512, (bytes + 511) / 512 * 512);
    return cudaSuccess;
}

static cudaError_t release(void *p) {
    fake.frees++;
    free(p);
    return cudaSuccess;
}

static cudaError_t memory_info(size_t *left, size_t *total) {
    *left = fake.memory;
    *total = (size_t)1 << 30;
    return cudaSuccess;
}

static cudaError_t host_allocate(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    if (fake.no_pinned) return fails(cudaErrorMemoryAllocation);
    *out = malloc(bytes);
    return cudaSuccess;
}

static cudaError_t host_release(void *p) {
    free(p);
    return cudaSuccess;
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    (void)stream;
    if (fake.copy_error != cudaSuccess) return fails(fake.copy_error);
    if ((size_t)fake.copies - done == QUEUE) run_until(done + 1);
    queue[(size_t)fake.copies % QUEUE].dst = dst;
    queue[(size_t)fake.copies % QUEUE].src = src;
    queue[(size_t)fake.copies % QUEUE].bytes = bytes;
    fake.copies++;
    fake.queued = (size_t)fake.copies - done;
    return cudaSuccess;
}

static cudaError_t set_bytes(void *p, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(p, value, bytes);
    return cudaSuccess;
}

static cudaError_t stream_create(cudaStream_t *out, unsigned flags) {
    if (flags != cudaStreamNonBlocking) return fails(cudaErrorInvalidValue);
    fake.streams++;
    *out = (cudaStream_t)(uintptr_t)(0x1000 + fake.streams);
    return cudaSuccess;
}

static cudaError_t stream_synchronize(cudaStream_t stream) {
    (void)stream;
    fake.stream_waits++;
    run_until((size_t)fake.copies);
    return cudaSuccess;
}

static cudaError_t event_create(cudaEvent_t *out, unsigned flags) {
    (void)flags;
    if (made_events == EVENTS) return fails(cudaErrorMemoryAllocation);
    *out = (cudaEvent_t)(uintptr_t)(++made_events);
    fake.events++;
    return cudaSuccess;
}

/* Only the newest one's place is used again. */
static cudaError_t event_destroy(cudaEvent_t event) {
    if ((uintptr_t)event == made_events) made_events--;
    fake.events--;
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    events[(uintptr_t)event - 1].at = (size_t)fake.copies;
    events[(uintptr_t)event - 1].ms = fake.clock_ms;
    return cudaSuccess;
}

static cudaError_t event_synchronize(cudaEvent_t event) {
    fake.event_waits++;
    run_until(events[(uintptr_t)event - 1].at);
    return cudaSuccess;
}

static cudaError_t event_elapsed_time(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    *ms = (float)(events[(uintptr_t)end - 1].ms - events[(uintptr_t)begin - 1].ms);
    return cudaSuccess;
}

static const fri_cudart table = {
    .DriverGetVersion = driver_version,
    .GetDeviceCount = device_count,
    .GetDeviceProperties = properties,
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
    .EventCreateWithFlags = event_create,
    .EventDestroy = event_destroy,
    .EventRecord = event_record,
    .EventSynchronize = event_synchronize,
    .EventElapsedTime = event_elapsed_time,
};

/* ---- libraries ------------------------------------------------------------------------------------------------- */

static const char *hidden, *lacking;

/* Every library is there and every symbol is some address: of them only NVML is called, unless a test says so. */
static void *open_fake(const char *name) {
    return hidden != NULL && strstr(name, hidden) != NULL ? NULL : &fake;
}

static void *symbol_of(void *library, const char *name) {
    void *at = fake.symbol != NULL ? fake.symbol(name) : NULL;
    if (lacking != NULL && strstr(name, lacking) != NULL) return NULL;
    if (strncmp(name, "nvml", 4) == 0) return fake_nvml(name);
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
    fake = (fake_state){.devices = 1, .major = 9, .memory = (size_t)1 << 30};
    fri_cuda_opener_table = &opener;
    fri_cuda_use(&table);
}
