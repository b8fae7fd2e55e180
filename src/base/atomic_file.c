/* atomic_file.c - see atomic_file.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_NOFOLLOW */
#endif
#include "base/atomic_file.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(FRI_TARGET_BYTES >= PATH_MAX, "realpath writes up to PATH_MAX bytes");

enum { TEMPORARY_NAMES = 100 };        /* tries: each taken name is the trace of a killed process */
#define MOVE_AT_ONCE ((size_t)1 << 30) /* Linux moves at most 2 GiB - 4 KiB in a call */

static fr_status fail_with_errno(const char *what) {
    return fr_fail(FR_EIO, "cannot be %s: %s", what, strerror(errno));
}

/* ---- names ------------------------------------------------------------------------------------------------- */

/* The folder of path in `folder`; returns the file's name. */
static const char *split_path(const char *path, char folder[FRI_TARGET_BYTES]) {
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, n > 0 ? path : ".", n > 0 ? n : 1);
    folder[n > 0 ? n : 1] = '\0';
    return slash != NULL ? slash + 1 : path;
}

static bool join_path(char out[FRI_TARGET_BYTES], const char *folder, const char *name) {
    int n = snprintf(out, FRI_TARGET_BYTES, "%s%s%s", folder, strcmp(folder, "/") == 0 ? "" : "/", name);
    return n > 0 && n < FRI_TARGET_BYTES;
}

/* A missing file's name may still be a link to a missing file. realpath has refused circles (ELOOP), so the loop
 * ends. */
bool fri_file_target(const char *path, char target[FRI_TARGET_BYTES]) {
    char here[FRI_TARGET_BYTES], folder[FRI_TARGET_BYTES], link[FRI_TARGET_BYTES];
    if (strlen(path) >= sizeof here) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(here, path);
    for (;;) {
        if (realpath(here, target) != NULL) return true;
        if (errno != ENOENT) return false;
        const char *name = split_path(here, folder);
        ssize_t n = readlink(here, link, sizeof link - 1);
        if (n < 0) return realpath(folder, link) != NULL && join_path(target, link, name);
        link[n] = '\0';
        if (link[0] == '/')
            strcpy(here, link);
        else if (!join_path(target, folder, link))
            return false;
        else
            strcpy(here, target);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

/* A new file beside the target. O_EXCL and O_NOFOLLOW: never opens an existing file. */
static fr_status create_temporary(fr_atomic_file *f, mode_t mode) {
    size_t room = strlen(f->target) + 64;
    f->temporary = malloc(room);
    if (f->temporary == NULL) return fr_fail(FR_ENOMEM, "no host memory for a temporary name");
    for (int i = 0; i < TEMPORARY_NAMES; i++) {
        snprintf(f->temporary, room, "%s.%ld-%d.tmp", f->target, (long)getpid(), i);
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (f->fd >= 0) return FR_OK;
        if (errno != EEXIST) break;
    }
    return fail_with_errno("written");
}

/* The number of the standard stream with the file as target, or -1. */
static int standard_stream(const struct stat *file) {
    struct stat st;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino) return fd;
    return -1;
}

/* True for a mount point (a container's single file), which rename cannot replace. */
static bool is_mount_point(const char *path) {
    struct statx st;
    return statx(AT_FDCWD, path, 0, 0, &st) == 0 && (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* O_NONBLOCK for the opening alone: a FIFO without a reader answers ENXIO instead of waiting. */
static fr_status open_as_it_is(const char *path, fr_atomic_file *f) {
    f->fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (f->fd < 0 && errno == ENXIO) return fr_fail(FR_EIO, "cannot be written: nobody reads from it");
    if (f->fd < 0) return fail_with_errno("written");
    int flags = fcntl(f->fd, F_GETFL);
    return flags >= 0 && fcntl(f->fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? FR_OK : fail_with_errno("written");
}

static fr_status open_file(const char *path, mode_t mode, fr_atomic_file *f) {
    char target[FRI_TARGET_BYTES];
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) return fr_fail(FR_EIO, "is a folder, not a file");
    int standard = exists ? standard_stream(&st) : -1;
    if (standard >= 0) {
        f->fd = fcntl(standard, F_DUPFD_CLOEXEC, 0);
        return f->fd >= 0 ? FR_OK : fail_with_errno("written");
    }
    if (exists && !S_ISREG(st.st_mode)) return open_as_it_is(path, f);
    if (exists && is_mount_point(path))
        return fr_fail(FR_EIO, "is a mount point, which no new file can replace; mount its folder instead");
    if ((exists && access(path, W_OK) != 0) || !fri_file_target(path, target)) return fail_with_errno("written");
    f->target = strdup(target);
    if (f->target == NULL) return fr_fail(FR_ENOMEM, "no host memory for a file name");
    fr_status s = create_temporary(f, mode);
    if (s == FR_OK && exists && fchmod(f->fd, st.st_mode & 0777) != 0) s = fail_with_errno("given its mode");
    return s;
}

fr_status fr_atomic_open(const char *path, mode_t mode, fr_atomic_file *f) {
    *f = (fr_atomic_file)FR_ATOMIC_FILE_CLOSED;
    fr_status s = open_file(path, mode, f);
    if (s < 0) fr_atomic_abandon(f);
    return s;
}

fr_status fr_atomic_put(fr_atomic_file *f, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(f->fd, at, bytes < MOVE_AT_ONCE ? bytes : MOVE_AT_ONCE);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return fr_fail(FR_EIO, "%zu more bytes cannot be written: %s", bytes, strerror(n < 0 ? errno : EIO));
        at += n;
        bytes -= (size_t)n;
    }
    return FR_OK;
}

fr_status fr_atomic_stream(fr_atomic_file *f) {
    f->stream = fdopen(f->fd, "w");
    return f->stream != NULL ? FR_OK : fail_with_errno("written");
}

/* Makes the rename durable. A file system without sync of folders returns EINVAL, which is accepted. */
static fr_status sync_folder(const char *target) {
    char folder[FRI_TARGET_BYTES];
    fr_status s = FR_OK;
    (void)split_path(target, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        s = fr_fail(FR_EIO, "is complete, but its folder '%s' cannot be synced: %s", folder, strerror(errno));
    if (fd >= 0) close(fd);
    return s;
}

static void close_file(fr_atomic_file *f) {
    if (f->stream != NULL)
        fclose(f->stream);
    else if (f->fd >= 0)
        close(f->fd);
    f->stream = NULL;
    f->fd = -1;
}

/* Flushes the written data to disk, or fails. An earlier loss has no errno: one more byte meets the same obstacle. */
static fr_status finish_file(fr_atomic_file *f) {
    errno = 0;
    bool whole = f->stream == NULL || (fflush(f->stream) == 0 && ferror(f->stream) == 0);
    if (!whole && errno == 0 && write(f->fd, "", 1) == 1)
        return fr_fail(FR_EIO, "cannot be written: a part of it is lost");
    if (!whole) return fail_with_errno("written");
    return f->temporary == NULL || fsync(f->fd) == 0 ? FR_OK : fail_with_errno("synced");
}

/* A complete file without the final name keeps the temporary name. */
static fr_status name_file(const fr_atomic_file *f) {
    if (rename(f->temporary, f->target) == 0) return sync_folder(f->target);
    const char *why = strerror(errno);
    return access(f->temporary, F_OK) != 0
               ? fr_fail(FR_EIO, "cannot be written under its name: %s", why)
               : fr_fail(FR_EIO, "cannot be written under its name: %s; it is complete as '%s'", why, f->temporary);
}

fr_status fr_atomic_commit(fr_atomic_file *f) {
    fr_status s = finish_file(f);
    if (s == FR_OK && f->temporary != NULL) {
        close_file(f);
        s = name_file(f);
        free(f->temporary);
        f->temporary = NULL;
    }
    fr_atomic_abandon(f);
    return s;
}

void fr_atomic_abandon(fr_atomic_file *f) {
    int why = errno;
    close_file(f);
    if (f->temporary != NULL) unlink(f->temporary);
    free(f->temporary);
    free(f->target);
    *f = (fr_atomic_file)FR_ATOMIC_FILE_CLOSED;
    errno = why;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

fr_status fr_file_open(const char *path, int *out, uint64_t *bytes) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENXIO) return fr_fail(FR_EIO, "is not a regular file"); /* a socket */
    if (fd < 0) return fail_with_errno("opened");
    fr_status s = fstat(fd, &st) != 0 ? fail_with_errno("examined") : FR_OK;
    if (s == FR_OK && !S_ISREG(st.st_mode)) s = fr_fail(FR_EIO, "is not a regular file");
    if (s < 0) {
        close(fd);
        return s;
    }
    *out = fd;
    *bytes = (uint64_t)st.st_size;
    return FR_OK;
}

fr_status fr_file_read(int fd, void *to, size_t bytes, uint64_t at) {
    size_t done = 0;
    while (done < bytes) {
        size_t some = bytes - done < MOVE_AT_ONCE ? bytes - done : MOVE_AT_ONCE;
        ssize_t n = pread(fd, (char *)to + done, some, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_with_errno("read");
        if (n == 0)
            return fr_fail(FR_EIO, "shrank from at least %llu to %llu bytes while it was read",
                           (unsigned long long)(at + bytes), (unsigned long long)(at + done));
        done += (size_t)n;
    }
    return FR_OK;
}

fr_status fri_input_stream(const char *path, FILE **out, uint64_t *bytes) {
    int fd = -1;
    FRI_TRY(fr_file_open(path, &fd, bytes));
    *out = fdopen(fd, "rb");
    if (*out != NULL) return FR_OK;
    fr_status s = fail_with_errno("opened");
    close(fd);
    return s;
}

fr_status fr_flag_output_open(const char *flag, const char *path, fr_flag_output *f) {
    *f = (fr_flag_output){.output = FR_ATOMIC_FILE_CLOSED, .flag = flag, .path = path};
    if (path == NULL) return FR_END;
    fr_status s = fr_atomic_open(path, 0666, &f->output);
    if (s == FR_OK) s = fr_atomic_stream(&f->output);
    return s < 0 ? fr_fail_prefix(s, "--%s %s: ", flag, path) : FR_OK;
}

fr_status fr_flag_output_commit(fr_flag_output *f) {
    fr_status s = fr_atomic_commit(&f->output);
    return s < 0 ? fr_fail_prefix(s, "--%s %s: ", f->flag, f->path) : FR_OK;
}
