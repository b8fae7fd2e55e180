/* models.h - shared parts of the models. */
#ifndef FRI_MODELS_MODELS_H
#define FRI_MODELS_MODELS_H

#include <frugal/models.h>

#define FRI_MODEL_SLOT(m) \
    if ((m) == NULL) return fr_fail(FR_EINVAL, "%s: m is NULL", __func__)

bool fri_global_head(const fr_model_opts *o);

/* The definition of a model, with the images as *x. */
fr_net *fri_model_begin(const fr_model_opts *o, fr_value *x);
/* Batch norm and relu, or an InPlaceABN and an Identity (fr_model_opts.abn_slope); names may be NULL. */
fr_value fri_model_norm(fr_net *n, const char *name, fr_value x, const fr_model_opts *o);
fr_value fri_model_relu(fr_net *n, const char *name, fr_value x, const fr_model_opts *o);
fr_value fri_model_norm_relu(fr_net *n, const char *norm, const char *relu, fr_value x, const fr_model_opts *o);
/* Global or size x size average pooling, and a flatten. */
fr_value fri_pool_flatten(fr_net *n, fr_value x, int64_t size);
/* A Linear as torchvision's classifiers begin: weights N(0, 0.01), bias 0. */
fr_value fri_dense(fr_net *n, const char *name, fr_value x, int64_t out);

#endif
