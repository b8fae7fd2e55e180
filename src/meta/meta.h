/* meta.h - the meta backend: shapes and addresses, no data.
 *
 * With a target, meta stands for another device: its kernels do nothing, but the workspace they ask for is the
 * target's. So a dry run makes the allocations of a run. */
#ifndef FRI_META_META_H
#define FRI_META_META_H

#include "backend/backend.h"

extern const fri_backend fri_backend_meta;

/* Sets the backend whose workspace sizes meta answers on this thread; NULL (the default): every workspace is 0 bytes.
 * Returns what it was before. */
const fri_backend *fri_meta_target_set(const fri_backend *target);
const fri_backend *fri_meta_target(void);

#endif
