/* fake_virtual.c - the driver's virtual memory, of the fake runtime (fake.h). */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/fake.h"

fake_virtual_state fake_virtual;

enum { HANDLES = 256 };

static bool refuses(const char *call) {
    return fake_virtual.refuses != NULL && strcmp(fake_virtual.refuses, call) == 0;
}

static size_t handle_bytes[HANDLES]; /* 0: free */
static bool was_mapped[HANDLES];     /* then its memory stays with the mapping */

static CUresult device_get(CUdevice *out, int ordinal) {
    *out = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *out, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *out = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && !fake_virtual.unsupported;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option) {
    (void)option;
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (size_t)2 << 20;
    return CUDA_SUCCESS;
}

static CUresult address_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr at,
                                unsigned long long flags) {
    (void)alignment;
    (void)at;
    (void)flags;
    if (refuses("cuMemAddressReserve")) return CUDA_ERROR_NOT_PERMITTED;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    fake_virtual.reserved += bytes;
    *out = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr at, size_t bytes) {
    fake_virtual.reserved -= bytes;
    return munmap((void *)(uintptr_t)at, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                              unsigned long long flags) {
    (void)prop;
    (void)flags;
    if (refuses("cuMemCreate")) return CUDA_ERROR_NOT_PERMITTED;
    if (fake_virtual.creates_left > 0 && --fake_virtual.creates_left == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes > fake.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < HANDLES; i++)
        if (handle_bytes[i] == 0) {
            handle_bytes[i] = bytes;
            fake.memory -= bytes;
            fake_virtual.handles++;
            *out = i + 1;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult memory_release(CUmemGenericAllocationHandle handle) {
    if (!was_mapped[handle - 1]) fake.memory += handle_bytes[handle - 1];
    handle_bytes[handle - 1] = 0;
    was_mapped[handle - 1] = false;
    fake_virtual.handles--;
    return CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
    (void)offset;
    (void)flags;
    (void)at;
    if (refuses("cuMemMap")) return CUDA_ERROR_NOT_PERMITTED;
    if (fake_virtual.maps_left > 0 && --fake_virtual.maps_left == 0) return CUDA_ERROR_UNKNOWN;
    if (handle_bytes[handle - 1] != bytes) return CUDA_ERROR_INVALID_VALUE;
    was_mapped[handle - 1] = true;
    fake_virtual.mapped += bytes;
    return CUDA_SUCCESS;
}

static CUresult memory_unmap(CUdeviceptr at, size_t bytes) {
    fake_virtual.unmapped_early += fake_work_left();
    fake_virtual.unmaps++;
    fake_virtual.mapped -= bytes;
    fake.memory += bytes;
    if (refuses("cuMemUnmap")) return CUDA_ERROR_NOT_PERMITTED;
    return mprotect((void *)(uintptr_t)at, bytes, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    if (refuses("cuMemSetAccess")) return CUDA_ERROR_NOT_PERMITTED;
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    return mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t fake_entry_point(const char *name, void **f, unsigned version, unsigned long long flags,
                             enum cudaDriverEntryPointQueryResult *found) {
    static const struct {
        const char *name;
        void (*f)(void);
    } symbols[] = {
#define SYMBOL(name_, f_) {"cu" #name_, (void (*)(void))(f_)}
        SYMBOL(DeviceGet, device_get),      SYMBOL(DeviceGetAttribute, device_attribute),
        SYMBOL(MemCreate, memory_create),   SYMBOL(MemGetAllocationGranularity, granularity),
        SYMBOL(MemRelease, memory_release), SYMBOL(MemAddressReserve, address_reserve),
        SYMBOL(MemMap, memory_map),         SYMBOL(MemAddressFree, address_free),
        SYMBOL(MemUnmap, memory_unmap),     SYMBOL(MemSetAccess, set_access),
#undef SYMBOL
    };
    (void)version;
    (void)flags;
    *found = cudaDriverEntryPointSymbolNotFound;
    if (fake_lacks(name)) return cudaSuccess;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, name) == 0) {
            memcpy(f, &symbols[i].f, sizeof *f);
            *found = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
