/* races.h - finds memory written by a thread of a kernel and read or written by a second thread without a barrier
 * between, shared memory read before its block's first write, and accesses of a warp to shared memory that wait for
 * each other at a bank. The kernels' accesses come by the calls of -fsanitize=thread. */
#ifndef TESTS_CUDA_EMULATOR_RACES_H
#define TESTS_CUDA_EMULATOR_RACES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
/* Running thread, and the passed barriers of its block and its warp. */
struct fri_race_place {
    int thread;
    unsigned block_epoch, warp_epoch;
};
extern fri_race_place fri_race_thread;

/* A launch; memory in the two ranges belongs to its threads alone. */
void fri_race_launch(const void *stacks, size_t stack_bytes, const void *index, size_t index_bytes);
void fri_race_block(int block);
void fri_race_end(void);

/* A fence, and an atomic exchange. What a block wrote before a barrier, a fence and an exchange is before what a second
 * block does behind its exchange at that address, a fence and a barrier. */
void __threadfence();
void emulate_atomic(const void *at);

extern "C" {
#endif

/* Banks are checked; a test whose data decide about addresses sets false. */
extern bool fri_race_banks;

/* The first fault since the last call, as a sentence; "" without a fault. */
const char *fri_race_found(void);

#ifdef __cplusplus
}
#endif
#endif
