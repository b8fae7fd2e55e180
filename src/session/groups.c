/* groups.c - parameter groups and EMA of the optimizer from the options. */
#include "session/model.h"
#include "net/units.h"

/* A network without such parameters is not an error. */
static fr_status stop_decay(const fri_run *r, const char *which) {
    const fr_status s = fr_optimizer_group(r->net.optimizer, which, FR_PARAM_GROUP_OPTS(.weight_decay = 0));
    return s == FR_EINVAL ? FR_OK : s;
}

fr_status fri_groups_build(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    const char *head = fri_module_head(r->net.model);
    if (o->optim.head_lr_scale != 1 && head != NULL)
        FRI_TRY(fr_optimizer_group(r->net.optimizer, head, FR_PARAM_GROUP_OPTS(.lr_factor = o->optim.head_lr_scale)));
    if (o->optim.no_norm_decay) FRI_TRY(stop_decay(r, "bias"));
    if (o->optim.no_norm_decay) FRI_TRY(stop_decay(r, "norm"));
    return fr_optimizer_ema(r->net.optimizer, o->optim.ema);
}
