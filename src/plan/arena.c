/* arena.c - from a recorded run to fixed places. */
#include "memory/arena.h"

#include "backend/description.h"
#include "base/clock.h"
#include "base/status.h"
#include "plan/plan.h"
#include "plan/section.h"

#include <stdlib.h>
#include <string.h>

/* Placed lifetimes; section i's are first[i] .. end[i] - 1. */
struct fri_layout {
    fri_lifetime *l;
    size_t n;
    size_t first[FRI_PLAN_SECTIONS], end[FRI_PLAN_SECTIONS];
    fr_placement placement;
};

static void layout_free(struct fri_layout **layout) {
    if (*layout != NULL) free((*layout)->l);
    free(*layout);
    *layout = NULL;
}

static bool is_move(const fr_event *e) {
    return (e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE) && e->requested > 0;
}

static size_t section_end(const fr_plan *p, int i) {
    return i + 1 < p->n_sections ? p->first_event[i + 1] : p->record.count;
}

static size_t next_move(const fr_plan *p, size_t at, size_t end) {
    while (at < end && !is_move(&p->record.events[at])) at++;
    return at;
}

/* The newest live allocation at the start of each section; 0: none. */
static void find_newest(const fr_plan *p, const uint64_t *end_of, size_t newest[FRI_PLAN_SECTIONS]) {
    const fri_record *r = &p->record;
    memset(newest, 0, FRI_PLAN_SECTIONS * sizeof *newest);
    for (int k = 0; k < p->n_sections; k++)
        for (size_t i = k == 0 ? 0 : p->first_event[k]; i < section_end(p, k); i++) {
            const fr_event *e = &r->events[i];
            if (e->kind != FR_EVENT_ALLOC || e->requested == 0) continue;
            for (int n = k + 1; n < p->n_sections && end_of[e->block] >= p->first_event[n]; n++) newest[n] = i;
        }
}

/* True if b can use the places of a: both sections allocate and free equal sizes in equal order, no allocation of b
 * outlives b, and all blocks alive at b's start (the newest from `newest`) were alive at a's start. */
static bool section_repeats(const fr_plan *p, int a, int b, const uint64_t *end_of, size_t newest) {
    size_t x = p->first_event[a], y = p->first_event[b], x_end = section_end(p, a), y_end = section_end(p, b);
    if (newest >= x) return false;
    for (;; x++, y++) {
        x = next_move(p, x, x_end);
        y = next_move(p, y, y_end);
        if (x == x_end || y == y_end) return x == x_end && y == y_end;
        const fr_event *e = &p->record.events[x], *f = &p->record.events[y];
        if (e->kind != f->kind || e->requested != f->requested) return false;
        if (f->kind == FR_EVENT_ALLOC && end_of[f->block] >= y_end) return false;
    }
}

/* Lifetimes in order of allocation. A repeated section uses the earlier section's span. Allocations before the first
 * section join the first. */
static fr_status find_lifetimes(const fr_plan *p, struct fri_layout *out) {
    const fri_record *r = &p->record;
    uint64_t last_block = 0;
    size_t newest[FRI_PLAN_SECTIONS];
    for (size_t i = 0; i < r->count; i++)
        if (r->events[i].block > last_block) last_block = r->events[i].block;
    FRI_OWNED(fri_free) uint64_t *end_of = malloc((last_block + 1) * sizeof *end_of); /* block number: freeing event */
    out->l = malloc((r->count + 1) * sizeof(*out->l));
    if (end_of == NULL || out->l == NULL) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    for (size_t b = 0; b <= last_block; b++) end_of[b] = SIZE_MAX;
    for (size_t i = 0; i < r->count; i++)
        if (r->events[i].kind == FR_EVENT_FREE) end_of[r->events[i].block] = i;
    find_newest(p, end_of, newest);
    for (int k = 0; k < p->n_sections; k++) {
        int same = 0;
        while (same < k && !section_repeats(p, same, k, end_of, newest[k])) same++;
        if (same < k) {
            out->first[k] = out->first[same];
            out->end[k] = out->end[same];
            continue;
        }
        out->first[k] = out->n;
        for (size_t i = k == 0 ? 0 : p->first_event[k]; i < section_end(p, k); i++) {
            const fr_event *e = &r->events[i];
            if (e->kind == FR_EVENT_ALLOC && e->requested > 0)
                out->l[out->n++] = (fri_lifetime){.begin = i, .end = end_of[e->block], .bytes = e->requested};
        }
        out->end[k] = out->n;
    }
    return FR_OK;
}

static fr_status place_blocks(const fr_plan *p, struct fri_layout **out) {
    if (p->allocator != NULL || p->n_sections == 0)
        return fr_fail(FR_EUSAGE, "arena: the plan is running or empty; end it and plan at least one section");
    FRI_OWNED(layout_free) struct fri_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    fr_placement *result = &layout->placement;
    double began = 1e3 * fri_now();
    FRI_TRY(find_lifetimes(p, layout));
    result->blocks = layout->n;
    FRI_TRY(fri_arena_place(layout->l, layout->n, p->first_event + 1, (size_t)p->n_sections - 1, &result->extent,
                            &result->peak));
    result->milliseconds = 1e3 * fri_now() - began;
    FRI_MOVE(out, layout);
    return FR_OK;
}

void fri_plan_layout_free(fr_plan *p) {
    layout_free(&p->layout);
}

/* Peaks of section i from the events, with the op at the first maximum; `live` continues across sections. */
static void section_in_arena(fr_plan *p, int i, size_t extent, size_t *live) {
    fr_memory_stats *m = &p->sections[i].memory;
    size_t peak = *live;
    for (size_t k = i == 0 ? 0 : p->first_event[i]; k < section_end(p, i); k++) {
        fr_event *e = &p->record.events[k];
        e->allocated = e->requested;
        if (e->kind == FR_EVENT_FREE) *live -= e->requested;
        if (e->kind != FR_EVENT_ALLOC) continue;
        *live += e->requested;
        if (*live <= peak) continue;
        peak = *live;
        m->peak_op = e->tag.op;
        m->peak_module = e->tag.module;
        m->peak_phase = e->tag.phase;
    }
    m->allocated = m->requested;
    m->peak_allocated = m->peak_requested;
    memcpy(m->allocated_by, m->requested_by, sizeof m->allocated_by);
    memcpy(m->at_peak_allocated, m->at_peak_requested, sizeof m->at_peak_allocated);
    m->reserved = m->peak_reserved = extent;
}

fr_status fr_plan_use_arena(fr_plan *plan, fr_placement *out) {
    FRI_NOT_NULL(plan);
    size_t live = 0;
    if (plan->layout == NULL) FRI_TRY(place_blocks(plan, &plan->layout));
    for (int i = 0; i < plan->n_sections; i++) section_in_arena(plan, i, plan->layout->placement.extent, &live);
    if (out != NULL) *out = plan->layout->placement;
    return FR_OK;
}

/* CUDA's libraries load code at the first call of a kernel, and need memory beside the arena. Libraries and context
 * (already present here) take 400 to 700 MiB. */
static const size_t libraries = (size_t)256 << 20;

fr_status fri_plan_room(fr_device device, size_t *bytes) {
    const fri_backend *b = fri_backend_get(device);
    size_t left = 0;
    if (b == NULL && device == FR_CUDA) FRI_TRY(fri_description_room(&left)); /* a build without CUDA plans alike */
    if (b != NULL && b->room != NULL) FRI_TRY(b->room(&left));
    *bytes = left > libraries ? left - libraries : 0;
    return FR_OK;
}

static fr_status expect_room(fr_device device, size_t extent) {
    size_t left = 0, total = 0;
    if (device != FR_CUDA) return FR_OK;
    fri_backend_get(device)->memory_info(&left, &total);
    if (total == 0 || (left >= libraries && extent <= left - libraries)) return FR_OK;
    return fr_fail(FR_ENOMEM, "arena: %zu bytes are needed; of the %zu free bytes of %s, libraries need %zu", extent,
                   left, fr_device_name(device), libraries);
}

fr_status fr_plan_install(const fr_plan *plan, fr_device device, fr_placement *out) {
    FRI_NOT_NULL(plan);
    FRI_OWNED(layout_free) struct fri_layout *own = NULL;
    FRI_OWNED(fri_arena_destroy) fri_arena *arena = NULL;
    const struct fri_layout *layout = plan->layout;
    fri_allocator *a = NULL;
    FRI_TRY(fri_plan_same_environment(plan, device));
    FRI_TRY(fri_allocator_get(device, &a));
    if (layout == NULL) {
        FRI_TRY(place_blocks(plan, &own));
        layout = own;
    }
    FRI_TRY(expect_room(device, layout->placement.extent));
    FRI_TRY(fri_arena_create(layout->l, layout->n, layout->first, layout->end, plan->n_sections,
                             layout->placement.extent, &arena));
    FRI_TRY(fri_allocator_arena_install(a, arena));
    arena = NULL; /* owned by the allocator */
    (void)fri_allocator_arena_follow(a, 0);
    if (out != NULL) *out = layout->placement;
    return FR_OK;
}

fr_status fr_plan_follow(fr_device device, int section) {
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(device, &a));
    if (fri_allocator_arena_follow(a, section)) return FR_OK;
    return fr_fail(FR_EUSAGE, "arena: %s has no arena", fr_device_name(device));
}

bool fri_plan_departed(fr_device device) {
    fri_allocator *a = NULL;
    return fri_allocator_get(device, &a) == FR_OK && fri_allocator_arena_departed(a);
}

fr_status fr_plan_uninstall(fr_device device) {
    fri_allocator *a = NULL;
    fr_status s = fri_allocator_get(device, &a);
    return s < 0 ? s : fri_allocator_arena_remove(a);
}
