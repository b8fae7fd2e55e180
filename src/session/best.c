/* best.c - the best evaluation: --keep-best and train.optim.patience.
 *
 * An evaluation counts if it follows a whole epoch at which the training evaluates. The evaluation at a place where
 * --steps ends the run is made for the report alone: without --steps no evaluation follows there, and a training in
 * several runs keeps the weights of a training in one run. */
#include "session/step.h"
#include "session/state.h"
#include "base/cache.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = 1 << 20, DOUBLE_BITS = 53 };

/* Fingerprint of a file's bytes, exact in a double and above 0; 0: the file cannot be read. */
static double fingerprint(const char *path) {
    uint64_t hash = FRI_HASH;
    size_t n = 0;
    FILE *f = fopen(path, "rb");
    FRI_OWNED(fri_free) char *bytes = f != NULL ? malloc(CHUNK) : NULL;
    while (bytes != NULL && (n = fread(bytes, 1, CHUNK, f)) > 0) hash = fri_hash(hash, bytes, n);
    const bool whole = bytes != NULL && !ferror(f);
    if (f != NULL) fclose(f);
    return whole ? (double)(hash >> (64 - DOUBLE_BITS) | 1) : 0;
}

bool fri_best_is_in_file(const fri_run *r) {
    const fri_run_tested *t = &r->tested;
    const double file = t->best_file != 0 ? fingerprint(r->config->opts.files.export_weights) : 0;
    return file > 0 && (file == t->best_file || t->best_file < 0);
}

bool fri_patience_is_over(const fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    return o->optim.patience != FR_TRAIN_AUTO && r->tested.since_best >= (double)o->optim.patience;
}

static fr_status keep(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    r->tested.best_file = 0;
    if (!o->files.keep_best || o->files.export_weights == NULL) return FR_OK;
    FRI_TRY(fri_weights_write(r, o->files.export_weights));
    r->tested.written = true;
    if (o->files.save != NULL) r->tested.best_file = fingerprint(o->files.export_weights);
    return FR_OK;
}

fr_status fri_best_compare(fri_run *r) {
    fri_run_tested *t = &r->tested;
    const bool accuracy = r->config->accuracy, may_be_known = t->may_be_known;
    const double now = accuracy ? t->accuracy : t->loss;
    const bool counts = r->at.first_evaluation == FRI_FIRST_STEP ? fri_evaluation_counts(r->config, r->at.step)
                                                                 : r->at.first_evaluation == FRI_FIRST_EVALUATION;
    if (!counts) return FR_OK;
    t->counted = r->at.step;
    t->may_be_known = false;
    const bool better = isnan(t->best) ? !isnan(now) : accuracy ? now > t->best : now < t->best;
    if (better)
        t->best = now, t->since_best = 0;
    else if (!may_be_known || now != t->best)
        t->since_best++;
    t->given_up = fri_patience_is_over(r);
    return better ? keep(r) : FR_OK;
}
