/* notes.c - reports useless memory switches: plans the run without each switch of the command, and names a switch
 * that saves nothing in this network or raises the peak. */
#include "session/command.h"
#include "session/flags.h"
#include "session/dry.h"

#include <string.h>

static bool planned_peak(const fri_session *r, const fr_train_opts *o, size_t *bytes) {
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
    char a[FR_FLAG_TEXT_BYTES], b[FR_FLAG_TEXT_BYTES];
    if (strcmp(fr_flag_text(f, now, a), fr_flag_text(f, off, b)) == 0) return false;
    *out = *now;
    memcpy((char *)out + f->offset, (const char *)off + f->offset, field_bytes[f->kind]);
    if (out->memory.offload == NULL) out->memory.switches.offload = false;
    return true;
}

static void print_note(const fri_session *r, const fr_flag *f, size_t with, size_t plain) {
    char value[FR_FLAG_TEXT_BYTES], name[2 * FR_FLAG_TEXT_BYTES];
    bool segments = f->offset == offsetof(fr_train_opts, memory.checkpoint_segments);
    (void)fr_flag_text(f, &r->config->opts, value);
    bool alone = f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET || value[0] == '\0' ||
                 (f->implied != NULL && strcmp(value, f->implied) == 0);
    bool no = f->kind == FR_FLAG_BOOL && !*(const bool *)fri_flag_field(f, &r->config->opts);
    snprintf(name, sizeof name, "--%s%s%s%s", no ? "no-" : "", f->name,
             alone                ? ""
             : f->implied != NULL ? "="
                                  : " ",
             alone ? "" : value);
    if (with > plain)
        fprintf(r->config->out, "note: %s raises the peak, from %zu to %zu bytes%s\n", name, plain, with,
                segments ? ": what one segment needs in backward is more than the segments save" : "");
    else if (with == plain)
        fprintf(r->config->out, "note: %s saves nothing here: the peak of %zu bytes is the same without\n", name, with);
}

void fri_switch_notes(const fri_session *r) {
    fr_train_opts now = r->config->opts, off, other;
    size_t with = 0, plain = 0;
    if (r->config->opts.quiet || r->config->opts.memory.unit_plan != NULL) return; /* compared by the budget search */
    off = now;
    fri_flag_find("all-off")->act(&off);
    for (int i = 0; i < fri_flags_count; i++) {
        const fr_flag *f = &fri_flags[i];
        if (f->group != FR_GROUP_MEMORY || f->kind == FR_FLAG_ACT) continue;
        if (!fri_flag_given(f, r->config->argc, r->config->argv) || !options_without(f, &now, &off, &other)) continue;
        if (with == 0 && !planned_peak(r, &now, &with)) return;
        if (planned_peak(r, &other, &plain)) print_note(r, f, with, plain);
    }
}
