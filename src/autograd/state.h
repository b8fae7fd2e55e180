/* state.h - what the thread is doing: grad mode, autocast, switches, the checkpoint and the backward that it runs. */
#ifndef FRI_AUTOGRAD_STATE_H
#define FRI_AUTOGRAD_STATE_H

#include "base/thread.h"

fri_autograd_state *fri_autograd(void);
const fr_switches *fri_switches(void); /* the thread's switches, borrowed */
uint64_t fri_step_number(void);        /* training steps that this thread has begun */
bool fri_step_is_open(void);           /* between fr_step_begin and fr_step_end */

/* May a fused op do without its inner results? Only under the in-place switch, whose permission it is to write over
 * what nobody reads; not where each op's result is examined (FRUGAL_CHECK_NAN, fr_detect_anomaly): a relu would hide
 * minus infinity. */
bool fri_fusion_permitted(void);

/* True while a checkpoint's function runs for the second time. */
bool fri_recomputing(void);
/* False while that is so, or by fr_statistics_freeze: may running statistics and counters be touched? */
bool fri_statistics_move(void);

/* Through what batch norms in train mode exchange statistics on this thread; NULL: they do not. Borrowed. */
void fri_statistics_sync_set(const struct fri_statistics_sync *sync);
const struct fri_statistics_sync *fri_statistics_sync_get(void);

#endif
