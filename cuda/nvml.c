/* nvml.c - see nvml.h. */
#include "nvml.h"

#include "base/env.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "context.h"
#include "memory.h"

#define SONAME "libnvidia-ml.so.1"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static fri_nvml nvml;
static bool usable;

static void load(void) {
    char reason[256];
    void *library = fri_cuda_open("FRUGAL_NVML", fri_env_get()->nvml, SONAME, reason, sizeof reason);
    usable = library != NULL;
#define LOAD(slot, name, parameters) \
    usable = usable && fri_cuda_symbol(library, SONAME, name, &nvml.slot, reason, sizeof reason);
    FRI_NVML_MAP(LOAD)
#undef LOAD
    usable = usable && nvml.init() == FRI_NVML_SUCCESS;
}

/* The device by bus address: NVML's numbering does not know CUDA_VISIBLE_DEVICES. */
static void *handle_of(int device) {
    struct cudaDeviceProp p;
    char bus[32];
    void *handle = NULL;
    if (fri_cudart_table->GetDeviceProperties(&p, device) != cudaSuccess) {
        (void)fri_cudart_table->GetLastError();
        return NULL;
    }
    snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
             (unsigned)p.pciDeviceID);
    return nvml.handle(bus, &handle) == FRI_NVML_SUCCESS ? handle : NULL;
}

/* 0: the driver does not list the process, or no bytes. */
static size_t own_memory(void *handle) {
    unsigned n = 64, pid = (unsigned)getpid();
    size_t used = 0;
    for (int attempt = 0; attempt < 3; attempt++) { /* the list may grow between two calls */
        fri_nvml_process *list = calloc(n, sizeof *list);
        unsigned room = n;
        if (list == NULL) return 0;
        int code = nvml.processes(handle, &n, list);
        for (unsigned i = 0; code == FRI_NVML_SUCCESS && i < n && i < room; i++)
            if (list[i].pid == pid && list[i].used != ~0ull) used += (size_t)list[i].used;
        free(list);
        if (code != FRI_NVML_INSUFFICIENT_SIZE) break;
        n = (n > room ? n : room) + 16;
    }
    return used;
}

void fri_cuda_memory_use(fr_memory_use *out) {
    const char *reason;
    const fri_cuda_device *device = NULL;
    size_t left = 0;
    *out = (fr_memory_use){.source = ""};
    if (!fri_cuda_available(&reason) || fri_cuda_stream() == NULL) return; /* asking would make a context */
    if (fri_cuda_context(&device) < 0) return;
    fri_cuda_memory_info(&left, &out->total);
    out->device = out->total - left;
    out->source = "cudaMemGetInfo";
    (void)pthread_once(&once, load);
    void *handle = usable ? handle_of(device->index) : NULL;
    if (handle != NULL) out->process = own_memory(handle);
}
