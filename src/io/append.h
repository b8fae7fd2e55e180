/* append.h - files that grow by whole records. */
#ifndef FRI_IO_APPEND_H
#define FRI_IO_APPEND_H

#include <frugal/base.h>

/* Writes `bytes` at the end of a file of *at bytes. On failure the file is cut back to *at, so that it ends with a
 * complete record. `path` stands in the sentence. FR_EIO. */
fr_status fri_append(int fd, const char *path, int64_t *at, const void *data, size_t bytes);

#endif
