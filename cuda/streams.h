/* streams.h - streams beside the compute stream, and fences.
 *
 * A fence is an event with a number. Each stream has FRI_FENCES events, used in turn: fence n is event n % FRI_FENCES.
 * A reused event is a later point of the stream, so a wait for the old number may be too long, never too short. */
#ifndef FRI_CUDA_STREAMS_H
#define FRI_CUDA_STREAMS_H

#include "context.h"

enum { FRI_FENCES = 64 };

extern const fri_streams fri_cuda_streams;

/* Makes streams and events anew; for tests that change the table of the runtime. */
void fri_cuda_streams_forget(void);

#endif
