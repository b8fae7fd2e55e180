/* summary.c - --summary: the layers of the network, from a dry run of the step that the flags ask for. */
#include "cli/commands.h"
#include "session/dry.h"

#include <inttypes.h>

static fr_status write_csv(const fr_summary *summary, const char *path) {
    fr_atomic_file f = FR_ATOMIC_FILE_CLOSED;
    fr_status s = FR_OK;
    FR_TRY(s, fr_atomic_open(path, 0666, &f));
    FR_TRY(s, fr_atomic_stream(&f));
    FR_TRY(s, fr_summary_csv(summary, f.stream));
    FR_TRY(s, fr_atomic_commit(&f));
done:
    fr_atomic_abandon(&f);
    return s < 0 ? fr_fail_prefix(s, "--csv %s: ", path) : FR_OK;
}

fr_status fri_summary_command(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    FRI_OWNED(fri_train_plan_release) fri_train_plan plan = {0};
    FRI_OWNED(fr_summary_release) fr_summary *summary = NULL;
    FRI_TRY(fr_summary_begin(FR_META, &summary));
    FRI_TRY(fri_train_plan_make(r->config, SIZE_MAX, &plan));
    FRI_TRY(fr_summary_end(summary));
    if (!o->quiet)
        fprintf(r->config->out, "%s; %s, %" PRId64 " px, batches of %" PRId64 "%s\n", r->config->model_name,
                fri_dataset_name(r->config->opts.dataset), o->image_size, o->batch_size,
                o->split_batch > 1 ? " in parts" : "");
    FRI_TRY(fr_summary_sort(summary, (fr_summary_column)o->sort));
    FRI_TRY(fr_summary_print(summary, r->config->out));
    if (o->csv != NULL) FRI_TRY(write_csv(summary, o->csv));
    return fflush(r->config->out) != 0 ? fr_fail(FR_EIO, "--summary: standard output cannot be written") : FR_OK;
}
