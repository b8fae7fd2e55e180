/* segments.c - --checkpoint-segments: cuts a network into segments and weighs its units. */
#include "session/model.h"
#include "session/step.h"
#include "net/units.h"

#include <stdlib.h>

static fr_segmentation segmentation_of(const fr_train_opts *o) {
    switch (o->memory.checkpoint_segments) {
    case FR_TRAIN_SQRT: return FR_SEGMENTS_SQRT;
    case FR_TRAIN_LOG: return FR_SEGMENTS_LOG;
    case FR_TRAIN_EACH: return FR_SEGMENTS_EACH;
    }
    return FR_SEGMENTS_COUNT;
}

fr_status fri_segments_check(const fri_run *r) {
    int units = fr_module_units(r->net.model, NULL, 0);
    int64_t segments = r->config->opts.memory.checkpoint_segments;
    if (segments <= units) return FR_OK;
    return fr_fail(FR_EINVAL, "--checkpoint-segments %lld: %s is a chain of %d units, so at most %d segments",
                   (long long)segments, r->config->model_name, units, units);
}

fr_status fri_segments_forward(const fri_run *r, fr_tensor *x, fr_tensor **y) {
    const fr_train_opts *o = &r->config->opts;
    return fr_checkpoint_segments(r->net.model, segmentation_of(o), (int)o->memory.checkpoint_segments,
                                  r->net.unit_weight, x, y);
}

/* ---- unit weights -------------------------------------------------------------------------------------------- */

/* Bytes that each unit saves for backward of a full batch, or of a part of a split batch. */
static fr_status weigh_units(const fri_run *trial, size_t *weight) {
    const fr_train_opts *o = &trial->config->opts;
    int64_t n = (fri_batch_size(trial->config, FR_SPLIT_TRAIN) + o->memory.split_batch - 1) / o->memory.split_batch;
    fr_autocast_state was;
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL;
    fr_status s = fri_precision_begin(o, &was);
    if (s < 0) return s;
    const fr_dtype dtype = trial->config->bytes ? fri_model_dtype(trial) : FR_F32;
    FR_TRY(s, fr_tensor_empty(4, fri_image_shape(trial->config, n).dim, dtype, FR_META, &x));
    if (o->precision.half != FR_TRAIN_AMP_OFF) FR_TRY(s, fr_cast(x, fri_compute_dtype(o), &x));
    FR_TRY(s, fri_unit_saved_bytes(trial->net.model, x, weight));
done:
    fri_precision_end(o, was);
    return s;
}

static fr_status make_weights(const fri_run *trial, void *ctx) {
    size_t **weight = ctx;
    int units = fr_module_units(trial->net.model, NULL, 0);
    *weight = calloc((size_t)units + 1, sizeof **weight);
    if (*weight == NULL) return fr_fail(FR_ENOMEM, "--checkpoint-segments: no host memory for %d units", units);
    fr_status s = weigh_units(trial, *weight);
    if (s == FR_OK) return s;
    free(*weight);
    *weight = NULL;
    return s;
}

fr_status fri_segment_weights(const fri_config *c, size_t **weight) {
    if (c->opts.memory.checkpoint_segments == FR_TRAIN_AUTO) return FR_OK;
    return fri_on_meta(c, make_weights, weight);
}
