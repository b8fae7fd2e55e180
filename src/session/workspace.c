/* workspace.c - chooses scratch memory for kernels on a GPU if --workspace-limit is not given. */
#include "autograd/run.h"
#include "session/fit.h"

/* Plans the run within the limit. *reserved and *peak: planned reserved bytes and peak of requested bytes. */
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

/* Offers the kernels all memory below the peak, then halves the share until the reserved bytes do not grow. */
void fri_workspace_choose(fri_config *c, fri_scratch_limits **scratch) {
    fri_config trial = *c;
    size_t reserved = 0, peak = 0, ignored[2];
    if (!c->workspace_auto || fri_scratch_create(scratch) < 0) return;
    trial.opts.memory.switches.scratch = *scratch;
    bool found = found_under(&trial, c->opts.memory.limit, &reserved, &peak);
    for (size_t eighths = found ? 8 : 0; eighths > 0; eighths /= 2) {
        fri_scratch_settle(*scratch, peak / 8 * eighths);
        found = found_under(&trial, reserved, &ignored[0], &ignored[1]);
        if (found) break;
    }
    if (!found) fri_scratch_release(scratch);
    c->opts.memory.switches.scratch = *scratch;
    fr_switches_set(c->opts.memory.switches);
}
