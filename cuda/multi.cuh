/* multi.cuh - a launch over many arrays (PyTorch's multi_tensor_apply), with pointers as kernel parameters.
 *
 *     a launch holds up to MOST arrays; each is cut into chunks, one per block; first[i] is array i's first block
 *
 * A block finds its array by bisection in the parameters. Cuts depend on the lengths alone. Kernel parameters have 4
 * KiB; longer lists take several launches. */
#ifndef FRI_CUDA_MULTI_CUH
#define FRI_CUDA_MULTI_CUH

#include "common.cuh"

enum {
    FRI_PARAMETER_BYTES = 4096,
    FRI_STEP_ITEMS = 56,
    FRI_UNSCALE_ARRAYS = 192,
    FRI_CAST_ITEMS = 144,
    FRI_STEP_BLOCKS = 4, /* per processor, so 64 registers a thread: left alone, the compiler spills for more blocks */
    FRI_STEP_PACKS = 4   /* packs per thread, to share the block's setup: search of the array, two powers */
};

template <typename Item, int MOST> struct fri_list {
    int count;
    unsigned first[MOST];
    Item item[MOST];
};

/* Work of a block: elements begin .. end of an item. */
typedef struct fri_chunk {
    int item;
    int64_t begin, end;
} fri_chunk;

template <typename List> static __device__ __forceinline__ fri_chunk fri_chunk_of(const List &list, int64_t chunk) {
    fri_chunk c;
    int high = list.count;
    c.item = 0;
    while (high - c.item > 1) {
        const int middle = (c.item + high) / 2;
        if (list.first[middle] <= blockIdx.x)
            c.item = middle;
        else
            high = middle;
    }
    const int64_t n = list.item[c.item].n;
    c.begin = (int64_t)(blockIdx.x - list.first[c.item]) * chunk;
    c.end = c.begin + chunk < n ? c.begin + chunk : n;
    return c;
}

static __device__ __forceinline__ bool fri_aligned_here(const void *p, size_t to) {
    return ((uintptr_t)p & (to - 1)) == 0;
}

/* f(i, fri_width<M>()) of the block's elements i .. i + M: packs of N where packed, then the rest by element. */
template <int M> struct fri_width { static constexpr int value = M; };
template <int N, typename F>
static __device__ __forceinline__ void fri_chunk_each(const fri_chunk &at, bool packed, const F &f) {
    int64_t i = at.begin + threadIdx.x * N;
    for (; packed && i + N <= at.end; i += FRI_THREADS * N) f(i, fri_width<N>());
    const int64_t stride = packed ? 1 : (int64_t)FRI_THREADS;
    for (i = packed ? i : at.begin + threadIdx.x; i < at.end; i += stride) f(i, fri_width<1>());
}

/* Takes items from *at on as far as they fit, without empty items; advances *at. Returns the number of blocks. */
template <typename Item, int MOST>
static inline unsigned fri_list_fill(fri_list<Item, MOST> *list, int count, const Item *items, int64_t chunk, int *at) {
    const int64_t most_blocks = (int64_t)1 << 30;
    int64_t blocks = 0;
    list->count = 0;
    for (; *at < count && list->count < MOST; ++*at) {
        const int64_t own = fri_ceil_div(items[*at].n, chunk);
        if (own == 0) continue;
        if (list->count > 0 && blocks + own > most_blocks) break;
        list->first[list->count] = (unsigned)blocks;
        list->item[list->count++] = items[*at];
        blocks += own;
    }
    return (unsigned)blocks;
}

#endif
