/* cuda_runtime.h - the part of CUDA used by the kernels, for a C++ compiler: launches run on the CPU, block after
 * block.
 *
 * A block's threads are fibers. __syncthreads and the warp's exchanges hand control to the next thread until all
 * living threads have arrived; shared memory is static memory, used by a single block at a time. So index arithmetic,
 * tails, reductions and their order are those of the GPU; speed and the memory model are not shown. Threads and
 * blocks run forward, backward and at random, launch by launch; FRUGAL_EMULATOR_ORDER=forward, backward or random
 * fixes the order. Kernels are compiled with -fsanitize=thread, whose calls races.cpp answers, and trap at a
 * misaligned access, an index outside its array, an overflow and a shift undefined in C++. */
#ifndef TESTS_CUDA_EMULATOR_RUNTIME_H
#define TESTS_CUDA_EMULATOR_RUNTIME_H

#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__ static
#define __device__
#define __host__
#define __shared__      static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {
    }
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
typedef void *cudaStream_t;

struct emulate_index {
    dim3 grid, block, block_at, thread_at;
};
extern emulate_index emulated_index;
#define gridDim   emulated_index.grid
#define blockDim  emulated_index.block
#define blockIdx  emulated_index.block_at
#define threadIdx emulated_index.thread_at

void emulate_launch(dim3 grid, dim3 block, const std::function<void()> &thread);
void __syncthreads();
void __syncwarp();
/* Every lane of the warp gives 8 bytes and gets the bytes of all lanes. */
const uint64_t *emulate_exchange(uint64_t own);
int emulate_lane();
/* Orders between blocks (races.cpp). */
void __threadfence();
void emulate_atomic(const void *at);

/* Hidden from the race detector: threads may meet at these calls. */
#define EMULATED_MEETING static inline __attribute__((no_sanitize("thread")))

template <typename V> EMULATED_MEETING V __shfl_xor_sync(unsigned, V v, int step) {
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    uint64_t other = emulate_exchange(bits)[emulate_lane() ^ step];
    memcpy(&v, &other, sizeof v);
    return v;
}

EMULATED_MEETING unsigned __ballot_sync(unsigned, bool own) {
    const uint64_t *all = emulate_exchange(own);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= (unsigned)(all[i] != 0) << i;
    return bits;
}

static inline int __ffs(int v) {
    return __builtin_ffs(v);
}

EMULATED_MEETING void atomicMin(unsigned long long *at, unsigned long long v) {
    if (v < *at) *at = v;
}

EMULATED_MEETING unsigned atomicInc(unsigned *at, unsigned last) {
    const unsigned before = *at;
    *at = before >= last ? 0 : before + 1;
    emulate_atomic(at);
    return before;
}

EMULATED_MEETING void atomicAdd(unsigned long long *at, unsigned long long v) {
    *at += v;
}

#endif
