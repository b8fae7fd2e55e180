/* state_record.c - see state_record.h. */
#include "io/state_record.h"

#include "base/status.h"
#include "base/number.h"

#include <cJSON.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };

static const char *const schedule_names[] =
    {[FR_SCHEDULE_CONSTANT] = "constant", [FR_SCHEDULE_STEP] = "step", [FR_SCHEDULE_COSINE] = "cosine"};

/* ---- printing ---------------------------------------------------------------------------------------------- */

static bool add_i64(cJSON *to, const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return cJSON_AddStringToObject(to, name, text) != NULL;
}

static bool add_u64(cJSON *to, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddStringToObject(to, name, text) != NULL;
}

/* Raw text: cJSON may print a neighbour of the value (its check that 15 digits suffice allows for a last bit). */
static bool add_double(cJSON *to, const char *name, double value) {
    char buffer[FRI_NUMBER_BYTES];
    const char *text = fri_number_text(value, buffer);
    if (isfinite(value)) return cJSON_AddRawToObject(to, name, text) != NULL;
    return cJSON_AddStringToObject(to, name, text) != NULL;
}

static bool add_text(cJSON *to, const char *name, const char *text) {
    return text == NULL || cJSON_AddStringToObject(to, name, text) != NULL;
}

static bool add_schedule(cJSON *to, const fr_schedule *s) {
    cJSON *o = cJSON_AddObjectToObject(to, "schedule");
    return o != NULL && add_text(o, "kind", schedule_names[s->kind]) && add_double(o, "lr", s->lr) &&
           add_i64(o, "warmup", s->warmup) && add_i64(o, "total", s->total) && add_i64(o, "step_size", s->step_size) &&
           add_double(o, "gamma", s->gamma);
}

static bool add_parts(cJSON *to, const fri_state_record *r) {
    bool ok = true;
    cJSON *o = cJSON_AddObjectToObject(to, "random");
    ok = o != NULL && add_u64(o, "seed", r->random.seed) && add_u64(o, "next_stream", r->random.next_stream);
    if (ok && r->optimizer != NULL) {
        o = cJSON_AddObjectToObject(to, "optimizer");
        ok = o != NULL && add_text(o, "name", r->optimizer) && add_i64(o, "steps", r->optimizer_steps) &&
             add_i64(o, "tensors", r->optimizer_tensors);
    }
    if (ok && r->has_scaler) {
        o = cJSON_AddObjectToObject(to, "scaler");
        ok = o != NULL && add_double(o, "scale", r->scale) && add_i64(o, "growth_tracker", r->growth_tracker);
    }
    if (ok && r->has_loader) {
        o = cJSON_AddObjectToObject(to, "loader");
        ok = o != NULL && add_i64(o, "epoch", r->loader_epoch) && add_i64(o, "batch", r->loader_batch) &&
             add_i64(o, "batches", r->loader_batches);
    }
    return ok;
}

static bool add_state(cJSON *to, const fr_state *state) {
    cJSON *settings = cJSON_AddObjectToObject(to, "settings");
    cJSON *numbers = settings != NULL ? cJSON_AddObjectToObject(to, "numbers") : NULL;
    bool ok = numbers != NULL;
    for (size_t i = 0; ok && i < state->n_settings; i++)
        ok = cJSON_AddStringToObject(settings, state->settings[i].name, state->settings[i].value) != NULL;
    for (size_t i = 0; ok && i < state->n_numbers; i++)
        ok = add_double(numbers, state->numbers[i].name, *state->numbers[i].value);
    return ok;
}

fr_status fri_state_record_print(const fri_state_record *r, const fr_state *state, char **text) {
    cJSON *root = cJSON_CreateObject();
    bool ok = root != NULL && add_text(root, "format", "frugal training state") &&
              cJSON_AddNumberToObject(root, "version", VERSION) != NULL && add_i64(root, "step", r->step) &&
              add_i64(root, "epoch", r->epoch) && (r->run == 0 || add_u64(root, "run", r->run)) &&
              add_text(root, "model", r->model) && add_text(root, "dataset", r->dataset) &&
              add_schedule(root, &r->schedule) && add_parts(root, r) && add_state(root, state);
    char *printed = ok ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    if (printed == NULL) return fr_fail(FR_ENOMEM, "no host memory for the record of a state");
    *text = printed;
    return FR_OK;
}

void fri_state_record_text_free(char *text) {
    cJSON_free(text);
}

/* ---- parsing ----------------------------------------------------------------------------------------------- */

static fr_status fail_format(const char *name, const char *expected) {
    return fr_fail(FR_EFORMAT, "the record's \"%.60s\" is not %s", name, expected);
}

static const cJSON *json_member(const cJSON *o, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

/* A string of digits only. */
static fr_status get_u64(const cJSON *o, const char *name, uint64_t limit, uint64_t *out) {
    const cJSON *item = json_member(o, name);
    char *end = NULL;
    if (!cJSON_IsString(item) || item->valuestring[0] < '0' || item->valuestring[0] > '9')
        return fail_format(name, "a whole number in a string");
    errno = 0;
    unsigned long long value = strtoull(item->valuestring, &end, 10);
    if (errno != 0 || *end != '\0' || value > limit) return fail_format(name, "a whole number in a string");
    *out = value;
    return FR_OK;
}

static fr_status get_count(const cJSON *o, const char *name, int64_t *out) {
    uint64_t value = 0;
    fr_status s = get_u64(o, name, (uint64_t)FRI_STATE_COUNT_MOST, &value);
    if (s == FR_OK) *out = (int64_t)value;
    return s;
}

static bool to_double(const cJSON *item, double *out) {
    if (cJSON_IsNumber(item)) {
        *out = item->valuedouble;
        return true;
    }
    if (!cJSON_IsString(item)) return false;
    const char *text = item->valuestring;
    if (strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0)
        *out = text[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    else
        return false;
    return true;
}

/* A rate or a scale: at least 0, finite. */
static fr_status get_real(const cJSON *o, const char *name, double *out) {
    if (!to_double(json_member(o, name), out)) return fail_format(name, "a number");
    return *out >= 0 && isfinite(*out) ? FR_OK : fail_format(name, "a number of at least 0");
}

/* *out stays NULL if absent. */
static fr_status get_text(const cJSON *o, const char *name, const char **out) {
    const cJSON *item = json_member(o, name);
    if (item == NULL) return FR_OK;
    if (!cJSON_IsString(item)) return fail_format(name, "a string");
    *out = item->valuestring;
    return FR_OK;
}

static fr_status get_object(const cJSON *o, const char *name, bool required, const cJSON **out) {
    const cJSON *item = json_member(o, name);
    if (item == NULL && !required) return FR_OK;
    if (!cJSON_IsObject(item)) return fail_format(name, "an object");
    *out = item;
    return FR_OK;
}

static fr_status parse_schedule(const cJSON *root, fr_schedule *out) {
    const cJSON *o = NULL;
    const char *kind = NULL;
    int found = -1;
    FRI_TRY(get_object(root, "schedule", true, &o));
    FRI_TRY(get_text(o, "kind", &kind));
    for (int i = 0; kind != NULL && i <= FR_SCHEDULE_COSINE; i++)
        if (strcmp(kind, schedule_names[i]) == 0) found = i;
    if (found < 0) return fail_format("kind", "a schedule's name");
    out->kind = (fr_schedule_kind)found;
    FRI_TRY(get_real(o, "lr", &out->lr));
    FRI_TRY(get_count(o, "warmup", &out->warmup));
    FRI_TRY(get_count(o, "total", &out->total));
    FRI_TRY(get_count(o, "step_size", &out->step_size));
    return get_real(o, "gamma", &out->gamma);
}

static fr_status parse_parts(const cJSON *root, fri_state_record *r) {
    const cJSON *random = NULL, *optimizer = NULL, *scaler = NULL, *loader = NULL;
    FRI_TRY(get_object(root, "random", true, &random));
    FRI_TRY(get_u64(random, "seed", UINT64_MAX, &r->random.seed));
    FRI_TRY(get_u64(random, "next_stream", UINT64_MAX, &r->random.next_stream));
    FRI_TRY(get_object(root, "optimizer", false, &optimizer));
    if (optimizer != NULL) {
        FRI_TRY(get_text(optimizer, "name", &r->optimizer));
        if (r->optimizer == NULL) return fail_format("name", "a string");
        FRI_TRY(get_count(optimizer, "steps", &r->optimizer_steps));
        FRI_TRY(get_count(optimizer, "tensors", &r->optimizer_tensors));
    }
    FRI_TRY(get_object(root, "scaler", false, &scaler));
    r->has_scaler = scaler != NULL;
    if (scaler != NULL) {
        FRI_TRY(get_real(scaler, "scale", &r->scale));
        FRI_TRY(get_count(scaler, "growth_tracker", &r->growth_tracker));
    }
    FRI_TRY(get_object(root, "loader", false, &loader));
    r->has_loader = loader != NULL;
    if (loader != NULL) {
        FRI_TRY(get_count(loader, "epoch", &r->loader_epoch));
        FRI_TRY(get_count(loader, "batch", &r->loader_batch));
        FRI_TRY(get_count(loader, "batches", &r->loader_batches));
    }
    return FR_OK;
}

static fr_status parse_record(const cJSON *root, fri_state_record *r) {
    const char *format = NULL;
    const cJSON *version = json_member(root, "version");
    if (!cJSON_IsObject(root)) return fr_fail(FR_EFORMAT, "the record is not a JSON object");
    FRI_TRY(get_text(root, "format", &format));
    if (format == NULL || strcmp(format, "frugal training state") != 0)
        return fr_fail(FR_EFORMAT, "the record does not say that this is a training state");
    if (!cJSON_IsNumber(version) || version->valuedouble != VERSION)
        return fr_fail(FR_EFORMAT, "the record is of version %g, this library reads version %d",
                       cJSON_IsNumber(version) ? version->valuedouble : (double)NAN, VERSION);
    FRI_TRY(get_count(root, "step", &r->step));
    FRI_TRY(get_count(root, "epoch", &r->epoch));
    if (json_member(root, "run") != NULL) FRI_TRY(get_u64(root, "run", UINT64_MAX, &r->run));
    FRI_TRY(get_text(root, "model", &r->model));
    FRI_TRY(get_text(root, "dataset", &r->dataset));
    FRI_TRY(parse_schedule(root, &r->schedule));
    FRI_TRY(parse_parts(root, r));
    FRI_TRY(get_object(root, "settings", true, &r->settings));
    return get_object(root, "numbers", true, &r->numbers);
}

fr_status fri_state_record_parse(const char *text, fri_state_record *out) {
    fri_state_record r = {.json = cJSON_ParseWithOpts(text, NULL, true)};
    if (r.json == NULL) return fr_fail(FR_EFORMAT, "the record is not valid JSON");
    fr_status s = parse_record(r.json, &r);
    if (s < 0)
        cJSON_Delete(r.json);
    else
        *out = r;
    return s;
}

void fri_state_record_free(fri_state_record *r) {
    cJSON_Delete(r->json);
    *r = (fri_state_record){0};
}

const char *fri_state_record_setting(const fri_state_record *r, const char *name) {
    const cJSON *item = json_member(r->settings, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

bool fri_state_record_number(const fri_state_record *r, const char *name, double *out) {
    return to_double(json_member(r->numbers, name), out);
}
