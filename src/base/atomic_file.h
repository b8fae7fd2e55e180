/* atomic_file.h - the one way in which a whole file is written, and the one in which a file is opened to be read.
 *
 * Writing: a regular file, or one that is not there yet, appears under its name complete and on disk, or not at all: a
 * temporary file in the same folder, data, fsync, rename, fsync of the folder. It keeps the mode of the file that it
 * replaces. A symbolic link is followed: what it names is replaced. A device, FIFO or socket is written to as it is,
 * and so is a file that is this process's standard output or error ("/dev/stdout"). A FIFO that nobody reads is an
 * error: nothing waits. Temporary files are called <target>.<process>-<n>.tmp.
 *
 * Reading: regular files only, opened without waiting; their size is known before the first byte is read.
 *
 * Sentences do not name the file: callers put flag and path before them (fri_fail_prefix). */
#ifndef FRI_BASE_ATOMIC_FILE_H
#define FRI_BASE_ATOMIC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <frugal/base.h>

typedef struct fri_atomic_file {
    int fd;          /* -1: not open */
    FILE *stream;    /* owns fd; NULL until fri_atomic_stream */
    char *target;    /* what is written, links followed */
    char *temporary; /* NULL: the target is written as it is */
} fri_atomic_file;

#define FRI_ATOMIC_FILE_CLOSED \
    { .fd = -1 }

/* Opens *f for path; a file that is new gets `mode` less the umask (0666 for files of the user's, 0600 for caches).
 * FR_EIO, FR_ENOMEM; then *f is closed. */
fr_status fri_atomic_open(const char *path, mode_t mode, fri_atomic_file *f);
/* Writes bytes; or makes f->stream, to be used instead. FR_EIO. */
fr_status fri_atomic_put(fri_atomic_file *f, const void *data, size_t bytes);
fr_status fri_atomic_stream(fri_atomic_file *f);
/* Makes what was written take its name, also after errors of the stream, which it reports. Closes f. FR_EIO. */
fr_status fri_atomic_commit(fri_atomic_file *f);
/* Closes f, unless it is closed; a regular file stays as it was before. */
void fri_atomic_abandon(fri_atomic_file *f);

enum { FRI_TARGET_BYTES = 4096 };
/* The path of what would be written for `path`: absolute, links followed, whether or not it is there. False: its folder
 * is not there, or the path is too long. */
bool fri_file_target(const char *path, char target[FRI_TARGET_BYTES]);

/* Opens a regular file for reading. FR_EIO: "cannot be opened: ...", "is not a regular file". */
fr_status fri_input_open(const char *path, int *fd, uint64_t *bytes);
/* Reads exactly `bytes` at the place `at`. FR_EIO, also if the file ends before. */
fr_status fri_input_read(int fd, void *to, size_t bytes, uint64_t at);
/* fri_input_open as a stream. */
fr_status fri_input_stream(const char *path, FILE **out, uint64_t *bytes);

#endif
