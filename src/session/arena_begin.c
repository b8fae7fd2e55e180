/* arena_begin.c - plans a run at its beginning and reserves the planned bytes (session/arena.h). */
#include "session/dry.h"
#include "session/step.h"

#include <string.h>

static fr_status install_plan(fri_run *r, fri_train_plan *p) {
    const fr_train_opts *o = &r->config->opts;
    /* Only the extent matters here; the bytes reserved by the caching allocator do not. */
    FRI_TRY(fri_train_plan_make(r->config, SIZE_MAX, p));
    if (!p->workspaces)
        return fr_fail(FR_EUNSUPPORTED, "a plan for %s cannot include its workspaces", fr_device_name(o->device));
    FRI_TRY(fri_train_plan_use_arena(p, &r->memory.arena.placement));
    if (r->memory.arena.placement.extent > o->memory.limit)
        return fr_fail(FR_ENOMEM, "%zu bytes are needed, more than --memory-limit %zu",
                       r->memory.arena.placement.extent, o->memory.limit);
    return fr_plan_install(p->plan, o->device, NULL);
}

void fri_train_arena_begin(fri_run *r) {
    fri_train_arena *a = &r->memory.arena;
    fri_train_plan p = {0};
    double began = fri_seconds_now();
    if (!fri_train_arena_wanted(r)) return;
    const fr_status s = install_plan(r, &p);
    a->used = s == FR_OK;
    a->short_of_memory = s == FR_ENOMEM;
    if (!a->used) snprintf(a->reason, sizeof a->reason, "%.*s", (int)strcspn(fr_last_error(), "\n"), fr_last_error());
    memcpy(a->section, p.section, sizeof a->section);
    a->plan_seconds = fri_seconds_now() - began;
    fri_train_plan_release(&p);
}
