/* state.h - autograd state of a thread: grad mode, autocast, switches, current checkpoint and backward. */
#ifndef FRI_AUTOGRAD_STATE_H
#define FRI_AUTOGRAD_STATE_H

#include "autograd/run.h"
#include "base/thread.h"

fri_autograd_state *fri_autograd(void);
const fr_switches *fri_switches(void); /* switches of the thread, borrowed */
uint64_t fri_step_number(void);        /* of the thread's last training step, 1 for the process's first; 0: none */
bool fri_step_is_open(void);           /* true between fr_step_begin and fr_step_end */

/* True if a fused op may leave out its inner results: the in-place switch permits overwriting unread values, and the
 * rebuild switch leaves out values that a pass recomputes. False if each op's result is examined (FRUGAL_CHECK_NAN,
 * fr_detect_anomaly), because a relu would hide minus infinity. */
bool fri_fusion_permitted(void);

/* True while a checkpoint's function is recomputed. */
bool fri_recomputing(void);
/* True if running statistics and counters may change: not in a recomputation, not under fri_statistics_freeze. */
bool fri_statistics_move(void);

/* Channel through which batch norms in train mode exchange statistics on this thread, borrowed; NULL: none. */
void fri_statistics_sync_set(const struct fri_statistics_sync *sync);
const struct fri_statistics_sync *fri_statistics_sync_get(void);

#endif
