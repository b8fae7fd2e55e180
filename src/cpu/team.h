/* team.h - failures inside a parallel region: stored by the failing thread, returned after the region. */
#ifndef FRI_CPU_TEAM_H
#define FRI_CPU_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Failure of a team: status and sentence of the first thread that failed. */
typedef struct fri_team_failure {
    fr_status status;
    char sentence[256];
    atomic_bool noted;
} fri_team_failure;

static inline void fri_team_note(fri_team_failure *f, fr_status s) {
    if (s >= 0 || atomic_exchange(&f->noted, true)) return;
    f->status = s;
    snprintf(f->sentence, sizeof f->sentence, "%s", fr_last_error());
}

static inline fr_status fri_team_told(const fri_team_failure *f) {
    return f->status < 0 ? fr_fail(f->status, "%s", f->sentence) : FR_OK;
}

#endif
