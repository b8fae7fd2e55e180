/* registry.c - the only file with the backends' names: from a device to table, name, and reason of absence. */
#include "backend/backend.h"
#include "base/process.h"
#include "meta/meta.h"

#include <string.h>

extern const fri_backend fri_backend_cpu, fri_backend_meta;
#ifdef FRI_HAVE_CUDA
extern const fri_backend fri_backend_cuda;
#endif

static const char *const names[FR_DEVICE_COUNT] = {[FR_CPU] = "cpu", [FR_CUDA] = "cuda", [FR_META] = "meta"};

static const fri_backend *overrides[FR_DEVICE_COUNT];

void fri_backend_override(fr_device d, const fri_backend *b) {
    overrides[d] = b;
}

const fri_backend *fri_backend_get(fr_device d) {
    if ((int)d >= 0 && (int)d < FR_DEVICE_COUNT && overrides[d] != NULL) return overrides[d];
    switch (d) {
    case FR_CPU: return &fri_backend_cpu;
    case FR_META: return &fri_backend_meta;
    case FR_CUDA:
#ifdef FRI_HAVE_CUDA
        return &fri_backend_cuda;
#else
        return NULL;
#endif
    }
    return NULL;
}

fr_status fri_kernel_missing(const char *kernel, fr_dtype t, const fri_backend *b) {
    return fr_fail(FR_EUNSUPPORTED, "%s: the %s backend has no kernel for %s data", kernel, b->name, fr_dtype_name(t));
}

const char *fr_device_name(fr_device d) {
    return (int)d >= 0 && (int)d < FR_DEVICE_COUNT ? names[d] : "?";
}

/* "" if the device can be used. */
const char *fr_device_reason(fr_device d) {
    if ((int)d < 0 || (int)d >= FR_DEVICE_COUNT) return "no such device";
    const fri_backend *b = fri_backend_get(d);
    if (b == NULL) return d == FR_CUDA ? "this build has no CUDA backend" : "this build has no such backend";
    const char *reason = "";
    return b->available(&reason) ? "" : reason;
}

bool fr_device_available(fr_device d) {
    return fr_device_reason(d)[0] == '\0';
}

bool fri_device_built(fr_device d) {
    return (int)d >= 0 && (int)d < FR_DEVICE_COUNT && fri_backend_get(d) != NULL;
}

bool fr_device_is_asynchronous(fr_device d) {
    const fri_backend *b = d == FR_META ? fri_meta_target() : fri_device_built(d) ? fri_backend_get(d) : NULL;
    return b != NULL && b->streams != NULL;
}

const char *fri_device_describe(fr_device d, char *buf, size_t bytes) {
    const fri_backend *b = fri_device_built(d) ? fri_backend_get(d) : NULL;
    if (buf == NULL || bytes == 0) return buf;
    buf[0] = '\0';
    if (b != NULL && b->describe != NULL) b->describe(buf, bytes);
    return buf;
}

const char *fri_device_describe_bits(fr_device d, fr_dtype compute, char *buf, size_t bytes) {
    const fri_backend *b = fri_device_built(d) ? fri_backend_get(d) : NULL;
    if (b == NULL || b->describe_bits == NULL) return fri_device_describe(d, buf, bytes);
    b->describe_bits(compute, buf, bytes);
    return buf;
}

int fri_device_numerics(fr_device d) {
    return fri_device_built(d) ? fri_backend_get(d)->numerics : 0;
}

void fri_pin_memory_set(bool on) {
    for (int d = 0; d < FR_DEVICE_COUNT; d++) {
        const fri_backend *b = fri_backend_get((fr_device)d);
        if (b != NULL && b->pin_memory != NULL) b->pin_memory(on);
    }
}

fr_status fr_device_parse(const char *name, fr_device *out) {
    FRI_NOT_NULL(name, out);
    for (int i = 0; i < FR_DEVICE_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (fr_device)i;
            return FR_OK;
        }
    return fr_fail(FR_EINVAL, "'%s' is not a device; use cpu, cuda or meta", name);
}
