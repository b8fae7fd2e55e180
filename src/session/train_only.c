/* train_only.c - --train-only auto: chooses the layers, norms and biases whose training fits the budget.
 *
 * Counted from the end of the network, the last `last` layers train completely, the norms of the last `norm` layers
 * and the biases of the last `bias` layers. Full layers are chosen first, because training them helps most. Remaining
 * memory goes to norms, which keep their input for backward, then to biases, which keep no activations (Cai et al.
 * 2020, TinyTL). Memory grows with each number, so bisection over dry runs finds the numbers. */
#include "session/fit.h"
#include "session/flags.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    fri_config trial;
    int64_t layers, last, norm, bias;
    int trials;
} search;

static void set_words(const search *at, fri_config *c) {
    char words[FRI_TRAIN_ONLY_BYTES];
    int n = snprintf(words, sizeof words, "last=%" PRId64, at->last);
    if (at->norm > at->last) n += snprintf(words + n, sizeof words - (size_t)n, " norm=%" PRId64, at->norm);
    if (at->bias > at->norm) snprintf(words + n, sizeof words - (size_t)n, " bias=%" PRId64, at->bias);
    fri_train_only_set(c, at->last == at->layers ? "all" : words);
}

/* *yes: the current choice fits, with the options that --memory-budget may choose. */
static fr_status setting_fits(search *at, bool *yes) {
    const fri_config *c = &at->trial;
    const size_t budget = c->opts.memory.budget < c->opts.memory.limit ? c->opts.memory.budget : c->opts.memory.limit;
    set_words(at, &at->trial);
    at->trials++;
    return fri_try_budget(c, budget, c->opts.memory.fit_switches, yes);
}

/* Binary search for the largest *number that still fits; the initial value must fit. */
static fr_status grow_number(search *at, int64_t *number) {
    int64_t low = *number, high = at->layers + 1;
    fr_status s = FR_OK;
    while (high - low > 1 && s == FR_OK) {
        bool yes = false;
        *number = high > at->layers ? at->layers : low + (high - low) / 2; /* first try: all layers */
        const int64_t tried = *number;
        s = setting_fits(at, &yes);
        if (yes)
            low = tried;
        else
            high = tried;
    }
    *number = low;
    return s;
}

static fr_status count_layers(const fri_run *trial, void *ctx) {
    *(int64_t *)ctx = fri_layers(trial->net.model);
    return FR_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

typedef struct layer_table {
    const fri_config *config;
    const fr_summary *summary;
    char layer[FRI_LAYER_BYTES];
    int64_t trained, parameters;
    bool only_biases;
    size_t bytes;
} layer_table;

static size_t saved_by(const fr_summary *summary, const char *path) {
    fr_summary_layer l;
    for (int i = 0; i < fr_summary_layers(summary); i++)
        if (fr_summary_layer_get(summary, i, &l) == FR_OK && strcmp(l.path, path) == 0) return l.saved;
    return 0;
}

static void print_layer(const layer_table *t, const char *layer) {
    if (t->trained > 0)
        fri_say(t->config, FRI_SAY_CHOICE, "  %-40s %-6s %12" PRId64 " %14zu %14zu", layer,
                t->trained == t->parameters ? "all"
                : t->only_biases            ? "bias"
                                            : "part",
                t->trained, t->bytes, saved_by(t->summary, layer));
}

static fr_status add_parameter(void *ctx, const char *path, fr_tensor *p, bool is_parameter) {
    layer_table *t = ctx;
    const char *dot = strrchr(path, '.');
    char last[FRI_LAYER_BYTES];
    if (!is_parameter) return FR_OK;
    memcpy(last, t->layer, sizeof last);
    if (fri_layer_next(t->layer, path)) {
        print_layer(t, last);
        t->trained = t->parameters = 0;
        t->bytes = 0;
        t->only_biases = true;
    }
    t->parameters += fr_tensor_numel(p);
    if (!fr_tensor_requires_grad(p)) return FR_OK;
    t->trained += fr_tensor_numel(p);
    t->bytes += fr_tensor_nbytes(p);
    t->only_biases &= strcmp(dot != NULL ? dot + 1 : path, "bias") == 0;
    return FR_OK;
}

static fr_status print_layers(const fri_run *trial, void *ctx) {
    layer_table *t = ctx;
    fri_say(t->config, FRI_SAY_CHOICE, "  %-40s %-6s %12s %14s %14s", "layer", "trains", "parameters", "gradient bytes",
            "bytes if kept");
    fr_status s = fr_module_each_tensor(trial->net.model, add_parameter, t);
    print_layer(t, t->layer);
    return s;
}

static fr_status print_found(const fri_config *c, const search *at, double seconds) {
    FRI_OWNED(fri_train_plan_release) fri_train_plan plan = {0};
    layer_table t = {.config = c, .only_biases = true};
    FRI_OWNED(fr_summary_release) fr_summary *summary = NULL;
    char words[FR_FLAG_TEXT_BYTES];
    if (c->opts.quiet) return FR_OK;
    fri_say(c, FRI_SAY_CHOICE,
            "--train-only auto is --train-only %s, of %" PRId64 " layers with parameters (%d trials, %.1f s)",
            fr_flag_text(fri_flag_find("train-only"), &c->opts, words), at->layers, at->trials, seconds);
    FRI_TRY(fr_summary_begin(FR_META, &summary));
    FRI_TRY(fri_train_plan_make(c, SIZE_MAX, &plan));
    FRI_TRY(fr_summary_end(summary));
    t.summary = summary;
    return fri_on_meta(c, print_layers, &t);
}

/* ---- the flag -------------------------------------------------------------------------------------------------- */

fr_status fri_train_only_choose(fri_config *c) {
    search at = {.trial = *c, .last = 1};
    const double began = fri_seconds_now();
    bool yes = false;
    if (!fri_trains_auto(&c->opts)) return FR_OK;
    if (at.trial.opts.memory.prefix_parts == FR_TRAIN_PARTS_AUTO) /* chosen later; an eighth needs little */
        at.trial.opts.memory.prefix_parts = (c->opts.optim.batch_size + 7) / 8;
    FRI_TRY(fri_on_meta(c, count_layers, &at.layers));
    FRI_TRY(setting_fits(&at, &yes));
    if (yes) { /* else --memory-budget reports the smallest budget */
        FRI_TRY(grow_number(&at, &at.last));
        at.norm = at.last;
        FRI_TRY(grow_number(&at, &at.norm));
        at.bias = at.norm;
        FRI_TRY(grow_number(&at, &at.bias));
    }
    set_words(&at, c);
    return yes ? print_found(c, &at, fri_seconds_now() - began) : FR_OK;
}
