/* races.h - what one thread of a kernel writes and another reads or writes without a barrier between them, and shared
 * memory that is read before its block wrote it. The kernels' accesses come by the calls of -fsanitize=thread. */
#ifndef TESTS_CUDA_EMULATOR_RACES_H
#define TESTS_CUDA_EMULATOR_RACES_H

#include <stddef.h>

#ifdef __cplusplus
/* Running thread, and the barriers of its block and its warp that it has passed. */
struct fri_race_place {
    int thread;
    unsigned block_epoch, warp_epoch;
};
extern fri_race_place fri_race_thread;

/* A launch; what lies in these two ranges is its threads' own. */
void fri_race_launch(const void *stacks, size_t stack_bytes, const void *index, size_t index_bytes);
void fri_race_block(int block);
void fri_race_end(void);

extern "C" {
#endif

/* The first fault since the last call, as a sentence; "" without one. */
const char *fri_race_found(void);

#ifdef __cplusplus
}
#endif
#endif
