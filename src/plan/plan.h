/* plan.h - the plan struct, for the files of the folder. */
#ifndef FRI_PLAN_PLAN_H
#define FRI_PLAN_PLAN_H

#include "backend/backend.h"
#include "memory/allocator.h"
#include "plan/record.h"
#include "plan/section.h"

#include <frugal/plan.h>

struct fr_plan {
    fr_device target;
    const fri_backend *was_target;
    fri_allocator *allocator; /* NULL once ended */
    fri_allocator *was_allocator;
    fri_record record;
    fr_plan_section_stats sections[FRI_PLAN_SECTIONS];
    size_t first_event[FRI_PLAN_SECTIONS]; /* where each section begins in the record */
    int n_sections;
    char environment[256];
    struct fri_layout *layout; /* places in an arena; NULL until asked for */
};

void fri_plan_layout_free(fr_plan *p);

/* FR_EUSAGE, naming both sides, if `device` now differs from the plan's environment. */
fr_status fri_plan_same_environment(const fr_plan *p, fr_device device);

/* Fills in the environment. */
void fri_plan_environment(fr_plan *p);

#endif
