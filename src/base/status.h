/* status.h - how a failure is reported inside the library. */
#ifndef FRI_BASE_STATUS_H
#define FRI_BASE_STATUS_H

#include <frugal/try.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fr_fail with a text of several lines. */
fr_status fri_fail_report(fr_status s, const char *text);

/* No error, and invisible to users: a checkpoint's recomputation has all needed tensors, and the running function must
 * return at once. Negative, so every caller passes the status on like an error. */
#define FRI_STOP ((fr_status)-1000)

#ifdef __cplusplus
}
#endif

#endif
