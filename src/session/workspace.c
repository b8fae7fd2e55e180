/* workspace.c - what scratch the kernels of a GPU may take where --workspace-limit does not say. */
#include "session/fit.h"

/* Plans the run within the limit: what it reserves, and the peak of what is requested. */
static bool found_under(const fri_config *c, size_t limit, size_t *reserved, size_t *peak) {
    fri_train_plan p = {0};
    if (fri_plan_run(c, limit, &p) < 0) return false;
    const bool yes = p.workspaces;
    const size_t a = p.training.peak_requested, b = p.evaluation.peak_requested;
    *reserved = fri_planned_reserved(&p);
    *peak = a > b ? a : b;
    fri_train_plan_release(&p);
    return yes;
}

/* Scratch that fills what is free below the peak may still not fit between the blocks: then it gets less of it. */
void fri_workspace_choose(fri_config *c, fr_scratch **scratch) {
    fri_config trial = *c;
    size_t reserved = 0, peak = 0, ignored[2];
    if (!c->workspace_auto || fr_scratch_create(scratch) < 0) return;
    trial.opts.switches.scratch = *scratch;
    bool found = found_under(&trial, c->opts.memory_limit, &reserved, &peak);
    for (size_t eighths = found ? 8 : 0; eighths > 0; eighths /= 2) {
        fr_scratch_settle(*scratch, peak / 8 * eighths);
        found = found_under(&trial, reserved, &ignored[0], &ignored[1]);
        if (found) break;
    }
    if (!found) fr_scratch_release(scratch);
    c->opts.switches.scratch = *scratch;
    fr_switches_set(c->opts.switches);
}
