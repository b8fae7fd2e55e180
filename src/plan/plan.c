/* plan.c - runs a program's step on addresses without memory, and counts bytes. */
#include "plan/plan.h"

#include "base/process.h"
#include "base/status.h"
#include "meta/meta.h"
#include "plan/section.h"

#include <stdlib.h>
#include <string.h>

static void close_section(fr_plan *p) {
    if (p->n_sections > 0 && p->allocator != NULL)
        fri_allocator_stats(p->allocator, &p->sections[p->n_sections - 1].memory);
}

fr_status fr_plan_begin(fr_device target, fr_plan **out) {
    FRI_NOT_NULL(out);
    FRI_OWNED(fri_free) fr_plan *p = NULL;
    FRI_OWNED(fri_allocator_destroy) fri_allocator *allocator = NULL;
    const fri_backend *meta = fri_backend_get(FR_META), *stands_for = fri_backend_get(target);
    if (fri_here.plan != NULL) return fr_fail(FR_EUSAGE, "plan: another plan is running on this thread; end it first");
    if (stands_for == NULL)
        return fr_fail(FR_EDEVICE, "plan: this build of frugal is without the %s backend", fr_device_name(target));
    if ((p = calloc(1, sizeof *p)) == NULL) return fr_fail(FR_ENOMEM, "plan: out of host memory");
    p->record.device = FR_META;
    p->target = target;
    fri_segment_source source = {meta->segment_alloc, meta->segment_free};
    FRI_TRY(fri_allocator_create(FR_META, source, &allocator));
    FRI_TRY(fr_event_subscribe(fri_record_event, &p->record));
    FRI_MOVE(&p->allocator, allocator);
    p->was_allocator = fri_allocator_override(FR_META, p->allocator);
    p->was_target = fri_meta_target_set(target == FR_META ? NULL : stands_for);
    fri_plan_environment(p);
    fri_here.plan = p;
    FRI_MOVE(out, p);
    return FR_OK;
}

fr_status fr_plan_section(fr_plan *plan, const char *name) {
    FRI_NOT_NULL(plan, name);
    if (plan != fri_here.plan) return fr_fail(FR_EUSAGE, "plan: section '%s' outside a running plan", name);
    if (plan->n_sections == FRI_PLAN_SECTIONS)
        return fr_fail(FR_EUSAGE, "plan: section '%s' exceeds the %d sections of a plan", name, FRI_PLAN_SECTIONS);
    close_section(plan);
    plan->first_event[plan->n_sections] = plan->record.count;
    plan->sections[plan->n_sections++] = (fr_plan_section_stats){.name = fri_intern(name)};
    fri_allocator_reset_peak(plan->allocator);
    return FR_OK;
}

fr_status fr_plan_end(fr_plan *plan) {
    FRI_NOT_NULL(plan);
    if (plan != fri_here.plan) return fr_fail(FR_EUSAGE, "plan: fr_plan_end without fr_plan_begin");
    fr_memory_stats left;
    close_section(plan);
    fri_allocator_stats(plan->allocator, &left);
    fr_event_unsubscribe(fri_record_event, &plan->record);
    (void)fri_allocator_override(FR_META, plan->was_allocator);
    fri_meta_target_set(plan->was_target);
    fri_here.plan = NULL;
    if (plan->record.failed) return fr_fail(FR_ENOMEM, "plan: out of host memory while recording the run");
    if (left.allocs != left.frees)
        return fr_fail(FR_EUSAGE, "plan: %llu tensors of the planned run are still alive at its end",
                       (unsigned long long)(left.allocs - left.frees));
    fri_allocator_destroy(&plan->allocator);
    return FR_OK;
}

void fr_plan_release(fr_plan **plan) {
    if (plan == NULL) return;
    fr_plan *p = *plan;
    *plan = NULL;
    if (p == NULL) return;
    if (p == fri_here.plan) (void)fr_plan_end(p);
    fri_record_free(&p->record);
    fri_plan_layout_free(p);
    fri_allocator_destroy(&p->allocator);
    free(p);
}

/* ---- looking ----------------------------------------------------------------------------------------------- */

int fri_plan_sections(const fr_plan *p) {
    return p != NULL ? p->n_sections : 0;
}

fr_status fr_plan_section_get(const fr_plan *plan, int i, fr_plan_section_stats *out) {
    FRI_NOT_NULL(plan, out);
    if (i < 0 || i >= plan->n_sections)
        return fr_fail(FR_EINVAL, "plan: section %d is outside 0..%d", i, plan->n_sections - 1);
    *out = plan->sections[i];
    return FR_OK;
}

int fri_plan_peak_section(const fr_plan *p) {
    if (p == NULL) return 0;
    int best = 0;
    for (int i = 1; i < p->n_sections; i++)
        if (p->sections[i].memory.peak_allocated > p->sections[best].memory.peak_allocated) best = i;
    return best;
}

size_t fri_plan_step_memory(const fr_plan *p) {
    if (p == NULL) return 0;
    const fr_memory_stats *m = &p->sections[fri_plan_peak_section(p)].memory;
    return m->peak_allocated - m->at_peak_allocated[FR_MEM_PARAMETER] - m->at_peak_allocated[FR_MEM_OPTIMIZER];
}

size_t fri_plan_largest_op(const fr_plan *p) {
    fr_tag op;
    return p != NULL ? fri_record_largest_op(&p->record, &op) : 0;
}

uint64_t fri_plan_state(const fr_plan *p) {
    return p != NULL && p->allocator != NULL ? fri_allocator_fingerprint(p->allocator) : 0;
}

bool fri_plan_workspaces(fr_device target) {
    const fri_backend *b = fri_device_built(target) ? fri_backend_get(target) : NULL;
    return target != FR_META && b != NULL && fri_kernels_for(b, FR_F32)->conv2d_forward_workspace != NULL;
}

size_t fri_plan_floor(const fr_plan *p) {
    if (p == NULL) return 0;
    const fr_memory_stats *m = &p->sections[fri_plan_peak_section(p)].memory;
    fr_tag op;
    return m->at_peak_allocated[FR_MEM_PARAMETER] + m->at_peak_allocated[FR_MEM_OPTIMIZER] +
           fri_record_largest_op(&p->record, &op);
}

struct collector {
    fri_plan_live *items;
    size_t count;
};

static void collect_event(void *ctx, const fr_event *alloc) {
    struct collector *c = ctx;
    const fr_tag *t = &alloc->tag;
    for (size_t i = 0; i < c->count; i++) {
        fri_plan_live *l = &c->items[i];
        if (l->op == t->op && l->module == t->module && l->category == t->category && l->dtype == t->dtype &&
            l->rank == t->shape.rank && memcmp(l->shape, t->shape.dim, sizeof l->shape) == 0) {
            l->bytes += alloc->allocated;
            l->count++;
            return;
        }
    }
    if (FRI_ROOM(c->items, c->count, "plan") < 0) return; /* a shorter list */
    fri_plan_live *l = &c->items[c->count++];
    *l = (fri_plan_live){.category = t->category,
                         .dtype = t->dtype,
                         .rank = t->shape.rank,
                         .op = t->op,
                         .module = t->module,
                         .bytes = alloc->allocated,
                         .count = 1};
    memcpy(l->shape, t->shape.dim, sizeof l->shape);
}

static int larger_first(const void *a, const void *b) {
    const fri_plan_live *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

int fri_plan_live_at_peak(const fr_plan *p, fri_plan_live *out, int n) {
    if (p == NULL || out == NULL) return 0;
    struct collector c = {0};
    size_t bytes = 0;
    size_t at = fri_record_peak(&p->record, &bytes);
    int written = 0;
    if (fri_record_live(&p->record, at, collect_event, &c) == FR_OK && c.count > 0) {
        qsort(c.items, c.count, sizeof(*c.items), larger_first);
        for (; written < n && (size_t)written < c.count; written++) out[written] = c.items[written];
    }
    free(c.items);
    return written;
}
