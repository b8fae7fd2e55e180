/* cudnn.c - see cudnn.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "cudnn.h"

#include "backend/description.h"
#include "base/container.h"
#include "base/env.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"

/* ---- the library ------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_cudnn table;
static bool loaded;

/* Has device descriptions (9.8), also as JSON (9.11); an older cuDNN would fail at the first convolution. */
enum { OLDEST = 91100 };

static bool load(char *reason, size_t bytes) {
    void *library = fri_cuda_open("FRUGAL_CUDNN", fri_env_get()->cudnn, "libcudnn.so.9", reason, bytes);
    if (library == NULL) return false;
    bool all = true;
#define LOAD(name) all &= fri_cuda_symbol(library, "libcudnn.so.9", "cudnn" #name, &table.name, reason, bytes);
    FRI_CUDNN_MAP(LOAD)
#undef LOAD
    if (!all) return false;
    size_t v = table.GetVersion(), need = OLDEST;
    if (v < need)
        snprintf(reason, bytes,
                 "libcudnn.so.9 is cuDNN %zu.%zu.%zu, and %zu.%zu or newer is needed (set FRUGAL_CUDNN to its file or "
                 "folder)",
                 v / 10000, v / 100 % 100, v % 100, need / 10000, need / 100 % 100);
    return v >= need;
}

const fri_cudnn *fri_cudnn_open(char *reason, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (!loaded) loaded = load(reason, bytes);
    pthread_mutex_unlock(&lock);
    return loaded ? &table : NULL;
}

fr_status fri_cudnn_check(const fri_cudnn *dnn, cudnnStatus_t code, const char *call) {
    char text[256] = "";
    if (code == CUDNN_STATUS_SUCCESS) return FR_OK;
    if (code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED || fri_cuda_memory_is_short())
        return fri_cuda_library_no_memory(call, "cuDNN", (int)code);
    dnn->GetLastErrorString(text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    return fr_fail(FR_ELIBRARY, "%s: %s (%d)%s%s", call, dnn->GetErrorString(code), (int)code,
                   text[0] != '\0' ? ": " : "", text);
}

/* ---- the device of the plans -------------------------------------------------------------------- */

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnBackendDescriptor_t description;
static char device_name[256];

/* "deviceName":"..." in the JSON text, for reports. */
static void name_from(const char *text, size_t length) {
    static const char key[] = "\"deviceName\"";
    const char *at = memmem(text, length, key, sizeof key - 1), *end = text + length;
    snprintf(device_name, sizeof device_name, "a device without a name");
    if (at == NULL) return;
    at += sizeof key - 1;
    while (at < end && *at != '"') at++;
    const char *first = at + 1;
    for (at = first; at < end && *at != '"';) at++;
    if (at < end) snprintf(device_name, sizeof device_name, "%.*s", (int)(at - first), first);
}

/* Description for cuDNN's plans: a GPU of the machine (*gpu), else a text to free. */
static fr_status describe(const fri_cuda_device **gpu, char **text, size_t *length) {
    *gpu = NULL;
    if (fri_cudnn_device_is_here()) {
        FRI_TRY(fri_cuda_context(gpu));
        snprintf(device_name, sizeof device_name, "%s", (*gpu)->name);
        return FR_OK;
    }
    FRI_TRY(fri_description_read(text, length));
    name_from(*text, *length);
    return FR_OK;
}

/* *text is read until the descriptor is finalized. */
static fr_status fill_in(const fri_cudnn *dnn, cudnnBackendDescriptor_t d, char **text) {
    const fri_cuda_device *gpu = NULL;
    size_t length = 0;
    FRI_TRY(describe(&gpu, text, &length));
    int32_t index = gpu != NULL ? gpu->index : 0;
    return fri_cudnn_check(dnn,
                           gpu != NULL ? dnn->BackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32,
                                                                  1, &index)
                                       : dnn->BackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                                  CUDNN_TYPE_CHAR, (int64_t)length, *text),
                           gpu != NULL ? "device properties" : "device description");
}

fr_status fri_cudnn_device(cudnnBackendDescriptor_t *out) {
    char reason[256];
    FRI_OWNED(fri_free) char *text = NULL;
    fr_status s = FR_OK;
    cudnnBackendDescriptor_t d = NULL;
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    if (dnn == NULL) return fr_fail(FR_ELIBRARY, "cuda: %s", reason);
    pthread_mutex_lock(&device_lock);
    if (description == NULL) {
        FR_TRY(s, fri_cudnn_check(dnn, dnn->BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d),
                                  "device description"));
        FR_TRY(s, fill_in(dnn, d, &text));
        FR_TRY(s, fri_cudnn_check(dnn, dnn->BackendFinalize(d), "device description"));
        FRI_MOVE(&description, d);
    }
    *out = description;
done:
    pthread_mutex_unlock(&device_lock);
    if (d != NULL) dnn->BackendDestroyDescriptor(d);
    return s;
}

bool fri_cudnn_device_is_here(void) {
    const char *path = fri_env_get()->cuda_device, *reason;
    return (path == NULL || path[0] == '\0') && fri_cuda_available(&reason);
}

const char *fri_cudnn_device_name(void) {
    const fri_cuda_device *gpu = NULL;
    FRI_OWNED(fri_free) char *text = NULL;
    size_t length = 0;
    pthread_mutex_lock(&device_lock);
    const bool known = device_name[0] != '\0' || describe(&gpu, &text, &length) == FR_OK;
    pthread_mutex_unlock(&device_lock);
    return known ? device_name : "no device description";
}

fr_status fri_cudnn_device_json(char **text) {
    char reason[256];
    int64_t bytes = 0;
    cudnnBackendDescriptor_t d;
    FRI_OWNED(fri_free) char *json = NULL;
    FRI_TRY(fri_cudnn_device(&d));
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    FRI_TRY(fri_cudnn_check(dnn,
                            dnn->BackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                                     &bytes, NULL),
                            "device description"));
    if ((json = calloc(1, (size_t)bytes + 1)) == NULL) return fr_fail(FR_ENOMEM, "cuda: out of host memory");
    FRI_TRY(fri_cudnn_check(dnn,
                            dnn->BackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                                     bytes, &bytes, json),
                            "device description"));
    FRI_MOVE(text, json);
    return FR_OK;
}

fr_status fri_cudnn_handle(void *stream, cudnnHandle_t *out) {
    static _Thread_local cudnnHandle_t handle;
    char reason[256];
    FRI_TRY(fri_cuda_context(NULL));
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    if (dnn == NULL) return fr_fail(FR_ELIBRARY, "cuda: %s", reason);
    if (handle == NULL) FRI_TRY(fri_cudnn_check(dnn, dnn->Create(&handle), "cudnnCreate"));
    FRI_TRY(fri_cudnn_check(dnn, dnn->SetStream(handle, stream), "cudnnSetStream"));
    *out = handle;
    return FR_OK;
}
