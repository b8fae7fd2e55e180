/* log.c - the step log: a JSON object per line.
 *
 * A resumed run cuts off lines logged after the saved state, and the incomplete line of a killed process. */
#include "base/atomic_file.h"
#include "base/number.h"
#include "base/status.h"
#include "io/safetensors_format.h"
#include "io/session_files.h"

#include <frugal/io.h>

#include <cJSON.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

struct fri_log {
    int fd; /* -1: not asked for */
    char *path;
    int64_t bytes; /* complete so far */
};

/* ---- numbers ----------------------------------------------------------------------------------------------- */

/* JSON has no NaN and no infinities: null. */
static const char *json_number(double value, char text[FRI_NUMBER_BYTES]) {
    return isfinite(value) ? fri_number_text(value, text) : "null";
}

/* ---- files ------------------------------------------------------------------------------------------------- */

/* True for a line kept by a resumed run: of a step before, without a step, or of the step. A step's line has the epoch
 * after the step, an evaluation's line has not. */
static bool is_kept(const char *line, int64_t resume, bool evaluated) {
    static const char key[] = "{\"step\":", epoch[] = ",\"epoch\":";
    char *end = NULL;
    if (strncmp(line, key, sizeof key - 1) == 0) line += sizeof key - 1;
    if (*line < '0' || *line > '9') return true;
    const int64_t step = strtoll(line, &end, 10);
    return step < resume || (step == resume && (evaluated || strncmp(end, epoch, sizeof epoch - 1) == 0));
}

/* Start of the first line to be written again, or of an incomplete line. A line longer than any log line
 * counts as incomplete, so a foreign file is not read to the end. */
static fr_status find_cut(const fri_log *f, int64_t resume, bool evaluated, int64_t bytes, int64_t *cut) {
    static const int64_t longest = 1 << 16;
    FRI_OWNED(fri_free) char *text = malloc((size_t)longest);
    *cut = 0;
    if (text == NULL) return fr_fail(FR_ENOMEM, "no host memory to read a log");
    for (bool more = true; more && *cut < bytes;) {
        size_t n = (size_t)(bytes - *cut < longest ? bytes - *cut : longest), at = 0;
        const char *end = NULL;
        const fr_status s = fr_file_read(f->fd, text, n, (uint64_t)*cut);
        if (s < 0) return fr_fail_prefix(s, "the log '%.300s' ", f->path);
        while (more && (end = memchr(text + at, '\n', n - at)) != NULL) {
            more = is_kept(text + at, resume, evaluated);
            if (more) at = (size_t)(end - text) + 1;
        }
        *cut += (int64_t)at;
        more = more && at > 0;
    }
    return FR_OK;
}

static fr_status open_text(const char *path, int64_t resume, bool evaluated, fri_log *f) {
    struct stat st;
    if (path == NULL) return FR_OK;
    f->path = strdup(path);
    if (f->path == NULL) return fr_fail(FR_ENOMEM, "no host memory for a file name");
    f->fd =
        open(path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666); /* a FIFO is refused, not waited for */
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return fr_fail(FR_EIO, "the log '%.300s' cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return fr_fail(FR_EIO, "the log '%.300s' is not a regular file", path);
    if (resume >= 0) FRI_TRY(find_cut(f, resume, evaluated, (int64_t)st.st_size, &f->bytes));
    if (ftruncate(f->fd, (off_t)f->bytes) != 0)
        return fr_fail(FR_EIO, "the log '%.300s' cannot be cut to %lld bytes: %s", path, (long long)f->bytes,
                       strerror(errno));
    return FR_OK;
}

fr_status fri_log_open(const char *path, int64_t resume, bool evaluated, fri_log **out) {
    FRI_NOT_NULL(out);
    FRI_OWNED(fri_log_close) fri_log *log = calloc(1, sizeof *log);
    if (log == NULL) return fr_fail(FR_ENOMEM, "no host memory for a log");
    log->fd = -1;
    FRI_TRY(open_text(path, resume, evaluated, log));
    fri_log_close(out);
    FRI_MOVE(out, log);
    return FR_OK;
}

void fri_log_close(fri_log **log) {
    if (log == NULL || *log == NULL) return;
    if ((*log)->fd >= 0) close((*log)->fd);
    free((*log)->path);
    free(*log);
    *log = NULL;
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

static fr_status write_jsonl(fri_log *f, const fr_log_step *p) {
    char line[LINE_BYTES], loss[FRI_NUMBER_BYTES], lr[FRI_NUMBER_BYTES], scale[FRI_NUMBER_BYTES],
        rate[FRI_NUMBER_BYTES];
    int n =
        snprintf(line, sizeof line,
                 "{\"step\":%" PRId64 ",\"epoch\":%" PRId64
                 ",\"loss\":%s,\"lr\":%s,\"scale\":%s,\"skipped\":%s,\"images_per_second\":%s,\"allocated\":%" PRIu64
                 ",\"peak\":%" PRIu64 "}\n",
                 p->step, p->epoch, json_number(p->loss, loss), json_number(p->lr, lr), json_number(p->scale, scale),
                 p->skipped ? "true" : "false", json_number(p->images_per_second, rate), p->allocated, p->peak);
    return fr_append(f->fd, f->path, &f->bytes, line, (size_t)n);
}

static fr_status check_step(int64_t step) {
    if (step < 0) return fr_fail(FR_EINVAL, "the log: step is %lld; it must be >= 0", (long long)step);
    return FR_OK;
}

fr_status fri_log_write(fri_log *log, const fr_log_step *step) {
    FRI_NOT_NULL(log, step);
    fr_status s = check_step(step->step);
    return s == FR_OK && log->fd >= 0 ? write_jsonl(log, step) : s;
}

static fr_status scalar_jsonl(fri_log *f, const char *tag, int64_t step, double value) {
    char text[FRI_NUMBER_BYTES];
    cJSON *quoted = cJSON_CreateString(tag);
    char *name = quoted != NULL ? cJSON_PrintUnformatted(quoted) : NULL;
    size_t room = name != NULL ? strlen(name) + 128 : 0;
    FRI_OWNED(fri_free) char *line = room > 0 ? malloc(room) : NULL;
    fr_status s = FR_OK;
    if (line == NULL) {
        s = fr_fail(FR_ENOMEM, "no host memory for a line of the log");
        goto done;
    }
    int n = snprintf(line, room, "{\"step\":%" PRId64 ",%s:%s}\n", step, name, json_number(value, text));
    s = fr_append(f->fd, f->path, &f->bytes, line, (size_t)n);
done:
    cJSON_free(name);
    cJSON_Delete(quoted);
    return s;
}

fr_status fri_log_scalar(fri_log *log, const char *tag, int64_t step, double value) {
    FRI_NOT_NULL(log, tag);
    FRI_TRY(check_step(step));
    if (!fri_safetensors_utf8(tag, strlen(tag))) return fr_fail(FR_EINVAL, "the log: the tag is not valid UTF-8");
    return log->fd >= 0 ? scalar_jsonl(log, tag, step, value) : FR_OK;
}
