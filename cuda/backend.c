/* backend.c - CUDA as a backend: memory and table of kernels. f64 data can be filled, copied and converted, without
 * arithmetic. */
#include "backend/backend.h"

#include <inttypes.h>
#include <stdio.h>

#include "context.h"
#include "conv2d.h"
#include "kernels.h"
#include "memory.h"
#include "nvml.h"
#include "streams.h"

static void describe_plans(char *buf, size_t bytes) {
    int64_t timed, guessed;
    fri_cuda_conv2d_timed(&timed, &guessed);
    buf[0] = '\0';
    if (timed + guessed > 0)
        snprintf(buf, bytes, "cudnn-benchmark: %" PRId64 " of %" PRId64 " plans are timed ones%s", timed,
                 timed + guessed,
                 guessed == 0 ? ""
                 : timed == 0 ? "; nothing to time them on, so scratch is that of the heuristics' choice"
                              : "; the scratch of the others is that of the heuristics' choice");
}

extern const fri_backend fri_backend_cuda; /* read only by the registry, so not in a header */

#define SLOT(name_, type, need) FRI_IF_##need(.name_ = fri_cuda_##name_, )

const fri_backend fri_backend_cuda = {
    .name = "cuda",
    .device = FR_CUDA,
    .available = fri_cuda_available,
    .segment_alloc = fri_cuda_segment_alloc,
    .segment_free = fri_cuda_segment_free,
    .memory_info = fri_cuda_memory_info,
    .room = fri_cuda_room,
    .memory_use = fri_cuda_memory_use,
    .copy = fri_cuda_copy,
    .describe = fri_cuda_describe,
    .numerics = 3,
    .remark = describe_plans,
    .pin_memory = fri_cuda_pin_memory,
    .synchronize = fri_cuda_synchronize,
    .streams = &fri_cuda_streams,
    .kernels = {FRI_KERNEL_MAP(SLOT).batchnorm2d_reads_parts = fri_cuda_batchnorm2d_reads_parts},
    .kernels_f64 = {FRI_MEMORY_KERNELS(SLOT)},
};
