/* scratch.h - a buffer on the host that grows. */
#ifndef FRI_IO_SCRATCH_H
#define FRI_IO_SCRATCH_H

#include <frugal/base.h>

/* *buffer holds at least `bytes`; what it held is lost. */
fr_status fri_scratch(void **buffer, size_t *capacity, size_t bytes);

#endif
