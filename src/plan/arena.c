/* arena.c - from a recorded run to fixed places. */
#include "memory/arena.h"

#include "base/status.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <time.h>

/* Lifetimes in order of allocation; first[i] is where section i's begin. The run before the first section joins it. */
static fr_status lifetimes(const fr_plan *p, fri_lifetime **out, size_t *n, size_t *first) {
    const fri_record *r = &p->record;
    fr_status s = FR_OK;
    uint64_t last_block = 0;
    int section = 0;
    *n = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->events[i].kind == FRI_EVENT_ALLOC && r->events[i].block > last_block) last_block = r->events[i].block;
    fri_lifetime *l = malloc((r->count + 1) * sizeof(*l));
    size_t *index = malloc((last_block + 1) * sizeof(*index)); /* block serial number -> lifetime */
    if (l == NULL || index == NULL) {
        s = fri_fail(FR_ENOMEM, "arena: out of host memory");
        goto done;
    }
    first[0] = 0;
    for (size_t i = 0; i < r->count; i++) {
        const fri_event *e = &r->events[i];
        while (section + 1 < p->n_sections && p->first_event[section + 1] <= i) first[++section] = *n;
        if (e->requested == 0) continue;
        if (e->kind == FRI_EVENT_ALLOC) {
            index[e->block] = *n;
            l[(*n)++] = (fri_lifetime){.begin = i, .end = SIZE_MAX, .bytes = e->requested};
        } else if (e->kind == FRI_EVENT_FREE && e->block <= last_block) {
            l[index[e->block]].end = i;
        }
    }
    while (section + 1 < p->n_sections) first[++section] = *n;
    *out = l;
    l = NULL;
done:
    free(l);
    free(index);
    return s;
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

fr_status fr_plan_install(const fr_plan *p, fr_device device, fr_placement *out) {
    fri_lifetime *l = NULL;
    fri_arena *arena = NULL;
    fri_allocator *a = NULL;
    fr_placement result = {0};
    size_t first[FRI_PLAN_SECTIONS + 1];
    fr_status s = FR_OK;
    if (p->allocator != NULL || p->n_sections == 0)
        return fri_fail(FR_EUSAGE, "arena: the plan has not ended, or has no section");
    FRI_TRY(s, fri_allocator_get(device, &a));
    double began = milliseconds();
    FRI_TRY(s, lifetimes(p, &l, &result.blocks, first));
    FRI_TRY(s, fri_arena_place(l, result.blocks, &result.extent, &result.peak));
    result.milliseconds = milliseconds() - began;
    FRI_TRY(s, fri_arena_create(l, result.blocks, first, p->n_sections, result.extent, &arena));
    FRI_TRY(s, fri_allocator_arena_install(a, arena));
    fri_arena_section(arena, 0);
    arena = NULL; /* the allocator owns it */
    if (out != NULL) *out = result;
done:
    fri_arena_destroy(&arena);
    free(l);
    return s;
}

fr_status fr_plan_follow(fr_device device, int section) {
    fri_allocator *a = NULL;
    fr_status s = fri_allocator_get(device, &a);
    if (s < 0) return s;
    if (fri_allocator_arena(a) == NULL)
        return fri_fail(FR_EUSAGE, "arena: none is installed on %s", fr_device_name(device));
    fri_arena_section(fri_allocator_arena(a), section);
    return FR_OK;
}

bool fr_plan_departed(fr_device device) {
    fri_allocator *a = NULL;
    return fri_allocator_get(device, &a) == FR_OK && fri_allocator_arena(a) != NULL &&
           fri_arena_departed(fri_allocator_arena(a));
}

fr_status fr_plan_uninstall(fr_device device) {
    fri_allocator *a = NULL;
    fr_status s = fri_allocator_get(device, &a);
    return s < 0 ? s : fri_allocator_arena_remove(a);
}
