/* state_record.h - the JSON part of a training state: all data except tensors.
 *
 * 64-bit integers, NaN and infinities are strings, because JSON numbers are finite doubles. The parser checks types and
 * bounds, so later computations cannot overflow; the caller compares the record with the run. */
#ifndef FRI_IO_STATE_RECORD_H
#define FRI_IO_STATE_RECORD_H

#include "base/rng.h"

#include <frugal/io.h>

#define FRI_STATE_RECORD_KEY "frugal.state" /* of the file's metadata */

/* Maximum of steps, epochs and batches: more than any run makes, and sums do not overflow. */
#define FRI_STATE_COUNT_MOST (INT64_C(1) << 60)

struct cJSON;

typedef struct fri_state_record {
    struct cJSON *json; /* owns the strings; NULL in a record without parsing */

    int64_t step, epoch;
    uint64_t run;                /* 0: none */
    const char *model, *dataset; /* NULL: none */
    fr_rng random;
    fr_schedule schedule;

    const char *optimizer; /* NULL: no saved optimizer; optimizer_steps is undefined */
    int64_t optimizer_steps, optimizer_tensors;
    bool has_scaler, has_loader;
    double scale;
    int64_t growth_tracker;
    int64_t loader_epoch, loader_batch, loader_batches; /* the last: per epoch */

    const struct cJSON *settings, *numbers; /* see below */
} fri_state_record;

/* FR_EFORMAT with a sentence. On success the record is freed by fri_state_record_free. */
fr_status fri_state_record_parse(const char *text, fri_state_record *out);
void fri_state_record_free(fri_state_record *r);

/* A parsed record's setting, or NULL; a number in *out, or false. */
const char *fri_state_record_setting(const fri_state_record *r, const char *name);
bool fri_state_record_number(const fri_state_record *r, const char *name, double *out);

/* The JSON of a record and of state's settings and numbers, in *text; free with fri_state_record_text_free. */
fr_status fri_state_record_print(const fri_state_record *r, const fr_state *state, char **text);
void fri_state_record_text_free(char *text);

#endif
