/* room.c - the device's free memory decides what a run keeps for backward.
 *
 * A pass over memory that rebuilds an activation costs a GPU a sixth of a step, so a run keeps everything if the plan
 * fits. Rebuild, units and a fused step change no bit; batch, accumulation and types are never changed. */
#include "plan/section.h"
#include "session/data.h"
#include "session/fit.h"
#include "session/flags.h"

#include <string.h>

/* True if the command has the flag, or the options have another value than the default. */
static bool is_set_by_user(const fri_config *c, const fr_flag *f) {
    const fr_train_opts defaults = fr_train_opts_default();
    if (fri_flag_given(f, c->argc, c->argv) || f->kind == FR_FLAG_ACT) return fri_flag_given(f, c->argc, c->argv);
    return fri_flag_differs(f, &c->opts, &defaults);
}

/* True if a memory flag was given that says what the run keeps; limits, the arena and the workspaces do not. */
static bool any_is_set(const fri_config *c) {
    static const char *const others[] = {"memory-limit", "workspace-limit", "arena", "calibrate", "plan"};
    for (int i = 0; i < fri_flags_count; i++) {
        bool other = fri_flags[i].group != FR_GROUP_MEMORY;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            other = other || strcmp(fri_flags[i].name, others[k]) == 0;
        if (!other && is_set_by_user(c, &fri_flags[i])) return true;
    }
    return false;
}

/* The budget is the room. If nothing fits, the options stay as they were, and the run may try. */
static fr_status fit_room(fri_config *c, fri_run_memory *of) {
    fri_room *room = &of->room;
    c->opts.memory.budget = room->bytes;
    const fr_status s = fri_fit(c, &of->fit);
    room->fits = of->fit.fits;
    if (s != FR_ENOMEM || of->fit.smallest == 0) return s;
    c->opts.memory = room->asked;
    room->choice = "rebuilt";
    snprintf(room->reason, sizeof room->reason, "nothing fits, at least %zu bytes are needed", of->fit.smallest);
    return FR_OK;
}

static fr_status choose_in_room(fri_config *c, fri_run_memory *of) {
    fri_config kept = *c;
    const fr_train_opts *o = &c->opts;
    fri_room *room = &of->room;
    fri_trial trial;
    kept.opts.memory.switches.rebuild = false;
    fr_status s = FR_OK;
    size_t fits = 0;
    /* casts of weights, too, where there is room */
    for (int casts = o->precision.amp != FR_TRAIN_AMP_OFF; casts >= 0 && s >= 0 && fits == 0; casts--) {
        kept.opts.memory.switches.cache_casts = casts > 0 || o->memory.switches.cache_casts;
        s = fri_try(&kept, room->bytes, true, &trial);
        fits = trial.fits;
        FRI_TRY(fri_ranks_least(c, &fits));
    }
    if (s < 0) { /* without a plan there is no arena either, and the run says why */
        *room = (fri_room){0};
        return FR_OK;
    }
    room->choice = fits ? "kept" : any_is_set(c) ? "rebuilt" : "fitted";
    room->fits = true;
    snprintf(room->reason, sizeof room->reason, "without rebuilding, the run reserves %zu bytes", trial.reserved);
    if (fits) c->opts.memory.switches = kept.opts.memory.switches;
    return strcmp(room->choice, "fitted") == 0 ? fit_room(c, of) : FR_OK;
}

fr_status fri_room_choose(fri_config *c, fri_run_memory *of) {
    const fr_train_opts *o = &c->opts;
    fri_room *room = &of->room;
    char text[FR_BYTES_TEXT];
    if (o->memory.budget != SIZE_MAX || o->plan > FR_TRAIN_PLAN_PEAK || o->files.predict != NULL ||
        is_set_by_user(c, fri_flag_find("rebuild")))
        return FR_OK;
    FRI_TRY(fri_plan_room(o->device, &room->bytes));
    if (room->bytes > o->memory.limit) room->bytes = o->memory.limit;
    FRI_TRY(fri_ranks_least(c, &room->bytes));
    if (room->bytes == 0) return FR_OK;
    room->asked = o->memory;
    FRI_TRY(choose_in_room(c, of));
    if (room->bytes == 0) return FR_OK;
    fr_switches_set(o->memory.switches);
    fri_say(c, FRI_SAY_NOTE, "room of %s (%zu bytes): %s; %s", fr_bytes_text(room->bytes, text), room->bytes,
            strcmp(room->choice, "kept") == 0      ? "nothing is rebuilt in backward"
            : strcmp(room->choice, "rebuilt") == 0 ? "results are rebuilt in backward (--rebuild)"
                                                   : "the room is the budget",
            room->reason);
    return FR_OK;
}
