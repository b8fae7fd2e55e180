/* registry.c - the one file that names the backends: from a device to its table, and what users may ask of devices. */
#include "backend/backend.h"
#include "base/threads.h"

#include <omp.h>
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

_Thread_local const fri_kernel_watch *fri_kernel_watched;

fr_status fri_kernel_missing(const char *kernel, fr_dtype t, const fri_backend *b) {
    return fri_fail(FR_EUNSUPPORTED, "%s: the %s backend has no kernel for %s data", kernel, b->name, fr_dtype_name(t));
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

fr_status fr_device_parse(const char *name, fr_device *out) {
    FRI_NOT_NULL(name, out);
    for (int i = 0; i < FR_DEVICE_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (fr_device)i;
            return FR_OK;
        }
    return fri_fail(FR_EINVAL, "'%s' is not a device: cpu, cuda and meta are", name);
}

int fr_threads_get(void) {
    return omp_get_max_threads();
}

/* The largest number that is known to start: what was possible once is not tried again. */
static _Atomic int known_to_start = 1;

fr_status fr_threads_set(int n) {
    if (n < 1 || n > FRI_THREADS_MOST)
        return fri_fail(FR_EINVAL, "threads_set: %d threads; must lie in 1..%d", n, FRI_THREADS_MOST);
    int started = n > known_to_start ? 1 + fri_threads_startable(n - 1) : n;
    if (started < n)
        return fri_fail(FR_EUSAGE, "threads_set: %d threads are asked for, and this process may start %d", n, started);
    if (n > known_to_start) known_to_start = n;
    omp_set_num_threads(n);
    return FR_OK;
}

void fri_threads_begin(void) {
#pragma omp parallel
    { /* a team is made by its first use, and kept */
    }
}

/* ---- engines of convolutions --------------------------------------------------------------------------------- */

static _Atomic bool nondeterministic, benchmark, fuse_statistics, fuse_rebuild;

bool fr_cudnn_deterministic_get(void) {
    return !nondeterministic;
}

void fr_cudnn_deterministic_set(bool on) {
    nondeterministic = !on;
}

bool fr_cudnn_benchmark_get(void) {
    return benchmark;
}

void fr_cudnn_benchmark_set(bool on) {
    benchmark = on;
}

bool fr_cudnn_fuse_statistics_get(void) {
    return fuse_statistics;
}

void fr_cudnn_fuse_statistics_set(bool on) {
    fuse_statistics = on;
}

bool fr_cudnn_fuse_rebuild_get(void) {
    return fuse_rebuild;
}

void fr_cudnn_fuse_rebuild_set(bool on) {
    fuse_rebuild = on;
}
