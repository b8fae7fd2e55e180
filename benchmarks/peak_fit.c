/* peak_fit.c - see peak_fit.h. */
#include "peak_fit.h"

#include <frugal/plan.h>

typedef struct fitting {
    peak_setting at;
    const peak_case *c;
} fitting;

/* fr_fit_run_fn: two steps of the case under a plan and a limit. */
static fr_status dry_run(void *ctx, const fr_unit_plan *plan, size_t limit, fr_memory_stats *peak) {
    const fitting *f = ctx;
    peak_case c = *f->c;
    fr_plan *p = NULL;
    fr_plan_section_stats section;
    fr_status s = fr_plan_begin(f->at.device, &p);
    if (s < 0) return s;
    peak_setting dry = f->at;
    dry.device = FR_META;
    c.how = PEAK_PLAN;
    c.plan = plan;
    s = fr_memory_limit_set(FR_META, limit);
    if (s == FR_OK) s = fr_plan_section(p, "steps");
    if (s == FR_OK) s = peak_two_steps(&dry, &c);
    fr_status ended = fr_plan_end(p);
    if (s == FR_OK) s = ended;
    if (s == FR_OK) s = fr_plan_section_get(p, 0, &section);
    if (s == FR_OK) *peak = section.memory;
    fr_plan_release(&p);
    return s;
}

bool peak_fit_smallest(const peak_setting *at, peak_case *c, fr_fit *fit) {
    fitting f = {.at = *at, .c = c};
    fr_model_opts o = *FR_MODEL_OPTS(.classes = at->net->classes, .image_size = at->image_size, .device = FR_META);
    fr_fit_opts opts = *FR_FIT_OPTS(.target = at->device, .budget = 1);
    peak_must(at->net->build(&o, &opts.model));
    peak_must(fr_fit_find(dry_run, &f, &opts, fit));
    opts.budget = fit->smallest;
    fr_fit_release(fit);
    peak_must(fr_fit_find(dry_run, &f, &opts, fit));
    fr_module_release(&opts.model);
    c->how = PEAK_PLAN;
    c->plan = &fit->plan;
    return fit->fits;
}
