/* scratch.h - a growing host buffer. */
#ifndef FRI_IO_SCRATCH_H
#define FRI_IO_SCRATCH_H

#include <frugal/base.h>

/* *The buffer gets at least `bytes`; the content is lost. */
fr_status fri_scratch(void **buffer, size_t *capacity, size_t bytes);

#endif
