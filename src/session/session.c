/* session.c - see session.h. */
#include "session/session.h"

#include "autograd/run.h"
#include "session/flags.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

void fri_session_warn(const fri_session *r) {
    fprintf(r->config->err, "%s: step %" PRId64 ": %s; the training goes on\n", r->config->program->name, r->at.step,
            fr_last_error());
}

void fri_session_note(const fri_config *c, const char *format, ...) {
    char text[1024];
    va_list args;
    if (c->opts.quiet && c->model == NULL) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const fr_status s = fr_fail(FR_EUSAGE, "%s", text);
    if (c->model != NULL) (void)fri_speak_of_fields(s);
    fprintf(c->out, "note: %s\n", fr_last_error());
}

void fri_session_end(fri_session *r) {
    fr_loader_release(&r->data.loader);
    fri_model_release(r);
    fr_dataset_release(&r->data.train);
    fr_dataset_release(&r->data.test);
    fri_scratch_release(&r->net.scratch);
    free(r->net.unit_weight);
    free(r->rank);
    r->net.unit_weight = NULL;
    free(r->data.pixels);
    free(r->data.pixel_classes);
    for (int i = 0; i < 2; i++) fri_step_values_free(&r->numbers.values[i]);
    free(r->numbers.losses);
    free(r->tested.confusion);
    free(r->numbers.step_ms);
    fr_fit_release(&r->memory.fit);
    fri_train_arena_release(r);
    if (r->pool == NULL) return;
    fr_pool_end(r->no_pool);
    fr_pool_release(&r->pool);
}
