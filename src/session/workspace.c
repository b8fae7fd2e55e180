/* workspace.c - chooses scratch memory for kernels on a GPU if --workspace-limit is not given. */
#include "autograd/run.h"
#include "session/fit.h"

/* Offers the kernels all memory below the peak, then halves the share until the reserved bytes do not grow. */
void fri_workspace_choose(fri_config *c, fri_scratch_limits **scratch) {
    fri_config trial = *c;
    fri_trial first, next;
    if (!c->workspace_auto || fri_scratch_create(scratch) < 0) return;
    trial.opts.memory.switches.scratch = *scratch;
    bool found = fri_try(&trial, c->opts.memory.limit, false, &first) == FR_OK && first.workspaces;
    for (size_t eighths = found ? 8 : 0; eighths > 0; eighths /= 2) {
        fri_scratch_settle(*scratch, first.requested / 8 * eighths);
        found = fri_try(&trial, first.reserved, false, &next) == FR_OK && next.workspaces;
        if (found) break;
    }
    if (!found) fri_scratch_release(scratch);
    c->opts.memory.switches.scratch = *scratch;
    fr_switches_set(c->opts.memory.switches);
}
