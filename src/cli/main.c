/* main.c - a training program from arguments to exit status. */
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "session/fit.h"
#include "session/prepare.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Flushes the output and reports a failure. */
static fr_status flush_output(FILE *out) {
    if (fflush(out) != 0) return fr_fail(FR_EIO, "standard output cannot be written: %s", strerror(errno));
    return ferror(out) ? fr_fail(FR_EIO, "standard output cannot be written: a part of it is lost") : FR_OK;
}

/* Prints advice after a failed run, whose error is already printed. Exhausted host memory leaves no room for dry
 * runs. */
static void print_advice(const fri_session *r) {
    if (strstr(fr_last_error(), "host memory") != NULL) return;
    /* Dry runs allocate on meta, where a limit would stop them. */
    if (r->config->opts.device == FR_META) (void)fr_memory_limit_set(FR_META, SIZE_MAX);
    if (fri_advise(r->config, stderr) < 0) fprintf(stderr, "  no advice: %s\n", fr_last_error());
}

int fr_train_main(const fr_train_program *p, int argc, char **argv) {
    fri_config config = {.program = p,
                         .opts = p->defaults,
                         .argc = argc,
                         .argv = argv,
                         .out = stdout,
                         .err = stderr,
                         .progress = &fri_progress_view};
    fri_session r = {.config = &config, .at.saved_step = -1};
    fri_views *views = NULL;
    bool advises = true;
    r.tested.accuracy = r.tested.loss = r.tested.best = NAN;
    fri_streams_begin();
    fr_status s = fri_flags_check(p);
    if (s == FR_OK) s = fri_flags_parse(p, argc, argv, &config.opts, stdout);
    if (s == FR_OK) s = fri_places_check(p, &config.opts);
    if (s == FR_OK) s = fri_ranks_begin(&config);
    if (s == FR_OK) s = fri_run_prepare(&config, &r, &views);
    if (s == FR_OK) fri_ranks_note(&r);
    r.watcher = (fri_run_watcher){fri_views_event, views};
    int failure = s == FR_EINVAL ? 2 : 1; /* 2: wrong flags; 1: failure of the run */
    if (s == FR_OK) s = fri_commands_run(&r, &advises);
    if (s >= 0) s = flush_output(stdout);
    if (s < 0) fri_ranks_failed(&r, s);
    if (s == FR_ENOMEM && advises && config.ranks < 2) print_advice(&r);
    fri_views_end(&views);
    fri_session_end(&r);
    fr_offload_close();
    if (config.comm != NULL) config.rank_calls->release(&config.comm);
    if (config.out != stdout) fclose(config.out);
    return s < 0 ? failure : r.at.signal != 0 ? 128 + r.at.signal : 0;
}
