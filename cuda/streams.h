/* streams.h - streams beside the compute stream, and fences between them.
 *
 * A fence is an event with a number. Each stream has FRI_FENCES events, used in turn: fence n is event n % FRI_FENCES.
 * An event that was recorded again stands for a later point of the same stream, so who waits for the old number waits
 * too long, never too short, and no event has to be kept. */
#ifndef FRI_CUDA_STREAMS_H
#define FRI_CUDA_STREAMS_H

#include "context.h"

enum { FRI_FENCES = 64 };

extern const fri_streams fri_cuda_streams;

/* Makes streams and events anew; for tests that change the table of the runtime. */
void fri_cuda_streams_forget(void);

#endif
