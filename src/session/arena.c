/* arena.c - see arena.h. */
#include "memory/report.h"
#include "plan/section.h"
#include "session/session.h"

static uint64_t device_calls(const fri_run *r) {
    fr_memory_stats m = {0};
    (void)fr_memory_stats_get(r->config->opts.device, &m);
    return m.segment_allocs + m.segment_frees;
}

bool fri_train_arena_wanted(fri_run *r) {
    if (!r->config->opts.memory.arena || r->config->opts.device == FR_META) return false;
    if (!fri_memory_unpooled()) return true;
    snprintf(r->memory.arena.reason, sizeof r->memory.arena.reason, "FRUGAL_NO_POOL asks for a segment per allocation");
    return false;
}

fr_status fri_train_arena_part(fri_run *r, fri_section part) {
    fri_train_arena *a = &r->memory.arena;
    if (!a->counting && (part == FRI_PART_STEP || part == FRI_PART_SHORT_STEP)) {
        a->counting = true;
        a->calls_before = device_calls(r);
    }
    if (!a->used) return FR_OK;
    if (fri_plan_departed(r->config->opts.device)) a->departures++;
    return fr_plan_follow(r->config->opts.device, a->section[part]);
}

void fri_train_arena_end(fri_run *r) {
    fri_train_arena *a = &r->memory.arena;
    if (a->used && fri_plan_departed(r->config->opts.device)) a->departures++;
    if (a->counting) a->calls = device_calls(r) - a->calls_before;
}

void fri_train_arena_release(fri_run *r) {
    if (r->memory.arena.used) (void)fr_plan_uninstall(r->config->opts.device);
}
