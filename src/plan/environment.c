/* environment.c - what a plan's numbers depend on, and comparing where it is the same.
 *
 * Threads, instruction set and library versions decide which kernels a library takes and how much scratch they ask for;
 * FRUGAL_NO_POOL decides what the allocator does. A number from another environment is not wrong, it is about another
 * run, so it is not compared. */
#include "plan/plan.h"

#include "base/env.h"
#include "base/status.h"

#include <string.h>

static void describe(fr_device device, char *buf, size_t bytes) {
    char library[160] = "";
    const fri_backend *b = fri_backend_get(device);
    if (b != NULL && b->describe != NULL) b->describe(library, sizeof library);
    snprintf(buf, bytes, "%s%s%s%s", fr_device_name(device), library[0] ? ", " : "", library,
             fri_env_get()->no_pool ? ", no pool" : "");
}

void fri_plan_environment(fr_plan *p) {
    describe(p->target, p->environment, sizeof p->environment);
}

static fr_status same_environment(const char *planned, const char *other) {
    if (strcmp(planned, other) == 0) return FR_OK;
    return fr_fail(FR_EUSAGE, "plan: made for '%s', which is not comparable with '%s'", planned, other);
}

fr_status fri_plan_same_environment(const fr_plan *p, fr_device device) {
    char now[sizeof p->environment];
    describe(device, now, sizeof now);
    return same_environment(p->environment, now);
}

static fr_status unequal(const char *section, const char *what, const char *category, size_t planned, size_t measured) {
    return fr_fail(FR_EINVAL, "plan: section '%s': %s%s%s: %zu bytes planned, %zu measured", section, what,
                   category[0] ? " of " : "", category, planned, measured);
}

static fr_status same_parts(const char *section, const char *what, const size_t *planned, const size_t *measured) {
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        if (planned[c] != measured[c])
            return unequal(section, what, fr_category_name((fr_category)c), planned[c], measured[c]);
    return FR_OK;
}

static fr_status same_stats(const char *section, const fr_memory_stats *p, const fr_memory_stats *m) {
    if (p->peak_requested != m->peak_requested)
        return unequal(section, "requested at the peak", "", p->peak_requested, m->peak_requested);
    if (p->peak_allocated != m->peak_allocated)
        return unequal(section, "allocated at the peak", "", p->peak_allocated, m->peak_allocated);
    if (p->peak_reserved != m->peak_reserved)
        return unequal(section, "reserved at the peak", "", p->peak_reserved, m->peak_reserved);
    FRI_TRY(same_parts(section, "requested at the peak", p->at_peak_requested, m->at_peak_requested));
    return same_parts(section, "allocated at the peak", p->at_peak_allocated, m->at_peak_allocated);
}

fr_status fr_plan_verify(const fr_plan *plan, int section, fr_device device, const fr_memory_stats *measured) {
    FRI_NOT_NULL(plan, measured);
    fr_plan_section_stats planned;
    FRI_TRY(fri_plan_same_environment(plan, device));
    FRI_TRY(fr_plan_section_get(plan, section, &planned));
    return same_stats(planned.name, &planned.memory, measured);
}

fr_status fr_plan_compare(const fr_plan *a, const fr_plan *b) {
    FRI_NOT_NULL(a, b);
    FRI_TRY(same_environment(a->environment, b->environment));
    if (a->n_sections != b->n_sections)
        return fr_fail(FR_EINVAL, "plan: one has %d sections, the other %d", a->n_sections, b->n_sections);
    for (int i = 0; i < a->n_sections; i++)
        FRI_TRY(same_stats(a->sections[i].name, &a->sections[i].memory, &b->sections[i].memory));
    return FR_OK;
}
