/* meta.h - the meta backend: shapes and addresses, no data.
 *
 * With a target, meta stands for the target device: kernels do no work, but request the target's workspace. So a dry
 * run makes the allocations of a run. */
#ifndef FRI_META_META_H
#define FRI_META_META_H

#include "backend/backend.h"

extern const fri_backend fri_backend_meta;

/* Sets the thread's backend for workspace sizes of meta; NULL (the default): every workspace is 0 bytes. Returns the
 * old backend. */
const fri_backend *fri_meta_target_set(const fri_backend *target);
const fri_backend *fri_meta_target(void);

#endif
