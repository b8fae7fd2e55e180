/* weights_info.c - the network's description in a file of weights: see io.h.
 *
 *   {"model": "resnet18_small", "head": "", "classes": 2, "class_names": ["cat", "dog"], "channels": 3, "height": 32,
 *    "width": 32, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]} */
#include "io/weights_info.h"

#include "base/status.h"
#include "base/number.h"
#include "io/safetensors.h"
#include "io/safetensors_format.h"
#include "io/session_files.h"

#include <cJSON.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 1 << 20, MOST_PIXELS = 1 << 16 };

void fr_weights_info_clear(fr_weights_info *info) {
    if (info == NULL) return;
    for (int64_t i = 0; info->class_name != NULL && i < info->classes; i++) free(info->class_name[i]);
    free(info->class_name);
    *info = (fr_weights_info){0};
}

static fr_status no_memory(void) {
    return fr_fail(FR_ENOMEM, "no host memory for what a file of weights says of its network");
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static fr_status check_info(const fr_weights_info *o) {
    if (o->classes < 1 || o->classes > MOST_CLASSES || o->channels < 1 || o->channels > FR_CHANNELS_MAX ||
        o->height < 1 || o->height > MOST_PIXELS || o->width < 1 || o->width > MOST_PIXELS)
        return fr_fail(FR_EINVAL,
                       "weights: info has %lld classes, %lld channels, %lld x %lld pixels; 1..%d, 1..%d and 1..%d are "
                       "possible",
                       (long long)o->classes, (long long)o->channels, (long long)o->height, (long long)o->width,
                       MOST_CLASSES, FR_CHANNELS_MAX, MOST_PIXELS);
    for (int64_t i = 0; i < o->channels; i++)
        if (!isfinite(o->mean[i]) || !(o->std[i] > 0) || !isfinite(o->std[i]))
            return fr_fail(FR_EINVAL, "weights: channel %lld of info has mean %g and std %g", (long long)i, o->mean[i],
                           o->std[i]);
    return FR_OK;
}

/* File names may hold any bytes: invalid UTF-8 is written with '?'. */
static char written(const char *at, bool utf8) {
    return !utf8 && (unsigned char)*at >= 0x80 ? '?' : *at;
}

bool fri_weights_names_equal(const char *a, const char *b) {
    const bool of_a = fri_safetensors_utf8(a, strlen(a)), of_b = fri_safetensors_utf8(b, strlen(b));
    while (written(a, of_a) == written(b, of_b) && *a != '\0') a++, b++;
    return written(a, of_a) == written(b, of_b);
}

static cJSON *name_item(const char *name) {
    if (fri_safetensors_utf8(name, strlen(name))) return cJSON_CreateString(name);
    char *copy = strdup(name);
    for (size_t i = 0; copy != NULL && copy[i] != '\0'; i++) copy[i] = written(copy + i, false);
    cJSON *item = copy != NULL ? cJSON_CreateString(copy) : NULL;
    free(copy);
    return item;
}

/* An array of numbers with all bits: cJSON 1.7.18 writes -0.0 as "0". */
static cJSON *numbers_item(const double *x, int64_t n) {
    cJSON *array = cJSON_CreateArray();
    char text[FRI_NUMBER_BYTES];
    for (int64_t i = 0; i < n; i++) cJSON_AddItemToArray(array, cJSON_CreateRaw(fri_number_text(x[i], text)));
    if (cJSON_GetArraySize(array) == n) return array;
    cJSON_Delete(array);
    return NULL;
}

fr_status fr_weights_info_text(const fr_weights_info *info, char **out) {
    FRI_TRY(check_info(info));
    cJSON *o = cJSON_CreateObject(), *names = NULL;
    bool made = o != NULL && cJSON_AddItemToObject(o, "model", name_item(info->model)) &&
                cJSON_AddItemToObject(o, "head", name_item(info->head)) &&
                cJSON_AddNumberToObject(o, "classes", (double)info->classes) &&
                cJSON_AddNumberToObject(o, "channels", (double)info->channels) &&
                cJSON_AddNumberToObject(o, "height", (double)info->height) &&
                cJSON_AddNumberToObject(o, "width", (double)info->width) &&
                cJSON_AddItemToObject(o, "mean", numbers_item(info->mean, info->channels)) &&
                cJSON_AddItemToObject(o, "std", numbers_item(info->std, info->channels));
    if (made && info->class_name != NULL) made = (names = cJSON_AddArrayToObject(o, "class_names")) != NULL;
    for (int64_t i = 0; made && names != NULL && i < info->classes; i++)
        made = cJSON_AddItemToArray(names, name_item(info->class_name[i]));
    *out = made ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return *out != NULL ? FR_OK : no_memory();
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static fr_status fail_key(const char *name, const char *key, const char *expected) {
    return fr_fail(FR_EFORMAT, "'%s': \"%s\" of metadata \"" FR_WEIGHTS_INFO_KEY "\" is not %s", name, key, expected);
}

static fr_status take_name(const char *name, const cJSON *o, const char *key, char to[FR_WEIGHTS_NAME_BYTES]) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= FR_WEIGHTS_NAME_BYTES)
        return fail_key(name, key, "a text of at most 63 bytes");
    strcpy(to, item->valuestring);
    return FR_OK;
}

static fr_status take_count(const char *name, const cJSON *o, const char *key, int most, int64_t *to) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= most) ||
        item->valuedouble != floor(item->valuedouble)) {
        char expected[64];
        snprintf(expected, sizeof expected, "a whole number in 1..%d", most);
        return fail_key(name, key, expected);
    }
    *to = (int64_t)item->valuedouble;
    return FR_OK;
}

static fr_status take_numbers(const char *name, const cJSON *o, const char *key, int64_t n, bool positive, double *to) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(o, key), *item = NULL;
    int64_t i = 0;
    bool right = cJSON_IsArray(array) && cJSON_GetArraySize(array) == n;
    if (right) cJSON_ArrayForEach(item, array) {
            right =
                right && cJSON_IsNumber(item) && isfinite(item->valuedouble) && (!positive || item->valuedouble > 0);
            to[i++] = item->valuedouble;
        }
    return right ? FR_OK : fail_key(name, key, positive ? "a positive number per channel" : "a number per channel");
}

static fr_status take_names(const char *name, const cJSON *o, fr_weights_info *to) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(o, "class_names"), *item = NULL;
    int64_t i = 0;
    if (array == NULL) return FR_OK;
    if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != to->classes)
        return fail_key(name, "class_names", "an array of a text per class");
    to->class_name = calloc((size_t)to->classes, sizeof *to->class_name);
    if (to->class_name == NULL) return no_memory();
    cJSON_ArrayForEach(item, array) {
        if (!cJSON_IsString(item)) return fail_key(name, "class_names", "an array of a text per class");
        if ((to->class_name[i++] = strdup(item->valuestring)) == NULL) return no_memory();
    }
    return FR_OK;
}

static fr_status parse_info(const char *name, const cJSON *o, fr_weights_info *to) {
    if (!cJSON_IsObject(o))
        return fr_fail(FR_EFORMAT, "'%s': metadata \"" FR_WEIGHTS_INFO_KEY "\" is not a JSON object", name);
    FRI_TRY(take_name(name, o, "model", to->model));
    FRI_TRY(take_name(name, o, "head", to->head));
    FRI_TRY(take_count(name, o, "classes", MOST_CLASSES, &to->classes));
    FRI_TRY(take_count(name, o, "channels", FR_CHANNELS_MAX, &to->channels));
    FRI_TRY(take_count(name, o, "height", MOST_PIXELS, &to->height));
    FRI_TRY(take_count(name, o, "width", MOST_PIXELS, &to->width));
    FRI_TRY(take_numbers(name, o, "mean", to->channels, false, to->mean));
    FRI_TRY(take_numbers(name, o, "std", to->channels, true, to->std));
    return take_names(name, o, to);
}

fr_status fri_weights_info_parse(const char *name, const char *text, fr_weights_info *out) {
    cJSON *o = cJSON_Parse(text);
    FRI_OWNED(fr_weights_info_clear) fr_weights_info info = {0};
    fr_status s = parse_info(name, o, &info);
    cJSON_Delete(o);
    if (s < 0) return s;
    fr_weights_info_clear(out);
    *out = info;
    info = (fr_weights_info){0};
    return s;
}

fr_status fri_weights_info_find(const char *path, fr_weights_info *out) {
    FRI_OWNED(fri_safetensors_close) fri_safetensors *f = NULL;
    FRI_OWNED(fri_free) char *own = NULL;
    const fr_network_file *file = NULL;
    FRI_TRY(fr_network_file_of(path, &file));
    if (file != NULL && file->info != NULL)
        FRI_TRY(file->info(path, &own));
    else
        FRI_TRY(fri_safetensors_open_as(path, FRI_SAFETENSORS_COPIED, &f));
    const char *text = f != NULL ? fri_safetensors_metadata(f, FR_WEIGHTS_INFO_KEY) : own;
    return text != NULL ? fri_weights_info_parse(path, text, out) : FR_END;
}

fr_status fr_weights_info_read(const char *path, fr_weights_info *out) {
    FRI_NOT_NULL(path, out);
    const fr_status s = fri_weights_info_find(path, out);
    if (s != FR_END) return s;
    return fr_fail(FR_EFORMAT, "'%s' does not describe its network: it has no metadata \"" FR_WEIGHTS_INFO_KEY "\"",
                   path);
}
