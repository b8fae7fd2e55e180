/* files.h - the one way in which a whole file is written.
 *
 * A regular or new file appears under its name complete and on disk, or not at all: a temporary file in the same
 * folder, data, fsync, rename, fsync of the folder. The new file keeps the mode of the replaced file. A symbolic link
 * is followed, and its target replaced. Devices, FIFOs, sockets, standard output and standard error ("/dev/stdout") are
 * opened and written directly. A FIFO without a reader is an error. A file that is a mount point is an error, because a
 * rename cannot replace it. Temporary files are called <target>.<process>-<n>.tmp; a complete temporary file that
 * cannot get its name stays.
 *
 * Sentences do not name the file: callers put flag and path before them (fr_fail_prefix). */
#ifndef FRUGAL_FILES_H
#define FRUGAL_FILES_H

#include <frugal/base.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_atomic_file {
    int fd;          /* -1: not open */
    FILE *stream;    /* owns fd; NULL until fr_atomic_stream */
    char *target;    /* what is written, links followed */
    char *temporary; /* NULL: the target is written directly */
} fr_atomic_file;

#define FR_ATOMIC_FILE_CLOSED \
    { .fd = -1 }

/* Opens *f for path; a file that is new gets `mode` less the umask (0666 for files of the user's, 0600 for caches).
 * FR_EIO, FR_ENOMEM; then *f is closed. */
FR_API fr_status fr_atomic_open(const char *path, mode_t mode, fr_atomic_file *f);
/* Writes bytes; or makes f->stream, to be used instead. FR_EIO. */
FR_API fr_status fr_atomic_put(fr_atomic_file *f, const void *data, size_t bytes);
FR_API fr_status fr_atomic_stream(fr_atomic_file *f);
/* Moves the written file to its name and closes f, also after errors of the stream, which it reports. FR_EIO; the
 * sentence names the temporary file if that one is complete, so that nothing is lost. */
FR_API fr_status fr_atomic_commit(fr_atomic_file *f);
/* Closes an open f without renaming; the old file stays. */
FR_API void fr_atomic_abandon(fr_atomic_file *f);

/* The file that a flag asks for; it appears complete, or not at all. */
typedef struct fr_flag_output {
    fr_atomic_file output;
    const char *flag, *path;
} fr_flag_output;
/* Opens the file and its stream. FR_END: path is NULL. Failures begin with flag and path. */
FR_API fr_status fr_flag_output_open(const char *flag, const char *path, fr_flag_output *f);
FR_API fr_status fr_flag_output_commit(fr_flag_output *f);

/* Regular files only, opened without waiting; their size is known before the first byte is read. Sentences do not name
 * the file: callers put flag and path before them (fr_fail_prefix). */
/* Opens a regular file for reading. FR_EIO: "cannot be opened: ...", "is not a regular file". */
FR_API fr_status fr_file_open(const char *path, int *fd, uint64_t *bytes);
/* Reads exactly `bytes` at the place `at`. FR_EIO, also if the file ends before. */
FR_API fr_status fr_file_read(int fd, void *to, size_t bytes, uint64_t at);

/* Writes `bytes` at the end of a file of *at bytes, a log. On failure the file is cut back to *at, so that it ends with
 * a complete record. `path` stands in the sentence. FR_EIO. */
FR_API fr_status fr_append(int fd, const char *path, int64_t *at, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
