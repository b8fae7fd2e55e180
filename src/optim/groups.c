/* groups.c - parameter groups: a factor of the learning rate, and a weight decay. A group is a pair of values;
 * parameters with the same pair are in the same one, and are updated by one call. */
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

static bool is_selected(const fri_parameter *p, const char *select) {
    const char *dot = strrchr(p->path, '.');
    size_t n = strlen(select);
    if (strcmp(select, "norm") == 0) return p->norm;
    if (strcmp(select, "bias") == 0) return strcmp(dot != NULL ? dot + 1 : p->path, "bias") == 0;
    if (n > 0 && select[n - 1] == '.') n--;
    return n == 0 || (strncmp(p->path, select, n) == 0 && (p->path[n] == '\0' || p->path[n] == '.'));
}

/* Group with this factor and decay, added if new; -1: the table is full. */
static int group_of(fr_optimizer *o, double lr_factor, double weight_decay) {
    for (int i = 0; i < o->groups; i++)
        if (o->group[i].lr_factor == lr_factor && o->group[i].weight_decay == weight_decay) return i;
    if (o->groups == FRI_GROUPS_MAX) return -1;
    o->group[o->groups] = (fri_group){lr_factor, weight_decay, o->lr * lr_factor};
    return o->groups++;
}

fr_status fr_optimizer_group(fr_optimizer *o, const char *select, const fr_param_group_opts *opts) {
    FRI_NOT_NULL(o, select);
    const fr_param_group_opts g = opts != NULL ? *opts : fr_param_group_opts_default();
    bool any = false;
    if (!isfinite(g.lr_factor) || !isfinite(g.weight_decay))
        return fr_fail(FR_EINVAL, "%s: lr_factor %g, weight_decay %g for '%.200s'; both must be numbers",
                       fr_optimizer_name(o), g.lr_factor, g.weight_decay, select);
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        const fri_group *was = &o->group[p->group];
        if (!is_selected(p, select)) continue;
        const int group = group_of(o, g.lr_factor >= 0 ? g.lr_factor : was->lr_factor,
                                   g.weight_decay >= 0 ? g.weight_decay : was->weight_decay);
        if (group < 0)
            return fr_fail(FR_EINVAL, "%s: '%.200s' needs group %d; at most %d are possible", fr_optimizer_name(o),
                           p->path, FRI_GROUPS_MAX + 1, FRI_GROUPS_MAX);
        p->group = group;
        any = true;
    }
    return any ? FR_OK
               : fr_fail(FR_EINVAL, "%s: no layer or parameter is called '%.200s'", fr_optimizer_name(o), select);
}

void fri_optimizer_follow_lr(fr_optimizer *o) {
    for (int i = 0; i < o->groups; i++) o->group[i].lr = o->lr * o->group[i].lr_factor;
}
