/* fake_nccl.h - NCCL between fake devices: processes of one machine, connected by sockets. Transfers wait in their
 * stream like copies and move when somebody looks, so they are late and never early. */
#ifndef TESTS_CUDA_FAKE_NCCL_H
#define TESTS_CUDA_FAKE_NCCL_H

#include <stdbool.h>

/* Library for programs that have called fake_begin. stalls: rank 1's 50th group never moves. */
void fake_nccl_begin(bool stalls);

#endif
