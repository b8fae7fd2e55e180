/* groups.c - parameter groups and averages from the flags. */
#include "session/session.h"

#include <frugal/unstable/number.h>

#include <stdlib.h>
#include <string.h>

/* "PREFIX=X", or a prefix alone; "head" is the last layer. */
static fr_status group(fri_session *r, const char *flag, const char *word, bool scales) {
    char select[512];
    char *end = NULL;
    const char *equals = scales ? strrchr(word, '=') : word + strlen(word);
    double factor = -1;
    if (scales && equals != NULL) factor = fr_strtod(equals + 1, &end);
    if (equals == NULL || (size_t)(equals - word) >= sizeof select ||
        (scales && (end == equals + 1 || *end != '\0' || !(factor >= 0 && factor <= 1e6))))
        return fr_fail(FR_EINVAL, "--%s %.200s: is not of the form PREFIX=X with a number X from 0 to 1e6", flag, word);
    snprintf(select, sizeof select, "%.*s", (int)(equals - word), word);
    if (select[0] == '\0') return fr_fail(FR_EINVAL, "--%s '%.200s': its prefix is empty", flag, word);
    const char *head = fr_module_head(r->model);
    if (strcmp(select, "head") == 0 && head != NULL) snprintf(select, sizeof select, "%s", head);
    fr_status s =
        fr_optimizer_group(r->optimizer, select,
                           FR_PARAM_GROUP_OPTS(.lr_factor = scales ? factor : -1, .weight_decay = scales ? -1 : 0));
    return s < 0 ? fr_fail_prefix(s, "--%s %.200s: ", flag, word) : FR_OK;
}

fr_status fri_groups_build(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    for (int64_t i = 0; i < o->n_lr_scale; i++) FRI_TRY(group(r, "lr-scale", o->lr_scale[i], true));
    for (int64_t i = 0; i < o->n_no_weight_decay; i++)
        FRI_TRY(group(r, "no-weight-decay", o->no_weight_decay[i], false));
    return fr_optimizer_ema(r->optimizer, o->ema);
}
