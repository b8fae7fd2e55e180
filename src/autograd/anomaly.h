/* anomaly.h - searches the results of ops for inf and NaN; see fr_detect_anomaly. */
#ifndef FRI_AUTOGRAD_ANOMALY_H
#define FRI_AUTOGRAD_ANOMALY_H

#include "autograd/state.h"

/* Is anomaly detection enabled on this thread? Then every result needs its bytes. */
bool fri_anomaly_enabled(void);
/* Is it enabled, or does FRUGAL_CHECK_NAN check results? */
bool fri_results_examined(void);
/* Reads t on the host; true where there is nothing to read: integers, meta. No device memory. */
fr_status fri_all_finite(const fr_tensor *t, bool *out);
/* `op` (static) made t, in the current module; backward: t is the gradient of one of its inputs. Does nothing when
 * off. */
fr_status fri_anomaly_look(const char *op, bool backward, const fr_tensor *t);

#endif
