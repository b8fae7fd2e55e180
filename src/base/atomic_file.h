/* atomic_file.h - the one way in which a file is opened to be read; how one is written stands in
 * frugal/unstable/atomic_file.h.
 *
 * Regular files only, opened without waiting; their size is known before the first byte is read. Sentences do not name
 * the file: callers put flag and path before them (fr_fail_prefix). */
#ifndef FRI_BASE_ATOMIC_FILE_H
#define FRI_BASE_ATOMIC_FILE_H

#include <frugal/unstable/atomic_file.h>

/* Opens a regular file for reading. FR_EIO: "cannot be opened: ...", "is not a regular file". */
fr_status fri_input_open(const char *path, int *fd, uint64_t *bytes);
/* Reads exactly `bytes` at the place `at`. FR_EIO, also if the file ends before. */
fr_status fri_input_read(int fd, void *to, size_t bytes, uint64_t at);
/* fri_input_open as a stream. */
fr_status fri_input_stream(const char *path, FILE **out, uint64_t *bytes);

#endif
