/* fake_nccl.h - NCCL between fake devices: processes of one machine, joined by sockets. What it is told to move waits
 * in its stream like a copy, and moves when somebody looks; so it is late, and never early. */
#ifndef TESTS_CUDA_FAKE_NCCL_H
#define TESTS_CUDA_FAKE_NCCL_H

#include <stdbool.h>

/* Library for programs that called fake_begin. stalls: rank 1's 50th group never moves. */
void fake_nccl_begin(bool stalls);

#endif
