/* atomic_file.h - files as streams, beside the calls of frugal/files.h. */
#ifndef FRI_BASE_ATOMIC_FILE_H
#define FRI_BASE_ATOMIC_FILE_H

#include <frugal/files.h>

/* fr_file_open as a stream. */
fr_status fri_input_stream(const char *path, FILE **out, uint64_t *bytes);

enum { FRI_TARGET_BYTES = 4096 };
/* Absolute path, after links, of the file that a write to `path` makes or replaces. False: the folder
 * is missing, or the path is too long. */
bool fri_file_target(const char *path, char target[FRI_TARGET_BYTES]);

#endif
