/* session.c - see session.h. */
#include "session/session.h"

#include "autograd/run.h"

#include <inttypes.h>
#include <stdlib.h>

void fri_session_warn(const fri_session *r) {
    fprintf(r->config->err, "%s: step %" PRId64 ": %s; the training goes on\n", r->config->program->name, r->step,
            fr_last_error());
}

void fri_session_end(fri_session *r) {
    fr_loader_release(&r->loader);
    fri_model_release(r);
    fr_dataset_release(&r->train);
    fr_dataset_release(&r->test);
    fri_scratch_release(&r->scratch);
    free(r->unit_weight);
    free(r->rank);
    r->unit_weight = NULL;
    free(r->pixels);
    free(r->pixel_classes);
    for (int i = 0; i < 2; i++) fri_step_values_free(&r->values[i]);
    free(r->losses);
    free(r->confusion);
    free(r->step_ms);
    fr_fit_release(&r->fit);
    fri_train_arena_release(r);
    if (r->pool == NULL) return;
    fr_pool_end(r->no_pool);
    fr_pool_release(&r->pool);
}
