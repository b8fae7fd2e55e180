/* capture.h - a training step that the device records, and that runs again without the host walking through it (CUDA
 * graphs).
 *
 *     fri_capture_create(FR_CUDA, places, &c);         memory for its numbers, before an arena is followed
 *     one step or more as usual: plans are made, states exist
 *     fri_capture_begin(c);
 *     the step once more                               nothing of it runs
 *     fri_capture_end(c, s);
 *     fri_capture_replay_begin(c);  fri_capture_replay_piece(c, 0);  fri_capture_replay_end(c);     as often as wanted
 *
 * Kernels run again with the arguments and at the addresses they had. So whoever captures sees to it that every
 * allocation of the step has a fixed place (an arena) that nobody else uses while the step runs, and that its input is
 * where it was. What changes from step to step lies on the device, in places of the capture:
 *   numbers that the host knows (the learning rate)       fri_capture_number; written before each replay
 *   how many random numbers were drawn meanwhile          fri_capture_draws; likewise
 *   values that the host wants to know (the loss)         fri_readback_begin; copied to pinned memory after each replay
 * and what else the host keeps count of moves in functions that are called around a replay.
 *
 * Where the host has something to do in the middle (the next batch) the step is cut into pieces. A step that cannot be
 * captured fails, and is as if it had not been tried. One capture at a time on a thread. */
#ifndef FRI_TENSOR_CAPTURE_H
#define FRI_TENSOR_CAPTURE_H

#include "tensor/readback.h"

typedef struct fri_capture fri_capture;

/* places: how many numbers and values the step will have. On meta only the memory is taken. */
fr_status fri_capture_create(fr_device device, int64_t places, fri_capture **out);
void fri_capture_release(fri_capture **c);

/* What it held is forgotten. FR_EUNSUPPORTED where the device records nothing. */
fr_status fri_capture_begin(fri_capture *c);
/* The piece ends, and in between things run as always. */
fr_status fri_capture_pause(fri_capture *c);
fr_status fri_capture_resume(fri_capture *c);
/* s: what became of the step. The thread's generator is where it was before. On failure the capture holds nothing. */
fr_status fri_capture_end(fri_capture *c, fr_status s);
/* Pieces that it holds; 0: nothing. */
int fri_capture_pieces(const fri_capture *c);
void fri_capture_forget(fri_capture *c);

/* All pieces in their order, between begin and end. FR_EUSAGE if the generator was seeded anew since. */
fr_status fri_capture_replay_begin(fri_capture *c);
fr_status fri_capture_replay_piece(fri_capture *c, int piece);
fr_status fri_capture_replay_end(fri_capture *c);
/* After a replay: *out is the readback that the captured step began as `recorded`. It is to be waited for or dropped
 * before the replay after the next one. */
void fri_capture_readback(const fri_capture *c, const fri_readback *recorded, fri_readback *out);

/* ---- for those whose work is captured ------------------------------------------------------------------------ */

/* Does this thread capture right now? */
bool fri_capturing(void);
/* *device: a device address that holds *host whenever the step runs, NULL while nothing is captured. host stays where
 * it is as long as the capture lives. */
fr_status fri_capture_number(const double *host, const double **device);
/* A device address that holds how many streams of random numbers were drawn between capture and replay; NULL while
 * nothing is captured. */
const int64_t *fri_capture_draws(void);
/* Called around each replay, `before` may be NULL; the same pair is called once. */
typedef fr_status fri_capture_before(void *ctx);
typedef void fri_capture_after(void *ctx);
fr_status fri_capture_around(fri_capture_before *before, fri_capture_after *after, void *ctx);

/* fri_readback_begin and fri_readback_check of a captured step. */
fr_status fri_capture_value(const fr_tensor *t, fri_readback *r);
fr_status fri_capture_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit);

#endif
