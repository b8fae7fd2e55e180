/* expandable.c - see expandable.h. */
#include "expandable.h"

#include "base/env.h"

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The functions have not changed since CUDA 10.2; asked for as of 12.0, which every driver has whose runtime (12.5 and
 * newer) has the lookup. */
enum { DRIVER_VERSION = 12000 };

/* clang-format off */
#define DRIVER_MAP(X)                                                                                            \
    X(DeviceGet) X(DeviceGetAttribute) X(MemGetAllocationGranularity) X(MemAddressReserve) X(MemAddressFree)     \
    X(MemCreate) X(MemRelease) X(MemMap) X(MemUnmap) X(MemSetAccess)
/* clang-format on */

static struct {
#define DRIVER_SLOT(name) __typeof__(cu##name) *name;
    DRIVER_MAP(DRIVER_SLOT)
#undef DRIVER_SLOT
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool looked, there;
static char reason[512];
static size_t total_bytes, granularity;
static CUmemAllocationProp property;
static CUmemAccessDesc access_of;

static bool look_up(const char *name, void *slot) {
    void *f = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t code =
        fri_cudart_table->GetDriverEntryPointByVersion(name, &f, DRIVER_VERSION, cudaEnableDefault, &found);
    if (code == cudaSuccess && found == cudaDriverEntryPointSuccess && f != NULL) {
        memcpy(slot, &f, sizeof f);
        return true;
    }
    (void)fri_cudart_table->GetLastError();
    snprintf(reason, sizeof reason, "the driver has no %s", name);
    return false;
}

/* Maps a granule and gives it back; of the call that fails the error, and its name. */
static CUresult try_granule(CUdeviceptr at, const char **call) {
    CUmemGenericAllocationHandle handle = 0;
    *call = "cuMemCreate";
    CUresult code = driver.MemCreate(&handle, granularity, &property, 0);
    if (code != CUDA_SUCCESS) return code;
    *call = "cuMemMap";
    code = driver.MemMap(at, granularity, 0, handle, 0);
    (void)driver.MemRelease(handle);
    if (code != CUDA_SUCCESS) return code;
    *call = "cuMemSetAccess";
    code = driver.MemSetAccess(at, granularity, &access_of, 1);
    CUresult unmapped = driver.MemUnmap(at, granularity);
    if (code != CUDA_SUCCESS || unmapped == CUDA_SUCCESS) return code;
    *call = "cuMemUnmap";
    return unmapped;
}

/* What a driver says that it has, a sandbox may refuse. */
static bool works(void) {
    CUdeviceptr at = 0;
    const char *call = "cuMemAddressReserve";
    CUresult code = driver.MemAddressReserve(&at, granularity, 0, 0, 0);
    if (code == CUDA_SUCCESS) {
        code = try_granule(at, &call);
        (void)driver.MemAddressFree(at, granularity);
    }
    if (code != CUDA_SUCCESS) snprintf(reason, sizeof reason, "%s is refused here (error %d)", call, (int)code);
    return code == CUDA_SUCCESS;
}

/* A device that is used must have it; one that is only planned for is taken to. */
static bool look(void) {
    const fri_cuda_device *d = NULL;
    const char *why;
    CUdevice device;
    int supported = 0;
    if (!fri_cuda_available(&why)) return true;
    if (fri_cuda_context(&d) < 0) {
        snprintf(reason, sizeof reason, "%.500s", fr_last_error());
        return false;
    }
#define DRIVER_LOOK(name) \
    if (!look_up("cu" #name, &driver.name)) return false;
    DRIVER_MAP(DRIVER_LOOK)
#undef DRIVER_LOOK
    total_bytes = d->total_bytes;
    property = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->index}};
    access_of = (CUmemAccessDesc){.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (driver.DeviceGet(&device, d->index) != CUDA_SUCCESS ||
        driver.DeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) !=
            CUDA_SUCCESS ||
        !supported) {
        snprintf(reason, sizeof reason, "%s has no virtual memory management", d->name);
        return false;
    }
    if (driver.MemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        granularity == 0) {
        snprintf(reason, sizeof reason, "%s does not tell the granularity of its memory", d->name);
        return false;
    }
    return works();
}

static fr_status reserve(size_t granule, void **base, size_t *bytes) {
    CUdeviceptr at = 0;
    *bytes = (total_bytes / 8 * 9 + granule - 1) / granule * granule; /* fragments leave holes: as PyTorch, 1/8 more */
    if (granule % granularity != 0) return FR_ENOMEM;
    if (driver.MemAddressReserve(&at, *bytes, 0, 0, 0) != CUDA_SUCCESS) return FR_ENOMEM;
    *base = (void *)(uintptr_t)at;
    return FR_OK;
}

/* What runs may still use the memory, and unmapping does not wait for it. */
static void unmap(void *at, size_t bytes) {
    if (fri_cudart_table->DeviceSynchronize() != cudaSuccess) (void)fri_cudart_table->GetLastError();
    (void)driver.MemUnmap((CUdeviceptr)(uintptr_t)at, bytes);
}

/* One allocation per granule, so that any number of them can go back. The mapping keeps it alive: its handle goes at
 * once. */
static CUresult map_one(CUdeviceptr at, size_t granule) {
    CUmemGenericAllocationHandle handle;
    CUresult code = driver.MemCreate(&handle, granule, &property, 0);
    if (code != CUDA_SUCCESS) return code;
    code = driver.MemMap(at, granule, 0, handle, 0);
    (void)driver.MemRelease(handle);
    return code;
}

static fr_status map(void *base, size_t bytes, size_t granule) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)base;
    size_t done = 0;
    CUresult code = CUDA_SUCCESS;
    for (; done < bytes && code == CUDA_SUCCESS; done += code == CUDA_SUCCESS ? granule : 0)
        code = map_one(at + done, granule);
    if (code == CUDA_SUCCESS) code = driver.MemSetAccess(at, bytes, &access_of, 1);
    if (code == CUDA_SUCCESS) return FR_OK;
    if (done > 0) (void)driver.MemUnmap(at, done); /* nothing has used it */
    return FR_ENOMEM;
}

static void release(void *base, size_t bytes) {
    (void)driver.MemAddressFree((CUdeviceptr)(uintptr_t)base, bytes);
}

static const fri_expandable table = {reserve, map, unmap, release};

const fri_expandable *fri_cuda_expandable(void) {
    if (!fri_env_get()->expandable) return NULL;
    pthread_mutex_lock(&lock);
    if (!looked) there = look();
    looked = true;
    pthread_mutex_unlock(&lock);
    return there ? &table : NULL;
}

const char *fri_cuda_expandable_reason(void) {
    return fri_cuda_expandable() != NULL ? "" : reason;
}

void fri_cuda_expandable_forget(void) {
    pthread_mutex_lock(&lock);
    looked = there = false;
    reason[0] = '\0';
    pthread_mutex_unlock(&lock);
}
