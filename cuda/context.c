/* context.c - see context.h. */
#include "base/process.h"
#include "context.h"

#include "base/env.h"
#include "cublaslt.h"
#include "cudnn.h"
#include "kernels.h"

#include <frugal/addon.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "streams.h"

/* ---- errors ------------------------------------------------------------------------------------------------ */

/* CUDA reports faults of a kernel at a later call, so the call that returns the error may be innocent. FRUGAL_SYNC=1
 * makes errors synchronous. */
static const char *async_fault_hint(int code) {
    if (code < (int)cudaErrorIllegalAddress || code > (int)cudaErrorLaunchFailure || fri_env_get()->sync) return "";
    return ": an earlier kernel may be at fault; FRUGAL_SYNC=1 names it";
}

fr_status fri_cuda_check(int code, const char *call) {
    if (code == (int)cudaSuccess) return FR_OK;
    const char *text = fri_cudart_table->GetErrorString((cudaError_t)code);
    (void)fri_cudart_table->GetLastError();
    return fr_fail(code == (int)cudaErrorMemoryAllocation ? FR_ENOMEM : FR_ELIBRARY, "%s: %s (CUDA error %d)%s", call,
                   text, code, async_fault_hint(code));
}

fr_status fri_cuda_launched(const char *kernel) {
    int code = (int)fri_cudart_table->GetLastError();
    if (code == (int)cudaSuccess && fri_env_get()->sync)
        code = (int)fri_cudart_table->StreamSynchronize(fri_cuda_stream());
    return fri_cuda_check(code, kernel);
}

/* cuDNN reports missing memory for a kernel's module or stack as a failure of the execution. */
bool fri_cuda_memory_is_short(void) {
    size_t left = 0, total = 0;
    fri_cuda_memory_info(&left, &total);
    return total > 0 && left < (size_t)64 << 20;
}

fr_status fri_cuda_library_no_memory(const char *call, const char *library, int code) {
    size_t left = 0, total = 0;
    fri_cuda_memory_info(&left, &total);
    return fr_fail(FR_ENOMEM, "%s: %s needs memory beside the engine's (%d), and %zu of the device's %zu MiB are free",
                   call, library, code, left >> 20, total >> 20);
}

fr_status fri_cuda_no_type(const char *kernel, fr_dtype t) {
    return fr_fail(FR_EUNSUPPORTED, "%s: the cuda kernel for f32, f16 and bf16 data was called with %s data", kernel,
                   fr_dtype_name(t));
}

fr_status fri_cuda_workspace(const fri_exec *e, const char *kernel, size_t need) {
    const size_t got = e->workspace != NULL ? e->workspace_bytes : 0;
    if (got >= need) return FR_OK;
    return fr_fail(FR_EINTERNAL, "%s: needs %zu bytes of workspace but was handed %zu", kernel, need, got);
}

/* ---- the device -------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool probed, usable;
static char why_not[512];
static fri_cuda_device device;
static cudaStream_t compute; /* a stream, not synchronizing with the default stream */

/* Chooses a device of n: the first, or a separate device for each rank of a machine. The launcher may show a rank a
 * single device. CUDA_VISIBLE_DEVICES selects visible devices. */
static bool choose_device(int n) {
    int rank = 0;
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        if ((*a)->local_rank != NULL) rank = (*a)->local_rank();
    device = (fri_cuda_device){.count = n, .index = n > 1 ? rank : 0};
    if (device.index < n) return true;
    snprintf(why_not, sizeof why_not, "no CUDA device for rank %d of this machine: the driver sees %d", rank, n);
    return false;
}

/* A build holds code for the devices of its option gpu_arch, and an unsupported device fails only when a kernel
 * runs. */
static bool has_code(void) {
    struct cudaFuncAttributes attributes;
    const cudaError_t code = fri_cudart_table->FuncGetAttributes(&attributes, fri_cuda_fill_kernel());
    if (code == cudaSuccess) return true;
    (void)fri_cudart_table->GetLastError();
    if (code != cudaErrorNoKernelImageForDevice) return true;
    snprintf(why_not, sizeof why_not, "this build has no code for %s, compute capability %d.%d (option gpu_arch): %s",
             device.name, device.major, device.minor, fri_cudart_table->GetErrorString(code));
    return false;
}

static bool probe_driver(void) {
    const fri_cudart *rt = fri_cudart_table;
    struct cudaDeviceProp p;
    int n = 0, driver = 0;
    cudaError_t code = rt->GetDeviceCount(&n);
    if (code != cudaSuccess) {
        (void)rt->GetLastError();
        if (code != cudaErrorInsufficientDriver || rt->DriverGetVersion(&driver) != cudaSuccess)
            snprintf(why_not, sizeof why_not, "no CUDA device: %s", rt->GetErrorString(code));
        else if (driver == 0)
            snprintf(why_not, sizeof why_not, "no CUDA device: this machine has no NVIDIA driver");
        else
            snprintf(why_not, sizeof why_not,
                     "no CUDA device: the NVIDIA driver is for CUDA %d.%d, too old for this build's CUDA %d.%d",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        return false;
    }
    if (n < 1) {
        snprintf(why_not, sizeof why_not, "no CUDA device: the driver sees none");
        return false;
    }
    if (!choose_device(n)) return false;
    if ((code = rt->GetDeviceProperties(&p, device.index)) != cudaSuccess) {
        (void)rt->GetLastError();
        snprintf(why_not, sizeof why_not, "CUDA device %d does not tell its properties: %s", device.index,
                 rt->GetErrorString(code));
        return false;
    }
    snprintf(device.name, sizeof device.name, "%s", p.name);
    device.major = p.major;
    device.minor = p.minor;
    device.processors = p.multiProcessorCount;
    device.total_bytes = p.totalGlobalMem;
    enum { CUDNN = 75 }; /* of cuDNN 9.11, the oldest that this backend takes */
    const int has = 10 * p.major + p.minor, oldest = has < CUDNN ? CUDNN : FRI_CUDA_OLDEST_ARCH;
    if (has < oldest) {
        snprintf(why_not, sizeof why_not, "%s has compute capability %d.%d and %s %d.%d and newer%s", device.name,
                 p.major, p.minor, has < CUDNN ? "cuDNN 9.11 is for" : "this build is for", oldest / 10, oldest % 10,
                 has < CUDNN ? "" : " (option gpu_arch)");
        return false;
    }
    return has_code() && fri_cudnn_open(why_not, sizeof why_not) != NULL &&
           fri_cublaslt_open(why_not, sizeof why_not) != NULL;
}

bool fri_cuda_available(const char **reason) {
    pthread_mutex_lock(&lock);
    if (!probed) usable = probe_driver();
    probed = true;
    pthread_mutex_unlock(&lock);
    *reason = usable ? "" : why_not;
    return usable;
}

static fr_status make_stream(void) {
    fr_status s = FR_OK;
    pthread_mutex_lock(&lock);
    FRI_CUDART(s, SetDevice, (device.index));
    if (compute == NULL) FRI_CUDART(s, StreamCreateWithFlags, (&compute, cudaStreamNonBlocking));
done:
    pthread_mutex_unlock(&lock);
    return s;
}

fr_status fri_cuda_context(const fri_cuda_device **out) {
    static _Thread_local cudaStream_t current; /* the stream of the thread's current device */
    const char *reason;
    if (!fri_cuda_available(&reason)) return fr_fail(FR_EDEVICE, "cuda: %s", reason);
    if (out != NULL) *out = &device;
    if (compute != NULL && current == compute) return FR_OK;
    fr_status s = make_stream();
    if (s >= 0) current = compute;
    return s;
}

void *fri_cuda_stream(void) {
    return compute;
}

int fri_cuda_processors(void) {
    return device.processors > 0 ? device.processors : 1;
}

fr_status fri_cuda_synchronize(const fri_exec *e) {
    fr_status s = FR_OK;
    FR_TRY(s, fri_cuda_context(NULL));
    FRI_CUDART(s, StreamSynchronize, (fri_cuda_stream_of(e)));
done:
    return s;
}

void fri_cuda_forget(void) {
    fri_cuda_staging_forget();
    fri_cuda_streams_forget();
    pthread_mutex_lock(&lock);
    probed = usable = false;
    compute = NULL;
    pthread_mutex_unlock(&lock);
}

/* Results and scratch sizes depend on the planned device, the driver and the libraries' versions. */
void fri_cuda_describe(char *buf, size_t bytes) {
    char reason[256], driver[32] = "", library[64] = "no cuDNN";
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    size_t version = dnn != NULL ? dnn->GetVersion() : 0;
    int of_driver = 0;
    if (fri_cudnn_device_is_here() && fri_cudart_table->DriverGetVersion(&of_driver) == cudaSuccess)
        snprintf(driver, sizeof driver, ", driver %d.%d", of_driver / 1000, of_driver % 1000 / 10);
    if (version > 0)
        snprintf(library, sizeof library, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    snprintf(buf, bytes, "%s%s, %s%s%s", fri_cudnn_device_name(), driver, library,
             fri_cudnn_benchmark_get() ? ", benchmark" : "",
             fri_cudnn_deterministic_get() ? "" : ", not deterministic");
}
