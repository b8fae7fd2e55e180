/* container.h - the limits that a control group (a container) sets to the process. */
#ifndef FRI_BASE_CONTAINER_H
#define FRI_BASE_CONTAINER_H

#include <stddef.h>

typedef struct fri_container {
    int processors; /* processors' worth of time, rounded up; 0: no limit */
    size_t memory;  /* bytes; 0: no limit */
} fri_container;

/* Reads the limits of the groups that the file `groups` names (as /proc/self/cgroup) and of all groups above them;
 * `mounted` is where groups of version 1 or 2 are mounted (/sys/fs/cgroup). The smallest limits count. */
void fri_container_read(const char *groups, const char *mounted, fri_container *out);

/* The limits of the process, read once, or of the place of fri_container_use (tests). */
const fri_container *fri_container_get(void);
void fri_container_use(const char *groups, const char *mounted);

#endif
