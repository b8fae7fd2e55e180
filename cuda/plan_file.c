/* plan_file.c - see plan_file.h.
 *
 * Two lines name format and environment. Then one record per plan, appended by one write: a line of the hash of all
 * that follows in the record, the key, the choice and the length of the plan's text, then the text and a newline. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plan_file.h"

#include "base/status.h"
#include "base/atomic_file.h"
#include "base/cache.h"
#include "base/env.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, TEXT_MOST = 1 << 20, FILE_MOST = 64 << 20 };
static const char format[] = "frugal cuDNN plans 5\n";

typedef struct record {
    int64_t key[FRI_CUDA_PLAN_KEY];
    fri_cuda_conv2d_plan plan; /* its text lies in `contents` or `given` */
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool was_read, damaged;
static char path[PATH_BYTES], environment[512];
static char *contents;
static record *records;
static size_t count;
static int64_t hits;
static char *given; /* what another rank chose, once; records point into it */
static char *used;  /* records that this process goes by */
static size_t used_bytes, used_room;

/* "cuDNN 91900, NVIDIA H200, 0123456789abcdef\n" */
static bool find_environment(void) {
    char reason[256];
    uint64_t device = 0;
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    if (fri_env_get()->no_plan_cache || dnn == NULL || fri_cudnn_device_key(&device) < 0) return false;
    snprintf(environment, sizeof environment, "cuDNN %zu, %s, %016" PRIx64 "\n", dnn->GetVersion(),
             fri_cudnn_device_name(), device);
    return fri_cache_path("cudnn-plans", environment, path, sizeof path);
}

/* One number of a record's line; moves *at behind it. */
static bool number(const char **at, int64_t *value) {
    char *end = NULL;
    *value = strtoll(*at, &end, 10);
    if (end == *at) return false;
    *at = end;
    return true;
}

/* Reads the record at *at, which ends before `end`; *at is then behind it. False: it is not one. */
static bool read_record(const char **at, const char *end) {
    record r = {0};
    int64_t workspace, configurations, fallback, tensor_core, slow, nanoseconds, bytes;
    const char *line = memchr(*at, '\n', (size_t)(end - *at)), *v = *at;
    char *after = NULL;
    if (line == NULL) return false;
    uint64_t hash = strtoull(v, &after, 16);
    if (after == v || *after != ' ') return false;
    const char *hashed = v = after + 1;
    for (int i = 0; i < FRI_CUDA_PLAN_KEY; i++)
        if (!number(&v, &r.key[i])) return false;
    if (!number(&v, &workspace) || !number(&v, &r.plan.choice.engine) || !number(&v, &configurations) ||
        !number(&v, &fallback) || !number(&v, &tensor_core) || !number(&v, &slow) || !number(&v, &nanoseconds) ||
        !number(&v, &bytes) || v != line)
        return false;
    if (workspace < 0 || bytes < 1 || bytes > TEXT_MOST || bytes > end - (line + 1) - 1 || line[1 + bytes] != '\n')
        return false;
    const char *behind = line + 1 + bytes + 1;
    if (fri_hash(FRI_HASH, hashed, (size_t)(behind - hashed)) != hash || FRI_ROOM(records, count, "cuDNN plans") < 0)
        return false;
    r.plan.choice.workspace = (size_t)workspace;
    r.plan.choice.configurations = (int)configurations;
    r.plan.choice.fallback = fallback != 0;
    r.plan.choice.tensor_core = tensor_core != 0;
    r.plan.choice.slow = slow != 0;
    r.plan.choice.nanoseconds = nanoseconds;
    r.plan.json = (char *)(uintptr_t)(line + 1);
    r.plan.json_bytes = bytes;
    records[count++] = r;
    *at = behind;
    return true;
}

static void read_file(void) {
    uint64_t bytes = 0;
    int fd = -1;
    was_read = true;
    if (!find_environment() || fr_file_open(path, &fd, &bytes) < 0) return;
    damaged = true; /* until all of it was understood */
    size_t n = 0, header = strlen(format) + strlen(environment);
    if (bytes <= FILE_MOST && (contents = malloc((size_t)bytes + 1)) != NULL) {
        if (fr_file_read(fd, contents, (size_t)bytes, 0) == FR_OK) n = (size_t)bytes;
        contents[n] = '\0';
    }
    close(fd);
    if (contents == NULL || n < header || memcmp(contents, format, strlen(format)) != 0 ||
        memcmp(contents + strlen(format), environment, strlen(environment)) != 0)
        return;
    const char *at = contents + header, *end = contents + n;
    while (at < end && read_record(&at, end)) continue;
    damaged = at < end;
}

/* The record as text; NULL without memory. */
static char *record_text(const int64_t key[FRI_CUDA_PLAN_KEY], const fri_cuda_conv2d_plan *p, size_t *bytes) {
    enum { HASH = 17 }; /* "0123456789abcdef " */
    size_t room = 32 * (FRI_CUDA_PLAN_KEY + 8) + (size_t)p->json_bytes + 2, at = HASH;
    char *text = malloc(room), hash[HASH + 1];
    if (text == NULL) return NULL;
    for (int i = 0; i < FRI_CUDA_PLAN_KEY; i++) at += (size_t)snprintf(text + at, room - at, "%" PRId64 " ", key[i]);
    at += (size_t)snprintf(text + at, room - at, "%zu %" PRId64 " %d %d %d %d %" PRId64 " %" PRId64 "\n",
                           p->choice.workspace, p->choice.engine, p->choice.configurations, p->choice.fallback,
                           p->choice.tensor_core, p->choice.slow, p->choice.nanoseconds, p->json_bytes);
    memcpy(text + at, p->json, (size_t)p->json_bytes);
    at += (size_t)p->json_bytes;
    text[at++] = '\n';
    snprintf(hash, sizeof hash, "%016" PRIx64 " ", fri_hash(FRI_HASH, text + HASH, at - HASH));
    memcpy(text, hash, HASH);
    *bytes = at;
    return text;
}

/* Without memory for it other ranks plan for themselves. */
static void note_use(const char *text, size_t bytes) {
    char *more = text != NULL && used_room - used_bytes < bytes ? realloc(used, 2 * (used_room + bytes)) : used;
    if (text == NULL || more == NULL) return;
    if (used_room - used_bytes < bytes) used_room = 2 * (used_room + bytes);
    used = more;
    memcpy(used + used_bytes, text, bytes);
    used_bytes += bytes;
}

bool fri_cuda_plan_file_find(const int64_t key[FRI_CUDA_PLAN_KEY], fri_cuda_conv2d_plan *p) {
    bool found = false;
    pthread_mutex_lock(&lock);
    if (!was_read) read_file();
    for (size_t i = count; i-- > 0 && !found;) { /* a later one took the place of those before */
        if (memcmp(records[i].key, key, sizeof records[i].key) != 0) continue;
        char *text = malloc((size_t)records[i].plan.json_bytes + 1);
        if (text == NULL) break;
        memcpy(text, records[i].plan.json, (size_t)records[i].plan.json_bytes);
        *p = records[i].plan;
        p->json = text;
        found = true;
        hits++;
        size_t bytes = 0;
        char *as_text = record_text(key, p, &bytes);
        note_use(as_text, bytes);
        free(as_text);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The file that others may have begun. Records are appended by all processes, so it is not replaced; but what is no
 * regular file is left alone, and not waited for. */
static int open_to_append(void) {
    struct stat about;
    int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))) return fd;
    close(fd);
    return -1;
}

static bool write_all(int fd, const char *text, size_t n) {
    return write(fd, text, n) == (ssize_t)n;
}

void fri_cuda_plan_file_add(const int64_t key[FRI_CUDA_PLAN_KEY], const fri_cuda_conv2d_plan *p) {
    size_t bytes = 0;
    if (p->json_bytes < 1 || p->json_bytes > TEXT_MOST) return;
    pthread_mutex_lock(&lock);
    char *text = record_text(key, p, &bytes);
    note_use(text, bytes);
    if (text != NULL && path[0] != '\0') {
        if (damaged) (void)unlink(path); /* others that have it open go on with the old one */
        damaged = false;
        fri_cache_make_folders(path);
        int fd = open_to_append(), created = -1;
        if (fd < 0 &&
            (created = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) >= 0) {
            fd = created;
            char header[sizeof format + sizeof environment];
            int n = snprintf(header, sizeof header, "%s%s", format, environment);
            damaged = !write_all(fd, header, (size_t)n);
        }
        if (fd >= 0 && !write_all(fd, text, bytes)) damaged = true;
        if (fd >= 0) close(fd);
    }
    free(text);
    pthread_mutex_unlock(&lock);
}

fr_status fri_cuda_plan_file_choices(char **text, size_t *bytes) {
    pthread_mutex_lock(&lock);
    *text = malloc(used_bytes + 1);
    *bytes = used_bytes;
    if (*text != NULL && used_bytes > 0) memcpy(*text, used, used_bytes);
    pthread_mutex_unlock(&lock);
    return *text != NULL ? FR_OK : fr_fail(FR_ENOMEM, "cuDNN plans: out of host memory");
}

fr_status fri_cuda_plan_file_choose(const char *text, size_t bytes) {
    fr_status s = FR_OK;
    pthread_mutex_lock(&lock);
    if (!was_read) read_file();
    if (given != NULL)
        s = fr_fail(FR_EUSAGE, "cuDNN plans: another process's were taken before");
    else if ((given = malloc(bytes + 1)) == NULL)
        s = fr_fail(FR_ENOMEM, "cuDNN plans: out of host memory");
    if (s < 0) goto done;
    memcpy(given, text, bytes);
    given[bytes] = '\0';
    const char *at = given, *end = given + bytes;
    while (at < end && read_record(&at, end)) continue;
    if (at < end) s = fr_fail(FR_EFORMAT, "cuDNN plans of another process: record at byte %td is damaged", at - given);
done:
    pthread_mutex_unlock(&lock);
    return s;
}

int64_t fri_cuda_plan_file_forget(void) {
    pthread_mutex_lock(&lock);
    int64_t found = hits;
    free(contents);
    free(records);
    free(given);
    free(used);
    contents = given = used = NULL;
    used_bytes = used_room = 0;
    records = NULL;
    count = 0;
    hits = 0;
    was_read = damaged = false;
    path[0] = '\0';
    pthread_mutex_unlock(&lock);
    return found;
}
