/* notes.c - reports useless memory switches: plans the run without each switch of the command, and names a switch
 * that saves nothing in this network or raises the peak. */
#include "trainer/command.h"
#include "session/fit.h"
#include "session/flags.h"

#include <string.h>

static bool planned_peak(const fri_run *r, const fr_train_opts *o, size_t *bytes) {
    fri_config trial = *r->config;
    fri_train_plan p = {0};
    trial.opts = *o;
    if (fri_train_plan_make(&trial, SIZE_MAX, &p) < 0) return false;
    *bytes = p.training.peak_requested;
    fri_train_plan_release(&p);
    return true;
}

static const size_t field_bytes[] = {
    [FR_FLAG_BOOL] = sizeof(bool),   [FR_FLAG_SET] = sizeof(bool),          [FR_FLAG_INT] = sizeof(int64_t),
    [FR_FLAG_REAL] = sizeof(double), [FR_FLAG_SIZE] = sizeof(size_t),       [FR_FLAG_CHOICE] = sizeof(int),
    [FR_FLAG_TEXT] = sizeof(char *), [FR_FLAG_SIDES] = 2 * sizeof(int64_t),
};

/* *out: options with switch f at its --all-off value. False if f has the value already. */
static bool options_without(const fr_flag *f, const fr_train_opts *now, const fr_train_opts *off, fr_train_opts *out) {
    if (!fri_flag_differs(f, now, off)) return false;
    *out = *now;
    memcpy((char *)out + f->offset, (const char *)off + f->offset, field_bytes[f->kind]);
    if (out->memory.offload == NULL) out->memory.switches.offload = false;
    return true;
}

/* Half types are chosen for speed, too, so only a peak that they raise is told. */
static bool is_half(const fr_flag *f) {
    return f->offset == offsetof(fr_train_opts, precision.amp) || f->offset == offsetof(fr_train_opts, precision.half);
}

static void print_note(const fri_run *r, const fr_flag *f, size_t with, size_t plain) {
    char words[FRI_FLAG_WORDS];
    const fr_train_opts *o = &r->config->opts;
    const bool segments = f->offset == offsetof(fr_train_opts, memory.checkpoint_segments);
    const bool waits = is_half(f) && fri_loss_scaled(o), wide = waits && !o->memory.switches.half_gradients;
    (void)fri_flag_words(f, o, words);
    if (with > plain)
        fri_say(r->config, FRI_SAY_NOTE, "%s raises the peak, from %zu to %zu bytes%s%s", words, plain, with,
                segments ? ": what one segment needs in backward is more than the segments save"
                : waits  ? ": the loss scale keeps all gradients until the step; bf16 needs none"
                         : "",
                wide ? ", and --half-gradients halves them" : "");
    else if (with == plain && !is_half(f))
        fri_say(r->config, FRI_SAY_NOTE, "%s saves nothing here: the peak of %zu bytes is the same without", words,
                with);
}

void fri_switch_notes(const fri_run *r) {
    fr_train_opts now = r->config->opts, off, other;
    size_t with = 0, plain = 0;
    if (r->config->opts.quiet || r->config->opts.memory.unit_plan != NULL) return; /* compared by the budget search */
    off = now;
    fri_flag_find("all-off")->act(&off);
    off.precision.amp = off.precision.half = FR_TRAIN_AMP_OFF;
    for (int i = 0; i < fri_flags_count; i++) {
        const fr_flag *f = &fri_flags[i];
        if ((f->group != FR_GROUP_MEMORY && !is_half(f)) || f->kind == FR_FLAG_ACT) continue;
        if (!fri_flag_given(f, r->config->argc, r->config->argv) || !options_without(f, &now, &off, &other)) continue;
        if (with == 0 && !planned_peak(r, &now, &with)) return;
        if (planned_peak(r, &other, &plain)) print_note(r, f, with, plain);
    }
}
