/* capture.h - a training step that the device records, and that runs again without the host walking through it (CUDA
 * graphs).
 *
 * Unstable: see frugal/unstable.h.
 *
 *     fr_capture_create(FR_CUDA, places, &c);         memory for its numbers, before an arena is followed
 *     one step or more as usual: plans are made, states exist
 *     fr_capture_begin(c);
 *     the step once more                               nothing of it runs
 *     fr_capture_end(c, s);
 *     fr_capture_replay_begin(c);  fr_capture_replay_piece(c, 0);  fr_capture_replay_end(c);     as often as wanted
 *
 * Kernels run again with the arguments and at the addresses they had. So whoever captures sees to it that every
 * allocation of the step has a fixed place (an arena) that nobody else uses while the step runs, and that its input is
 * where it was. What changes from step to step lies on the device, in places of the capture:
 *   numbers that the host knows (the learning rate)       fri_capture_number; written before each replay
 *   how many random numbers were drawn meanwhile          fri_capture_draws; likewise
 *   values that the host wants to know (the loss)         fr_readback_begin; copied to pinned memory after each replay
 * and what else the host keeps count of moves in functions that are called around a replay.
 *
 * Where the host has something to do in the middle (the next batch) the step is cut into pieces. A step that cannot be
 * captured fails, and is as if it had not been tried. One capture at a time on a thread. */
#ifndef FRUGAL_UNSTABLE_CAPTURE_H
#define FRUGAL_UNSTABLE_CAPTURE_H

#include <frugal/unstable/readback.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_capture fr_capture;

/* places: how many numbers and values the step will have. On meta only the memory is taken. */
FR_API fr_status fr_capture_create(fr_device device, int64_t places, fr_capture **out);
FR_API void fr_capture_release(fr_capture **c);

/* Why no step can be captured in this process; "" if one can. Static storage. */
FR_API const char *fr_capture_refused(void);
/* What it held is forgotten. FR_EUNSUPPORTED where the device records nothing. */
FR_API fr_status fr_capture_begin(fr_capture *c);
/* The piece ends, and in between things run as always. */
FR_API fr_status fr_capture_pause(fr_capture *c);
FR_API fr_status fr_capture_resume(fr_capture *c);
/* s: what became of the step. The thread's generator is where it was before. On failure the capture holds nothing. */
FR_API fr_status fr_capture_end(fr_capture *c, fr_status s);
/* Pieces that it holds; 0: nothing. */
FR_API int fr_capture_pieces(const fr_capture *c);
FR_API void fr_capture_forget(fr_capture *c);

/* All pieces in their order, between begin and end. FR_EUSAGE if the generator was seeded anew since. */
FR_API fr_status fr_capture_replay_begin(fr_capture *c);
FR_API fr_status fr_capture_replay_piece(fr_capture *c, int piece);
FR_API fr_status fr_capture_replay_end(fr_capture *c);
/* After a replay: *out is the readback that the captured step began as `recorded`. It is to be waited for or dropped
 * before the replay after the next one. */
FR_API void fr_capture_readback(const fr_capture *c, const fr_readback *recorded, fr_readback *out);

#ifdef __cplusplus
}
#endif
#endif
