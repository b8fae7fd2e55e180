/* append.c - files that grow by whole records (frugal/files.h). */
#include "base/status.h"

#include <frugal/files.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

fr_status fr_append(int fd, const char *path, int64_t *at, const void *data, size_t bytes) {
    FRI_NOT_NULL(path, at, data);
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(*at + (int64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int why = n < 0 ? errno : EIO;
            if (ftruncate(fd, (off_t)*at) != 0) why = errno; /* the next write begins at *at again */
            return fr_fail(FR_EIO, "the log '%.300s' cannot be written: %s", path, strerror(why));
        }
        done += (size_t)n;
    }
    *at += (int64_t)bytes;
    return FR_OK;
}
