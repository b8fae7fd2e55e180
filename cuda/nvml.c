/* nvml.c - see nvml.h. */
#include "nvml.h"

#include "base/env.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "memory.h"

#define SONAME "libnvidia-ml.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_nvml table;
static bool tried, usable;
static char why_not[256];
static int own_device; /* the one whose context was made */
static size_t before;  /* bytes in use on it before that; 0: not known */

/* ---- the library ------------------------------------------------------------------------------------------- */

static bool load(void) {
    void *library = fri_cuda_open("FRUGAL_NVML", fri_env_get()->nvml, SONAME, why_not, sizeof why_not);
    if (library == NULL) return false;
    bool all = true;
#define LOAD(slot, name, parameters) \
    all &= fri_cuda_symbol(library, SONAME, name, &table.slot, why_not, sizeof why_not);
    FRI_NVML_MAP(LOAD)
    LOAD(error, "nvmlErrorString", ())
#undef LOAD
    if (!all) return false;
    int code = table.init();
    if (code != FRI_NVML_SUCCESS) snprintf(why_not, sizeof why_not, "nvmlInit: %s", table.error(code));
    return code == FRI_NVML_SUCCESS;
}

const fri_nvml *fri_nvml_open(const char **reason) {
    pthread_mutex_lock(&lock);
    if (!tried) usable = load();
    tried = true;
    pthread_mutex_unlock(&lock);
    *reason = usable ? "" : why_not;
    return usable ? &table : NULL;
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

/* By its place on the bus: NVML's numbering does not know CUDA_VISIBLE_DEVICES. */
static void *handle_of(const fri_nvml *nvml, int device) {
    struct cudaDeviceProp p;
    char bus[32];
    void *handle = NULL;
    if (fri_cudart_table->GetDeviceProperties(&p, device) != cudaSuccess) {
        (void)fri_cudart_table->GetLastError();
        return NULL;
    }
    snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
             (unsigned)p.pciDeviceID);
    return nvml->handle(bus, &handle) == FRI_NVML_SUCCESS ? handle : NULL;
}

static bool device_memory(const fri_nvml *nvml, void *handle, fri_nvml_memory *m) {
    *m = (fri_nvml_memory){.version = FRI_NVML_MEMORY_VERSION};
    return handle != NULL && nvml->memory(handle, m) == FRI_NVML_SUCCESS;
}

/* 0: the driver does not list this process, or does not say how much it holds. */
static size_t own_memory(const fri_nvml *nvml, void *handle) {
    unsigned n = 64, pid = (unsigned)getpid();
    size_t used = 0;
    for (int attempt = 0; attempt < 3; attempt++) { /* the list may grow between two calls */
        fri_nvml_process *list = calloc(n, sizeof *list);
        unsigned room = n;
        if (list == NULL) return 0;
        int code = nvml->processes(handle, &n, list);
        for (unsigned i = 0; code == FRI_NVML_SUCCESS && i < n && i < room; i++)
            if (list[i].pid == pid && list[i].used != ~0ull) used += (size_t)list[i].used;
        free(list);
        if (code != FRI_NVML_INSUFFICIENT_SIZE) break;
        n = (n > room ? n : room) + 16;
    }
    return used;
}

void fri_nvml_baseline(int device) {
    const char *reason;
    fri_nvml_memory m;
    const fri_nvml *nvml = fri_nvml_open(&reason);
    own_device = device;
    before = nvml != NULL && device_memory(nvml, handle_of(nvml, device), &m) ? (size_t)m.used : 0;
}

void fri_cuda_memory_use(fr_memory_use *out) {
    const char *reason;
    fri_nvml_memory m;
    size_t left = 0;
    *out = (fr_memory_use){.source = ""};
    if (!fri_cuda_available(&reason)) return;
    const fri_nvml *nvml = fri_nvml_open(&reason);
    void *handle = nvml != NULL ? handle_of(nvml, own_device) : NULL;
    if (nvml != NULL && device_memory(nvml, handle, &m)) {
        out->device = (size_t)m.used;
        out->total = (size_t)m.total;
        out->process = own_memory(nvml, handle);
        out->source = "NVML";
        if (out->process > 0 || before == 0 || m.used < before) return;
        out->process = (size_t)m.used - before;
        out->source = "NVML, which does not list this process: the device's growth since its context was made";
        return;
    }
    if (fri_cuda_stream() == NULL) return; /* asking would make a context */
    fri_cuda_memory_info(&left, &out->total);
    out->device = out->total - left;
    out->source = "cudaMemGetInfo, NVML cannot be used";
}
