/* emulator.cpp - see cuda_runtime.h. */
#include "cuda_runtime.h"

#include <stdlib.h>
#include <ucontext.h>

dim3 gridDim, blockDim, blockIdx, threadIdx;

enum { THREADS = 256, STACK = 64 * 1024, WARP = 32 };

struct barrier {
    int arrived;
    unsigned generation;
};

struct fiber {
    ucontext_t context;
    bool alive;
};

static fiber fibers[THREADS];
static char *stacks;
static ucontext_t scheduler;
static const std::function<void()> *body;
static int current, threads, alive, warp_alive[THREADS / WARP];
static barrier block_barrier, warp_barrier[THREADS / WARP];
static uint64_t given[2][THREADS / WARP][WARP];

static void enter() {
    (*body)();
    fibers[current].alive = false;
    alive--;
    warp_alive[current / WARP]--;
    swapcontext(&fibers[current].context, &scheduler);
}

static void resume(int i) {
    current = i;
    threadIdx = dim3((unsigned)i % blockDim.x, (unsigned)i / blockDim.x);
    swapcontext(&scheduler, &fibers[i].context);
}

/* Waits until as many as live have arrived. Threads that left early count as arrived, as on the GPU. */
static void wait_at(barrier *b, const int *living) {
    const unsigned generation = b->generation;
    const int own = current;
    b->arrived++;
    while (b->generation == generation) {
        if (b->arrived >= *living) {
            b->arrived = 0;
            b->generation++;
            return;
        }
        swapcontext(&fibers[own].context, &scheduler);
    }
}

void __syncthreads() {
    wait_at(&block_barrier, &alive);
}

void __syncwarp() {
    wait_at(&warp_barrier[current / WARP], &warp_alive[current / WARP]);
}

int emulate_lane() {
    return current % WARP;
}

/* Two buffers in turn: a lane that runs ahead cannot overwrite what another has still to read. */
const uint64_t *emulate_exchange(uint64_t own) {
    const int warp = current / WARP;
    uint64_t *buffer = given[warp_barrier[warp].generation % 2][warp];
    buffer[current % WARP] = own;
    __syncwarp();
    return buffer;
}

void emulate_launch(dim3 grid, dim3 block, const std::function<void()> &thread) {
    if (stacks == NULL) stacks = (char *)malloc((size_t)THREADS * STACK);
    threads = (int)(block.x * block.y * block.z);
    if (threads > THREADS || grid.y > 65535 || threads % WARP != 0) abort(); /* a launch that the GPU would refuse */
    body = &thread;
    gridDim = grid;
    blockDim = block;
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = dim3(x, y);
            alive = threads;
            for (int w = 0; w < threads / WARP; w++) warp_alive[w] = WARP;
            for (int i = 0; i < threads; i++) {
                getcontext(&fibers[i].context);
                fibers[i].context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
                fibers[i].context.uc_stack.ss_size = STACK;
                fibers[i].context.uc_link = NULL;
                fibers[i].alive = true;
                makecontext(&fibers[i].context, enter, 0);
            }
            while (alive > 0)
                for (int i = 0; i < threads; i++)
                    if (fibers[i].alive) resume(i);
        }
}
