/* summary.c - --summary: the layers of the network, from a dry run of the step that the flags ask for. */
#include "cli/commands.h"
#include "budget/dry.h"

#include <inttypes.h>

fr_status fri_summary_command(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    fri_train_plan plan = {0};
    fr_summary *summary = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_summary_begin(FR_META, &summary));
    FR_TRY(s, fri_train_plan_make(r->config, SIZE_MAX, &plan));
    FR_TRY(s, fr_summary_end(summary));
    if (!o->quiet)
        fprintf(r->config->out, "%s; %s, %" PRId64 " px, batches of %" PRId64 "%s\n", r->config->model_name,
                fri_dataset_name(r->config->opts.dataset), o->image_size, o->batch_size,
                o->split_batch > 1 ? " in parts" : "");
    FR_TRY(s, fr_summary_print(summary, r->config->out));
    if (fflush(r->config->out) != 0) s = fr_fail(FR_EIO, "--summary: standard output cannot be written");
done:
    fr_summary_release(&summary);
    fri_train_plan_release(&plan);
    return s;
}
