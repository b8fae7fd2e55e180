/* summary_command.c - --summary: prints the network's layers, measured in a dry run of one step. */
#include "trainer/command.h"
#include "session/dry.h"
#include "session/flags.h"

#include <inttypes.h>

fr_status fri_summary_command(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    char size[FR_FLAG_TEXT_BYTES];
    FRI_OWNED(fri_train_plan_release) fri_train_plan plan = {0};
    FRI_OWNED(fr_summary_release) fr_summary *summary = NULL;
    FRI_TRY(fr_summary_begin(FR_META, &summary));
    FRI_TRY(fri_train_plan_make(r->config, SIZE_MAX, &plan));
    FRI_TRY(fr_summary_end(summary));
    if (!o->quiet)
        fprintf(r->config->out, "%s; %s, %s px, batches of %" PRId64 "%s\n", r->config->model_name,
                fri_dataset_name(r->config->opts.data.dataset), fri_image_text(o, size), o->optim.batch_size,
                o->memory.split_batch > 1 ? " in parts" : "");
    FRI_TRY(fr_summary_print(summary, r->config->out));
    return fflush(r->config->out) != 0 ? fr_fail(FR_EIO, "--summary: standard output cannot be written") : FR_OK;
}
