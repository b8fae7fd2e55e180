/* groups.c - parameter groups and averages from the flags. */
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- layer-wise decay ---------------------------------------------------------------------------------------- */

/* Blocks are told apart by the first two names of a path ("layer1.0", "features.3", "fc"); a norm alone counts to the
 * block in front of it (timm's group_with_matcher does the same by patterns). */
typedef struct blocks {
    fri_session *r;
    char last[512];
    int64_t depth, depths; /* of the last one; all of them, 0 while they are counted */
} blocks;

static fr_status next_parameter(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    blocks *b = ctx;
    char key[512], layer[512];
    (void)t;
    if (!is_parameter) return FR_OK;
    snprintf(layer, sizeof layer, "%s", path);
    char *dot = strrchr(layer, '.');
    if (dot != NULL) *dot = '\0';
    snprintf(key, sizeof key, "%s", dot != NULL ? layer : path);
    dot = strchr(key, '.');
    dot = dot != NULL ? strchr(dot + 1, '.') : NULL;
    if (dot != NULL) *dot = '\0';
    if (strcmp(key, b->last) == 0) return FR_OK;
    fr_module *m = strcmp(key, layer) == 0 ? fr_module_find(b->r->model, layer) : NULL;
    const bool norm = m != NULL && (fr_module_class_of(m)->traits & FR_LAYER_KEEPS_F32) != 0;
    snprintf(b->last, sizeof b->last, "%s", key);
    if (!norm || b->depth == 0) b->depth++;
    if (b->depths == 0) return FR_OK;
    const double factor = pow(b->r->config->opts.layer_decay, (double)(b->depths - b->depth));
    return fr_optimizer_group(b->r->optimizer, key, FR_PARAM_GROUP_OPTS(.lr_factor = factor));
}

static fr_status layer_decay(fri_session *r) {
    blocks b = {.r = r};
    fr_status s = fr_module_each_tensor(r->model, next_parameter, &b);
    b = (blocks){.r = r, .depths = b.depth};
    if (s == FR_OK) s = fr_module_each_tensor(r->model, next_parameter, &b);
    return s < 0 ? fr_fail_prefix(s, "--layer-decay %g: ", r->config->opts.layer_decay) : FR_OK;
}

/* ---- groups by name ------------------------------------------------------------------------------------------ */

/* "PREFIX=X", or a prefix alone; "head" is the last layer. */
static fr_status group(fri_session *r, const char *flag, const char *word, bool scales) {
    char select[512];
    char *end = NULL;
    const char *equals = scales ? strrchr(word, '=') : word + strlen(word);
    double factor = -1;
    if (scales && equals != NULL) factor = strtod(equals + 1, &end);
    if (equals == NULL || (size_t)(equals - word) >= sizeof select ||
        (scales && (end == equals + 1 || *end != '\0' || !(factor >= 0 && factor <= 1e6))))
        return fr_fail(FR_EINVAL, "--%s %.200s: is not of the form PREFIX=X with a number X from 0 to 1e6", flag, word);
    snprintf(select, sizeof select, "%.*s", (int)(equals - word), word);
    const char *head = fr_module_head(r->model);
    if (strcmp(select, "head") == 0 && head != NULL) snprintf(select, sizeof select, "%s", head);
    fr_status s =
        fr_optimizer_group(r->optimizer, select,
                           FR_PARAM_GROUP_OPTS(.lr_factor = scales ? factor : -1, .weight_decay = scales ? -1 : 0));
    return s < 0 ? fr_fail_prefix(s, "--%s %.200s: ", flag, word) : FR_OK;
}

fr_status fri_groups_build(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    if (o->layer_decay < 1) FRI_TRY(layer_decay(r));
    for (int64_t i = 0; i < o->n_lr_scale; i++) FRI_TRY(group(r, "lr-scale", o->lr_scale[i], true));
    for (int64_t i = 0; i < o->n_no_weight_decay; i++)
        FRI_TRY(group(r, "no-weight-decay", o->no_weight_decay[i], false));
    return fr_optimizer_ema(r->optimizer, o->ema);
}
