/* description.c - see description.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "backend/description.h"

#include "base/container.h"
#include "base/env.h"
#include "base/status.h"

#include <frugal/files.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Written by hand from NVIDIA's data sheet and CUDA's programming guide; benchmarks/gpu_check.sh --first writes the
 * running device's real description. */
static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"totalGlobalMem\":150120000000}";

enum { DESCRIPTION_BYTES = 1 << 16 };

static fr_status read_file(const char *path, char *text, size_t *length) {
    uint64_t bytes = 0;
    int fd = -1;
    fr_status s = fr_file_open(path, &fd, &bytes);
    if (s == FR_OK && (bytes == 0 || bytes >= DESCRIPTION_BYTES))
        s = fr_fail(FR_EFORMAT, "not a device description of less than %d bytes", DESCRIPTION_BYTES);
    if (s == FR_OK) s = fr_file_read(fd, text, (size_t)bytes, 0);
    if (fd >= 0) close(fd);
    *length = (size_t)bytes;
    return s < 0 ? fr_fail_prefix(s, "FRUGAL_CUDA_DEVICE=%s: ", path) : s;
}

fr_status fri_description_read(char **text, size_t *length) {
    const char *path = fri_env_get()->cuda_device;
    const bool file = path != NULL && path[0] != '\0';
    FRI_OWNED(fri_free) char *all = calloc(1, file ? DESCRIPTION_BYTES : sizeof h200);
    if (all == NULL) return fr_fail(FR_ENOMEM, "cuda: out of host memory");
    *length = sizeof h200 - 1;
    if (file)
        FRI_TRY(read_file(path, all, length));
    else
        memcpy(all, h200, *length);
    FRI_MOVE(text, all);
    return FR_OK;
}

fr_status fri_description_room(size_t *bytes) {
    static const char key[] = "\"totalGlobalMem\":";
    static const size_t context = (size_t)700 << 20; /* with cuDNN's and cuBLASLt's code */
    FRI_OWNED(fri_free) char *text = NULL;
    size_t length = 0;
    FRI_TRY(fri_description_read(&text, &length));
    const char *at = memmem(text, length, key, sizeof key - 1);
    const size_t total = at != NULL ? (size_t)strtoull(at + sizeof key - 1, NULL, 10) : 0;
    *bytes = total > context ? total - context : 0;
    return FR_OK;
}
