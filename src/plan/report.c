/* report.c - the plan as a table. */
#include "plan/plan.h"

#include "base/number.h"
#include "memory/report.h"
#include "plan/section.h"

static const char *or_dash(const char *s) {
    return s != NULL && s[0] != '\0' ? s : "-";
}

static void print_sections(const fr_plan *p, FILE *out) {
    fprintf(out, "%-26s %15s %15s %15s\n", "section, peak in bytes", "requested", "allocated", "reserved");
    for (int i = 0; i < p->n_sections; i++) {
        const fr_memory_stats *m = &p->sections[i].memory;
        fprintf(out, "  %-24s %15zu %15zu %15zu\n", p->sections[i].name, m->peak_requested, m->peak_allocated,
                m->peak_reserved);
    }
}

static void print_peak(const fr_plan *p, FILE *out) {
    char text[FR_BYTES_TEXT];
    int at = fri_plan_peak_section(p);
    const fr_memory_stats *m = &p->sections[at].memory;
    fprintf(out, "peak: %s (%zu bytes allocated) in %s, phase %s, op %s, module %s\n",
            fr_bytes_text(m->peak_allocated, text), m->peak_allocated, p->sections[at].name,
            fr_phase_name(m->peak_phase), or_dash(m->peak_op), or_dash(m->peak_module));
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        if (m->at_peak_allocated[c] > 0)
            fr_fprintf(out, "  %-24s %15zu  %5.1f %%\n", fr_category_name((fr_category)c), m->at_peak_allocated[c],
                       100.0 * (double)m->at_peak_allocated[c] / (double)m->peak_allocated);
}

static void print_live(const fr_plan *p, FILE *out) {
    enum { TOP = 10 };
    fri_plan_live live[TOP];
    char bytes[FR_BYTES_TEXT], shape_text[FRI_SHAPE_TEXT];
    int n = fri_plan_live_at_peak(p, live, TOP);
    fprintf(out, "alive at the peak, largest first:\n");
    for (int i = 0; i < n; i++) {
        fr_shape shape = fri_shape_of(live[i].rank, live[i].shape);
        fprintf(out, "  %12s  %3zu x %-5s %-24s %-11s %s, %s\n", fr_bytes_text(live[i].bytes, bytes), live[i].count,
                fr_dtype_name(live[i].dtype), fri_report_shape(&shape, shape_text), fr_category_name(live[i].category),
                or_dash(live[i].op), or_dash(live[i].module));
    }
}

/* Details of the libraries' workspaces, if the sum alone is not enough. */
static void print_remark(fr_device target, FILE *out) {
    char line[256] = "";
    const fri_backend *b = fri_backend_get(target);
    if (b != NULL && b->remark != NULL) b->remark(line, sizeof line);
    if (line[0] != '\0') fprintf(out, "%s\n", line);
}

fr_status fr_plan_report(const fr_plan *plan, FILE *out) {
    FRI_NOT_NULL(plan, out);
    char a[FR_BYTES_TEXT];
    fr_tag op;
    if (plan->n_sections == 0) return fr_fail(FR_EUSAGE, "plan report: the plan has no section");
    fprintf(out, "plan for %s\n", plan->environment);
    print_sections(plan, out);
    print_peak(plan, out);
    print_live(plan, out);
    size_t step = fri_plan_step_memory(plan), floor = fri_plan_floor(plan),
           largest = fri_record_largest_op(&plan->record, &op);
    fprintf(out, "step memory (peak - parameters - optimizer state): %s (%zu bytes)\n", fr_bytes_text(step, a), step);
    fprintf(out, "floor (parameters + state + largest op): %s (%zu bytes); largest op: %s in %s, %zu bytes\n",
            fr_bytes_text(floor, a), floor, or_dash(op.op), or_dash(op.module), largest);
    print_remark(plan->target, out);
    return ferror(out) ? fr_fail(FR_EIO, "plan report: the stream reports a write error") : FR_OK;
}
