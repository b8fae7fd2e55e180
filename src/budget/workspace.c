/* workspace.c - what scratch the kernels of a GPU may take where --workspace-limit does not say. */
#include "budget/fit.h"

static const size_t most = (size_t)4 << 30;

static bool fits(const fri_config *c, size_t limit, size_t *reserved) {
    fri_train_plan p = {0};
    if (fri_plan_run(c, limit, &p) < 0) return false;
    const bool yes = p.workspaces;
    *reserved = fri_planned_reserved(&p);
    fri_train_plan_release(&p);
    return yes;
}

void fri_workspace_choose(fri_config *c) {
    fri_config trial = *c;
    size_t *limit = &trial.opts.switches.workspace_limit, planned = 0, reserved = 0;
    if (!c->workspace_auto || !fits(c, c->opts.memory_limit, &planned)) return;
    for (*limit *= 2; *limit <= most && fits(&trial, planned, &reserved); *limit *= 2)
        c->opts.switches.workspace_limit = *limit;
    fr_switches_set(c->opts.switches);
}
