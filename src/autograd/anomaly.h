/* anomaly.h - searches the results of ops for inf and NaN; see fr_detect_anomaly. */
#ifndef FRI_AUTOGRAD_ANOMALY_H
#define FRI_AUTOGRAD_ANOMALY_H

#include "autograd/state.h"

/* True if anomaly detection is on in this thread. Every result must then be stored. */
bool fri_anomaly_enabled(void);
/* True if anomaly detection or FRUGAL_CHECK_NAN examines results. */
bool fri_results_examined(void);
/* *out: t has no inf or NaN. Reads t on the host without device memory; integers and meta count as finite. */
fr_status fri_all_finite(const fr_tensor *t, bool *out);
/* Examines t, made by `op` (static) in the current module, if detection is on. backward: t is the gradient of an
 * input. */
fr_status fri_anomaly_look(const char *op, bool backward, const fr_tensor *t);

#endif
