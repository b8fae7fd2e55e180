/* arena.c - see arena.h. */
#include "base/env.h"
#include "base/status.h"
#include "train/plan.h"

#include <string.h>

static uint64_t device_calls(const fri_run *r) {
    fr_memory_stats m = {0};
    (void)fr_memory_stats_get(r->config->opts.device, &m);
    return m.segment_allocs + m.segment_frees;
}

static fr_status install(fri_run *r, fri_train_plan *p) {
    fri_config free = *r->config;
    const fr_train_opts *o = &r->config->opts;
    fr_status s = FR_OK;
    free.opts.memory_limit = SIZE_MAX; /* the caching allocator's reserve does not matter here, only the extent */
    FR_TRY(s, fri_train_plan_make(&free, p));
    if (!p->workspaces)
        return fri_fail(FR_EUNSUPPORTED, "a plan for %s cannot include its workspaces", fr_device_name(o->device));
    FR_TRY(s, fri_train_plan_use_arena(p, &r->arena.placement));
    if (r->arena.placement.extent > o->memory_limit)
        return fri_fail(FR_ENOMEM, "%zu bytes are needed, more than --memory-limit %zu", r->arena.placement.extent,
                        o->memory_limit);
    FR_TRY(s, fr_plan_install(p->plan, o->device, NULL));
done:
    return s;
}

bool fri_train_arena_wanted(fri_run *r) {
    if (!r->config->opts.arena || r->config->opts.device == FR_META) return false;
    if (r->config->opts.empty_cache_every > 0) {
        snprintf(r->arena.reason, sizeof r->arena.reason, "--empty-cache-every gives memory back, an arena keeps it");
        return false;
    }
    if (!fri_env_get()->no_pool) return true;
    snprintf(r->arena.reason, sizeof r->arena.reason, "FRUGAL_NO_POOL asks for a segment per allocation");
    return false;
}

void fri_train_arena_begin(fri_run *r) {
    fri_train_arena *a = &r->arena;
    fri_train_plan p = {0};
    double began = fri_seconds_now();
    if (!fri_train_arena_wanted(r)) return;
    a->used = install(r, &p) == FR_OK;
    if (!a->used) snprintf(a->reason, sizeof a->reason, "%.*s", (int)strcspn(fr_last_error(), "\n"), fr_last_error());
    for (int i = 0; i < FRI_PART_COUNT; i++) a->section[i] = p.plan != NULL ? p.section[i] : -1;
    a->plan_seconds = fri_seconds_now() - began;
    fri_train_plan_release(&p);
}

fr_status fri_train_arena_part(fri_run *r, fri_part part) {
    fri_train_arena *a = &r->arena;
    if (!a->counting && (part == FRI_PART_STEP || part == FRI_PART_SHORT_STEP)) {
        a->counting = true;
        a->calls_before = device_calls(r);
    }
    if (!a->used) return FR_OK;
    if (fr_plan_departed(r->config->opts.device)) a->departures++;
    return fr_plan_follow(r->config->opts.device, a->section[part]);
}

void fri_train_arena_end(fri_run *r) {
    fri_train_arena *a = &r->arena;
    if (a->used && fr_plan_departed(r->config->opts.device)) a->departures++;
    if (a->counting) a->calls = device_calls(r) - a->calls_before;
}

void fri_train_arena_release(fri_run *r) {
    if (r->arena.used) (void)fr_plan_uninstall(r->config->opts.device);
}
