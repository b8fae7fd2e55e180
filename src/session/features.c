/* features.c - --cache-features: what the frozen layers make of each image is made once, before the first step, and
 * read by the loader from then on. A record is an image's features in f32 and its target. */
#include "session/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool in_memory(const fri_config *c) {
    return strcmp(c->opts.cache_features, "memory") == 0;
}

static size_t feature_bytes(const fri_config *c) {
    const fr_shape s = fri_image_shape(c, FR_SPLIT_TRAIN, 1);
    return (size_t)(s.dim[1] * s.dim[2]) * sizeof(float);
}

static size_t target_bytes(const fri_config *c) {
    return c->targets == FR_TARGET_VECTOR ? (size_t)c->outputs * sizeof(float) : sizeof(int64_t);
}

static int64_t records(const fri_config *c) {
    return c->train_count + c->test_count;
}

size_t fri_features_bytes(const fri_config *c) {
    return c->features.layer > 0 ? (size_t)records(c) * (feature_bytes(c) + target_bytes(c)) : 0;
}

/* ---- before the run: which layer takes them, and what they are ------------------------------------------------- */

/* What the layers before `layer` make of images, which are released. */
static fr_status forward(const fri_session *r, int layer, fr_tensor **images, fr_tensor **y) {
    const fr_train_opts *o = &r->config->opts;
    fr_autocast_state was;
    fr_status s = fri_precision_begin(o, &was);
    if (s < 0) return s;
    FR_TRY(s, fri_model_images(r, images));
    if (o->half != FR_TRAIN_AMP_OFF) FR_TRY(s, fr_cast(*images, fri_compute_dtype(o), images));
    s = fr_module_forward_cut(r->model, layer, *images, y);
done:
    fri_precision_end(o, was);
    fr_tensor_release(images);
    return s;
}

static fr_status look(const fri_session *trial, void *ctx) {
    const fr_shape one = fri_image_shape(trial->config, FRI_SPLIT_ALL, 1);
    fri_features *f = ctx;
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL, *y = NULL;
    f->layer = fr_module_frozen_cut(trial->model);
    if (f->layer == 0)
        return fr_fail(FR_EINVAL,
                       "--cache-features: there is no place behind frozen layers alone where one value is handed on; "
                       "--freeze or --train-only head makes one");
    FRI_TRY(fr_tensor_empty(one.rank, one.dim, fri_image_dtype(trial->config, FRI_SPLIT_ALL), FR_META, &x));
    FRI_TRY(forward(trial, f->layer, &x, &y));
    f->shape.rank = fr_tensor_rank(y);
    for (int i = 0; i < f->shape.rank; i++) f->shape.dim[i] = fr_tensor_dim(y, i);
    f->dtype = fr_tensor_dtype(y);
    return FR_OK;
}

fr_status fri_features_find(fri_config *c, const fr_dataset *train) {
    char text[FR_BYTES_TEXT];
    fri_features found = {0};
    fr_dataset_info info;
    struct stat st;
    if (c->opts.cache_features == NULL || c->opts.predict != NULL) return FR_OK;
    FRI_TRY(fr_dataset_info_get(train, &info));
    if (c->targets == FR_TARGET_PIXELS)
        return fr_fail(FR_EINVAL, "--cache-features: the targets are pixels of images, and there will be none");
    if (info.live) return fr_fail(FR_EINVAL, "--cache-features: the images of %s may change", info.source);
    FRI_TRY(fri_on_meta(c, look, &found));
    found.there = !in_memory(c) && stat(c->opts.cache_features, &st) == 0;
    c->features = found;
    if (!c->opts.quiet)
        fprintf(c->out, "--cache-features: what %d layers make of %" PRId64 " images, %zu bytes (%s) %s\n", found.layer,
                records(c), fri_features_bytes(c), fr_bytes_text(fri_features_bytes(c), text),
                in_memory(c)  ? "in memory"
                : found.there ? "of a file that is there"
                              : "in a file");
    return FR_OK;
}

/* ---- what distinguishes them ------------------------------------------------------------------------------------ */

static fr_status add_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *hash = ctx;
    const size_t bytes = (size_t)fr_tensor_numel(t) * fr_dtype_size(fr_tensor_dtype(t));
    void *data = malloc(bytes + 1);
    (void)is_parameter;
    if (data == NULL) return fr_fail(FR_ENOMEM, "--cache-features: no host memory for %zu bytes", bytes);
    fr_status s = fr_tensor_to_host(t, data);
    *hash = fr_records_hash(*hash, path, strlen(path));
    *hash = fr_records_hash(*hash, data, bytes);
    free(data);
    return s;
}

/* Everything that their bits depend on: flags, images as saved states compare them, layers and their numbers. */
static fr_status made_by(const fri_session *r, uint64_t *hash) {
    const fri_config *c = r->config;
    const fr_train_opts *o = &c->opts;
    char text[512], data[FR_FINGERPRINT_BYTES], library[160];
    int n = snprintf(text, sizeof text, "%s %d %" PRId64 " %d %d %d %d %d %s", c->model_name, c->features.layer,
                     o->image_size, (int)c->features.dtype, o->amp, o->half, o->inplace_abn, o->exact_convolutions,
                     fr_device_describe(o->device, library, sizeof library));
    *hash = fr_records_hash(FR_RECORDS_HASH, text, (size_t)n);
    *hash = fr_records_hash(*hash, c->mean, sizeof c->mean);
    *hash = fr_records_hash(*hash, c->std, sizeof c->std);
    for (int i = 0; i < 2; i++) {
        const fr_dataset *d = i == 0 ? r->train : r->test;
        if (d == NULL) continue;
        FRI_TRY(fr_dataset_fingerprint(d, data));
        *hash = fr_records_hash(*hash, data, strlen(data));
    }
    for (int i = 0; i < c->features.layer; i++) {
        fr_layer l;
        FRI_TRY(fr_module_layer_get(r->model, i, &l));
        *hash = fr_records_hash(*hash, l.name, strlen(l.name));
        FRI_TRY(fr_module_each_tensor(l.module, add_tensor, hash));
    }
    return FR_OK;
}

/* ---- the records as datasets ------------------------------------------------------------------------------------ */

static fr_status read_record(void *ctx, int64_t index, void *pixels, void *target) {
    const fri_cached *k = ctx;
    const uint8_t *from = fr_records_at(k->records, k->first + index);
    memcpy(pixels, from, k->features);
    memcpy(target, from + k->features, k->target);
    return FR_OK;
}

static fr_status open_split(fri_session *r, int split, int64_t first, int64_t count) {
    const fri_config *c = r->config;
    const fr_shape shape = fri_image_shape(c, split, 1);
    fri_cached *k = &r->cached[split];
    if (count == 0) return FR_OK;
    *k = (fri_cached){.records = r->records, .first = first, .features = feature_bytes(c), .target = target_bytes(c)};
    return fr_dataset_create(&(fr_dataset_source){.name = "--cache-features",
                                                  .count = count,
                                                  .classes = c->outputs,
                                                  .height = shape.dim[1],
                                                  .width = shape.dim[2],
                                                  .channels = shape.dim[3],
                                                  .read = read_record,
                                                  .ctx = k,
                                                  .f32 = true,
                                                  .target = c->targets},
                             &k->data);
}

fr_status fri_features_begin(fri_session *r) {
    const fri_config *c = r->config;
    const bool meta = c->opts.device == FR_META, counted = in_memory(c) && !(meta && c->target == FR_CUDA);
    fr_records_opts opts = {.path = counted ? NULL : c->opts.cache_features,
                            .device = meta ? FR_META : FR_CPU,
                            .count = records(c),
                            .bytes = feature_bytes(c) + target_bytes(c)};
    fr_status s = FR_OK;
    if (!meta && !in_memory(c)) FR_TRY(s, made_by(r, &opts.made_by));
    s = fr_records_create(&opts, &r->records);
    if (s < 0) return fr_fail_prefix(s, "--cache-features ");
    r->features_made = meta ? c->features.there : fr_records_complete(r->records);
    FR_TRY(s, open_split(r, FR_SPLIT_TRAIN, 0, c->train_count));
    s = open_split(r, FR_SPLIT_TEST, c->train_count, c->test_count);
done:
    return s;
}

fr_dataset *fri_data_of(const fri_session *r, int split) {
    fr_dataset *cached = split != FRI_SPLIT_ALL ? r->cached[split].data : NULL;
    return cached != NULL ? cached : split == FR_SPLIT_TRAIN ? r->train : r->test;
}

void fri_features_end(fri_session *r) {
    for (int i = 0; i < 2; i++) fr_dataset_release(&r->cached[i].data);
    fr_records_release(&r->records);
}

/* ---- making them, and feeding the network with them -------------------------------------------------------------- */

/* n images' features and targets, as records. */
static fr_status keep(const fri_session *r, const fr_tensor *y, const fr_tensor *targets, int64_t n) {
    const size_t f = feature_bytes(r->config), t = target_bytes(r->config), all = (size_t)n * (f + t);
    uint8_t *record = malloc(2 * all), *rows = record + all;
    fr_status s = record != NULL ? FR_OK : fr_fail(FR_ENOMEM, "--cache-features: no host memory for %zu bytes", all);
    if (s == FR_OK) s = fr_tensor_to_host(y, rows);
    if (s == FR_OK) s = fr_tensor_to_host(targets, rows + (size_t)n * f);
    for (int64_t i = 0; i < n && s == FR_OK; i++) {
        memcpy(record + (size_t)i * (f + t), rows + (size_t)i * f, f);
        memcpy(record + (size_t)i * (f + t) + f, rows + (size_t)n * f + (size_t)i * t, t);
    }
    if (s == FR_OK) s = fr_records_append(r->records, record, n);
    free(record);
    return s;
}

fr_status fri_features_batch(const fri_session *r, fr_tensor **images, fr_tensor **targets) {
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, forward(r, r->config->features.layer, images, &y));
    if (fr_tensor_dtype(y) != FR_F32) FR_TRY(s, fr_cast(y, FR_F32, &y));
    const int64_t n = fr_tensor_dim(y, 0);
    s = r->config->opts.device != FR_META ? keep(r, y, *targets, n) : FR_OK;
done:
    fr_tensor_release(&y);
    fr_tensor_release(targets);
    return s;
}

fr_status fri_features_forward(const fri_session *r, fr_tensor *x, fr_tensor **y) {
    const fri_features *f = &r->config->features;
    fr_shape shape = f->shape;
    shape.dim[0] = fr_tensor_dim(x, 0);
    fr_status s = fr_reshape(x, shape.rank, shape.dim, y);
    return s == FR_OK && f->dtype != FR_F32 ? fr_cast(*y, f->dtype, y) : s;
}
