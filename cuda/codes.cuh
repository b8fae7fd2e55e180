/* codes.cuh - shared parts of 8-bit optimizers: a value is the map's entry at the code, times the scale of a block of
 * FRI_SCALE_BLOCK elements. A block of threads has a thread per element. */
#ifndef FRI_CUDA_CODES_CUH
#define FRI_CUDA_CODES_CUH

#include "backend/arith_optim.h"
#include "multi.cuh"

enum { FRI_CODES_BLOCKS = 32 /* of elements per block of threads, with a single read of the maps */ };

static_assert(FRI_SCALE_BLOCK == (int)FRI_THREADS, "one thread per element of a block");

typedef struct fri_device_code_map {
    float value[256], midpoint[256];
} fri_device_code_map;

/* Called by all threads of the block, with a barrier before use of the map. */
static __device__ __forceinline__ void fri_device_code_map_read(const float *from, fri_device_code_map *to) {
    const int t = (int)threadIdx.x;
    to->value[t] = from[t];
    to->midpoint[t] = t + 1 < 256 ? (from[t] + from[t + 1]) * 0.5f : 0;
}

/* The largest magnitude in the block. Ignores NaN, as fmax; the parameter shows the NaN. */
static __device__ float fri_block_largest(float x, float part[FRI_THREADS / 32]) {
    float most = x < 0 ? -x : x > 0 ? x : 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most ? other : most;
    }
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = most;
    __syncthreads();
    most = part[0];
#pragma unroll
    for (int i = 1; i < FRI_THREADS / 32; i++) most = part[i] > most ? part[i] : most;
    __syncthreads();
    return most;
}

/* A block of zeros gets the codes of 0. */
static __device__ __forceinline__ uint8_t fri_code_of(const fri_device_code_map *map, float x, float absmax) {
    return (uint8_t)fri_nearest_code(map->midpoint, x / (absmax > 0 ? absmax : 1));
}

#endif
