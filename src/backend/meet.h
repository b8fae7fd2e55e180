/* meet.h - how ranks over TCP find each other: connections for every pair of them. */
#ifndef FRI_BACKEND_MEET_H
#define FRI_BACKEND_MEET_H

#include "backend/launcher.h"

enum { FRI_MEET_DATA, FRI_MEET_BYE, FRI_MEET_KINDS };

typedef struct fri_meeting {
    int rank, size;
    int (*fd)[FRI_MEET_KINDS]; /* [size], nonblocking; -1: none, as to itself */
} fri_meeting;

/* Rank i connects to all before it; the table of where they listen comes from rank 0, to which all come first. On
 * failure nothing is open, and `reason` says who has not come. `seconds` limits the whole. */
fr_status fri_meet(const fri_launcher *l, double seconds, fri_meeting *out, char *reason, size_t bytes);
void fri_meet_close(fri_meeting *m);

#endif
