/* trained.c - selects the parameters that train (--train-only, --freeze). */
#include "session/model.h"
#include "net/units.h"

#include <stdlib.h>
#include <string.h>

/* Words of --train-only with a count: whole layers, norms or biases of the last N layers with parameters. */
static const char *const kinds[] = {"last", "norm", "bias"};
enum { LAST, NORM, BIAS, KINDS };

typedef struct unfreezing {
    fr_module *m;
    int kind;
    int64_t first, layers; /* first layer that trains; layers seen so far */
    char layer[FRI_LAYER_BYTES];
} unfreezing;

bool fri_layer_next(char layer[FRI_LAYER_BYTES], const char *path) {
    const char *dot = strrchr(path, '.');
    const size_t n = dot != NULL ? (size_t)(dot - path) : 0;
    const bool other = strlen(layer) != n || strncmp(layer, path, n) != 0;
    snprintf(layer, FRI_LAYER_BYTES, "%.*s", (int)n, path);
    return other;
}

static int64_t layer_number(unfreezing *k, const char *path) {
    if (fri_layer_next(k->layer, path) || k->layers == 0) k->layers++;
    return k->layers - 1;
}

static fr_status count_layer(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)t;
    if (is_parameter) (void)layer_number(ctx, path);
    return FR_OK;
}

int64_t fri_layers(fr_module *m) {
    unfreezing k = {.m = m};
    return fr_module_each_tensor(m, count_layer, &k) == FR_OK ? k.layers : 0;
}

static fr_status unfreeze_kind(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    unfreezing *k = ctx;
    (void)t;
    if (!is_parameter || layer_number(k, path) < k->first) return FR_OK;
    const char *dot = strrchr(path, '.');
    const bool bias = strcmp(dot != NULL ? dot + 1 : path, "bias") == 0;
    if (k->kind == BIAS) return bias ? fr_module_freeze(k->m, path, false) : FR_OK;
    const fr_module *layer = dot != NULL ? fr_module_find(k->m, k->layer) : k->m;
    const bool norm = (fr_module_class_of(layer)->traits & FR_LAYER_KEEPS_F32) != 0;
    if (k->kind == NORM && !norm) return FR_OK;
    return fr_module_freeze(k->m, norm && dot != NULL ? k->layer : path, false); /* norms with their running values */
}

/* "norm": the norms of all layers; "norm=20": of the last 20. FR_END: not such a word. */
static fr_status unfreeze_counted(fr_module *m, const char *word) {
    const size_t n = strcspn(word, "=");
    unfreezing k = {.m = m};
    char *end = NULL;
    while (k.kind < KINDS && (strlen(kinds[k.kind]) != n || strncmp(kinds[k.kind], word, n) != 0)) k.kind++;
    if (k.kind == KINDS || (k.kind == LAST && word[n] == '\0')) return FR_END;
    if (word[n] == '=') {
        const long long count = strtoll(word + n + 1, &end, 10);
        if (count < 1 || *end != '\0')
            return fr_fail(FR_EINVAL, "'%.100s' must be a number of layers, at least 1", word + n + 1);
        k.first = fri_layers(m) - count;
    }
    return fr_module_each_tensor(m, unfreeze_kind, &k);
}

/* Rejects an empty prefix, which fr_module_freeze would take for the whole network. */
static fr_status freeze_named(fr_module *m, const char *word, bool on) {
    if (word[0] == '\0') return fr_fail(FR_EINVAL, "the name is empty; give a layer's name (--summary lists them)");
    return fr_module_freeze(m, word, on);
}

static fr_status unfreeze_word(fr_module *m, const char *word) {
    if (strcmp(word, "all") == 0 || strcmp(word, "auto") == 0) return fr_module_freeze(m, NULL, false);
    if (strcmp(word, "head") == 0) return fr_module_freeze(m, fri_module_head(m), false);
    fr_status s = unfreeze_counted(m, word);
    if (s == FR_END) s = freeze_named(m, word, false);
    if (s == FR_EINVAL && strcmp(word, kinds[LAST]) == 0)
        s = fr_fail(s, "the number of layers is missing, as in last=4; the last layer alone is 'head'");
    return s;
}

/* ---- a new model ----------------------------------------------------------------------------------------------- */

fr_status fri_freeze_parts(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    fr_status s = o->model.n_train_only > 0 ? fr_module_freeze(r->net.model, NULL, true) : FR_OK;
    for (int64_t i = 0; i < o->model.n_train_only && s == FR_OK; i++) {
        s = unfreeze_word(r->net.model, o->model.train_only[i]);
        if (s < 0) return fr_fail_prefix(s, "--train-only %s: ", o->model.train_only[i]);
    }
    for (int64_t i = 0; i < o->model.n_freeze && s == FR_OK; i++) {
        s = freeze_named(r->net.model, o->model.freeze[i], true);
        if (s < 0) return fr_fail_prefix(s, "--freeze %s: ", o->model.freeze[i]);
    }
    r->net.trained = fr_module_trained_count(r->net.model);
    if (s == FR_OK && r->net.trained == 0)
        s = fr_fail(FR_EINVAL, "--%s: no parameter is left to train", o->model.n_freeze > 0 ? "freeze" : "train-only");
    if (s == FR_OK && o->memory.prefix_parts > 0) s = fri_module_prefix_parts(r->net.model, o->memory.prefix_parts);
    return s;
}
