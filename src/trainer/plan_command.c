/* plan_command.c - --plan: prints a dry run as a table and writes the run's report without running. */
#include "trainer/command.h"

#include <frugal/number.h>
#include "session/fit.h"
#include "session/flags.h"

#include <inttypes.h>
#include <string.h>

/* Copies the plan's numbers into r for the report. */
static void take_numbers(fri_run *r, const fri_train_plan *p) {
    r->memory.training = p->training;
    r->memory.evaluation = p->evaluation;
    r->memory.largest_op = fri_plan_largest_op(p->plan);
    r->net.parameters = p->parameters;
    r->net.trained = p->trained;
}

static fr_status print_plan(const fri_run *r, const fri_train_plan *p) {
    const fr_train_opts *o = &r->config->opts;
    char peak[FR_BYTES_TEXT], evaluation[FR_BYTES_TEXT], size[FR_FLAG_TEXT_BYTES];
    if (!o->quiet) {
        fprintf(r->config->out, "%s, %" PRId64 " parameters; %s, %s px, batches of %" PRId64 ", %" PRId64 " steps\n",
                r->config->model_name, r->net.parameters, fri_dataset_name(o->data.dataset), fri_image_text(o, size),
                o->optim.batch_size, fri_steps_total(r->config));
        FRI_TRY(fr_plan_report(p->plan, r->config->out));
        if (!p->workspaces && o->device != FR_META)
            fprintf(r->config->out, "workspaces are not included: this build cannot ask the libraries of %s for them\n",
                    fr_device_name(o->device));
        if (!p->settled)
            fprintf(r->config->out,
                    "the allocator had not settled: allocated and reserved bytes of later steps may differ\n");
        fri_progress_arena(r);
        if (p->again > 0)
            fprintf(r->config->out, "a step runs %" PRIu64 " piece%s of the network forward once more in backward\n",
                    p->again, p->again == 1 ? "" : "s");
    }
    fr_fprintf(r->config->out, "planned in %.3f s: peak memory %s", p->seconds,
               fr_bytes_text(p->training.peak_allocated, peak));
    if (p->evaluation.peak_allocated > 0)
        fprintf(r->config->out, " (evaluation %s)", fr_bytes_text(p->evaluation.peak_allocated, evaluation));
    fprintf(r->config->out, "%s\n", p->workspaces ? ", workspaces included" : ", without workspaces");
    return FR_OK;
}

/* Places the blocks of the plan in an arena; nothing is reserved. */
static fr_status use_arena(fri_run *r, fri_train_plan *p) {
    fri_train_arena *a = &r->memory.arena;
    double began = fri_seconds_now();
    if (!fri_train_arena_wanted(r)) return FR_OK;
    fr_status s = fri_train_plan_use_arena(p, &a->placement);
    a->used = s == FR_OK;
    a->plan_seconds = p->seconds + fri_seconds_now() - began;
    return s;
}

/* Plans again under --memory-limit, where the allocator releases cached segments before a request fails. */
static fr_status under_limit(fri_run *r, fri_train_plan *p) {
    char limit[FR_BYTES_TEXT], needs[FR_BYTES_TEXT];
    const size_t reserved = fri_planned_reserved(p);
    fri_train_plan limited = {0};
    if (reserved <= r->config->opts.memory.limit) return FR_OK;
    r->memory.arena.used = false;
    fr_status s = fri_train_plan_make(r->config, r->config->opts.memory.limit, &limited);
    if (s == FR_ENOMEM)
        return fr_fail(FR_ENOMEM, "--memory-limit %s: this run reserves %zu bytes (%s)",
                       fr_bytes_text(r->config->opts.memory.limit, limit), reserved, fr_bytes_text(reserved, needs));
    if (s < 0) return s;
    fri_train_plan_release(p);
    *p = limited;
    return FR_OK;
}

fr_status fri_plan_command(fri_run *r) {
    FRI_OWNED(fri_train_plan_release) fri_train_plan p = {0};
    r->planned = true;
    FRI_TRY(fri_run_emit(r, FR_RUN_SETUP));
    FRI_TRY(fri_train_plan_make(r->config, SIZE_MAX, &p));
    FRI_TRY(fri_run_emit(r, FR_RUN_STEPS_END));
    FRI_TRY(use_arena(r, &p));
    fr_status s = FR_OK;
    const fr_status fits = under_limit(r, &p);
    take_numbers(r, &p);
    FRI_TRY(print_plan(r, &p));
    if (fits == FR_OK) s = fri_run_emit(r, FR_RUN_END);
    if (fflush(r->config->out) != 0 && s == FR_OK) s = fr_fail(FR_EIO, "--plan: standard output cannot be written");
    return s < 0 ? s : fits;
}
