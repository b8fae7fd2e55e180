/* emulator.cpp - see cuda_runtime.h. */
#include "cuda_runtime.h"

#include "races.h"

#include <algorithm>
#include <numeric>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

emulate_index emulated_index;

enum { THREADS = 256, STACK = 64 * 1024, WARP = 32 };

struct barrier {
    int arrived;
    unsigned generation;
};

/* A thread of a block; the next block's thread of that number goes on in it. Switches are by _longjmp: swapcontext
 * would ask the kernel for the mask of signals each time. */
struct fiber {
    jmp_buf context;
    bool begun, alive;
};

static fiber fibers[THREADS];
static char *stacks;
static jmp_buf scheduler;
static const std::function<void()> *body;
static int current, threads, alive, warp_alive[THREADS / WARP];
static barrier block_barrier, warp_barrier[THREADS / WARP];
static unsigned warp_epoch[THREADS / WARP]; /* barriers that order memory: exchanges do not */
static uint64_t given[2][THREADS / WARP][WARP];

static void leave(fiber *own) {
    if (_setjmp(own->context) == 0) _longjmp(scheduler, 1);
}

static void enter() {
    for (;;) {
        (*body)();
        fibers[current].alive = false;
        alive--;
        warp_alive[current / WARP]--;
        leave(&fibers[current]);
    }
}

static void begin(int i) {
    static ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = stacks + (size_t)i * STACK;
    first.uc_stack.ss_size = STACK;
    first.uc_link = NULL;
    makecontext(&first, enter, 0);
    fibers[i].begun = true;
    setcontext(&first);
}

static void resume(int i) {
    current = i;
    fri_race_thread = {i, block_barrier.generation, warp_epoch[i / WARP]};
    threadIdx = dim3((unsigned)i % blockDim.x, (unsigned)i / blockDim.x);
    if (_setjmp(scheduler) != 0) return;
    if (fibers[i].begun) _longjmp(fibers[i].context, 1);
    begin(i);
}

/* Waits until all living threads have arrived. Threads that left early count as arrived, as on the GPU. */
static void wait_at(barrier *b, const int *living) {
    const unsigned generation = b->generation;
    fiber *const own = &fibers[current];
    b->arrived++;
    while (b->generation == generation) {
        if (b->arrived >= *living) {
            b->arrived = 0;
            b->generation++;
            break;
        }
        leave(own);
    }
}

/* Later accesses of the running thread are after the barriers so far. */
static void behind() {
    fri_race_thread = {current, block_barrier.generation, warp_epoch[current / WARP]};
}

void __syncthreads() {
    wait_at(&block_barrier, &alive);
    behind();
}

static void warp_meets() {
    wait_at(&warp_barrier[current / WARP], &warp_alive[current / WARP]);
}

void __syncwarp() {
    warp_meets();
    warp_epoch[current / WARP] = warp_barrier[current / WARP].generation;
    behind();
}

int emulate_lane() {
    return current % WARP;
}

/* Two buffers in turn: a lane that runs ahead cannot overwrite bytes still to be read by a slower lane. */
const uint64_t *emulate_exchange(uint64_t own) {
    const int warp = current / WARP;
    if ((warp + 1) * WARP > threads) abort(); /* all lanes are named, and the block's last warp has fewer */
    uint64_t *buffer = given[warp_barrier[warp].generation % 2][warp];
    buffer[current % WARP] = own;
    warp_meets();
    behind();
    return buffer;
}

/* ---- orders -------------------------------------------------------------------------------------------------- */

enum { FORWARD, BACKWARD, RANDOM, ORDERS };

static int next_order() {
    static const char *const names[ORDERS] = {"forward", "backward", "random"};
    static int launches;
    const char *wanted = getenv("FRUGAL_EMULATOR_ORDER");
    for (int i = 0; wanted != NULL && i < ORDERS; i++)
        if (strcmp(wanted, names[i]) == 0) return i;
    return launches++ % ORDERS;
}

static void arrange(std::vector<int> *v, int order) {
    static uint32_t state = 1;
    std::iota(v->begin(), v->end(), 0);
    for (size_t i = v->size(); order != FORWARD && i-- > 1;) {
        state = state * 1664525u + 1013904223u;
        size_t other = order == BACKWARD ? v->size() - 1 - i : state / 65536 % (i + 1);
        if (order == RANDOM || other < i) std::swap((*v)[i], (*v)[other]);
    }
}

static void run_block(const std::vector<int> &order) {
    alive = threads;
    for (int w = 0; w * WARP < threads; w++) warp_alive[w] = std::min((int)WARP, threads - w * WARP);
    for (int i = 0; i < threads; i++) fibers[i].alive = true;
    while (alive > 0)
        for (int i : order)
            if (fibers[i].alive) resume(i);
}

void emulate_launch(dim3 grid, dim3 block, const std::function<void()> &thread) {
    if (stacks == NULL) stacks = (char *)malloc((size_t)THREADS * STACK);
    threads = (int)(block.x * block.y * block.z);
    if (threads > THREADS || grid.y > 65535) abort(); /* a launch that the GPU would refuse */
    body = &thread;
    gridDim = grid;
    blockDim = block;
    std::vector<int> order((size_t)threads), blocks((size_t)grid.x * grid.y);
    const int kind = next_order();
    arrange(&order, kind);
    arrange(&blocks, kind);
    fri_race_launch(stacks, (size_t)THREADS * STACK, &emulated_index, sizeof emulated_index);
    for (int b : blocks) {
        blockIdx = dim3((unsigned)b % grid.x, (unsigned)b / grid.x);
        fri_race_block(b);
        run_block(order);
    }
    fri_race_end();
}
