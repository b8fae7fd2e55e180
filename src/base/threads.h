/* threads.h - loops on several threads. */
#ifndef FRI_BASE_THREADS_H
#define FRI_BASE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* Piece i of a loop. Two pieces at the same time have different threads, 0 .. threads - 1. */
typedef void fri_piece(const void *context, int64_t i, int thread);
/* Runs pieces 0 .. pieces - 1 on at most `threads` threads, the caller among them, and returns when all are done. Any
 * thread may run a piece, so results must not depend on the thread. */
void fri_parallel(int64_t pieces, int threads, fri_piece *piece, const void *context);

enum { FRI_THREADS_MAX = 4096 };

#endif
