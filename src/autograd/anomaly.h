/* anomaly.h - where ops show what they made; see fr_detect_anomaly. */
#ifndef FRI_AUTOGRAD_ANOMALY_H
#define FRI_AUTOGRAD_ANOMALY_H

#include "autograd/state.h"

/* Is anything looked at on this thread? Then every result needs its bytes. */
bool fri_anomaly_looks(void);
/* Is it so, or are results checked by FRUGAL_CHECK_NAN? */
bool fri_results_examined(void);
/* Reads t on the host; true where there is nothing to read: integers, meta. No device memory. */
fr_status fri_all_finite(const fr_tensor *t, bool *out);
/* `op` (static) made t, in the current module; backward: t is the gradient of one of its inputs. Does nothing when
 * off. */
fr_status fri_anomaly_look(const char *op, bool backward, const fr_tensor *t);

#endif
