/* container.c - see container.h. */
#include "base/container.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { GROUP_BYTES = 4096 + 64 };

/* Reads one or two numbers from a file and returns how many the file holds. "max" is no number. */
static int read_numbers(const char *folder, const char *name, long long *a, long long *b) {
    char path[GROUP_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    const int n = fscanf(f, "%lld %lld", a, b);
    fclose(f);
    return n;
}

static void limit_processors(long long quota, long long period, fri_container *out) {
    if (quota <= 0 || period <= 0) return;
    const long long n = (quota + period - 1) / period;
    if (n < 1 << 20 && (out->processors == 0 || n < out->processors)) out->processors = (int)n;
}

/* Version 1 writes the largest number of pages where there is no limit. */
static void limit_memory(long long bytes, fri_container *out) {
    if (bytes <= 0 || bytes > 1LL << 62) return;
    if (out->memory == 0 || (size_t)bytes < out->memory) out->memory = (size_t)bytes;
}

static void read_group(const char *folder, fri_container *out) {
    long long a = 0, b = 0;
    if (read_numbers(folder, "cpu.max", &a, &b) == 2) limit_processors(a, b, out);
    if (read_numbers(folder, "memory.max", &a, &b) >= 1) limit_memory(a, out);
    if (read_numbers(folder, "memory.limit_in_bytes", &a, &b) >= 1) limit_memory(a, out);
    if (read_numbers(folder, "cpu.cfs_quota_us", &a, &b) >= 1 && read_numbers(folder, "cpu.cfs_period_us", &b, &b) >= 1)
        limit_processors(a, b, out);
}

/* Reads the group and all groups above, up to where groups are mounted. A container may see its own group there, under
 * another path than `group`; missing folders are passed over. */
static void read_groups(const char *mounted, const char *group, fri_container *out) {
    char folder[GROUP_BYTES];
    const size_t top = strlen(mounted);
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", mounted, group) >= sizeof folder) return;
    for (;;) {
        read_group(folder, out);
        char *slash = strrchr(folder + top, '/');
        if (slash == NULL) break;
        *slash = '\0';
    }
}

/* A line of `groups` is number:controllers:path; version 2 has number 0 and no controllers. */
static void read_line(char *line, const char *mounted, fri_container *out) {
    char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL) return;
    *names++ = *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (names[0] == '\0') read_groups(mounted, path, out);
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        char folder[GROUP_BYTES];
        if (strcmp(name, "cpu") != 0 && strcmp(name, "memory") != 0) continue;
        if ((size_t)snprintf(folder, sizeof folder, "%s/%s", mounted, name) < sizeof folder)
            read_groups(folder, path, out);
    }
}

void fri_container_read(const char *groups, const char *mounted, fri_container *out) {
    char line[GROUP_BYTES];
    *out = (fri_container){0};
    FILE *f = fopen(groups, "r");
    if (f == NULL) return;
    while (fgets(line, sizeof line, f) != NULL) read_line(line, mounted, out);
    fclose(f);
}

static fri_container own;

static void read_own(void) {
    fri_container_read("/proc/self/cgroup", "/sys/fs/cgroup", &own);
}

const fri_container *fri_container_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_own);
    return &own;
}

void fri_container_use(const char *groups, const char *mounted) {
    (void)fri_container_get();
    fri_container_read(groups, mounted, &own);
}
