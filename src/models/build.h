/* build.h - small steps that all models are made of. Each appends to a module and returns a status. */
#ifndef FRI_MODELS_BUILD_H
#define FRI_MODELS_BUILD_H

#include "nn/module.h"

#include <frugal/models.h>

/* Adds a convolution named `name` (NULL: the next number); kaiming_normal weights in the mode given, bias 0. */
typedef enum fri_conv_init { FRI_INIT_DEFAULT, FRI_INIT_FAN_OUT, FRI_INIT_FAN_IN } fri_conv_init;
fr_status fri_add_conv(fr_module *m, const char *name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                       int64_t padding, bool bias, fri_conv_init init, fr_device device);
fr_status fri_add_batchnorm(fr_module *m, const char *name, int64_t channels, fr_device device);
fr_status fri_add_linear(fr_module *m, const char *name, int64_t in, int64_t out, fr_device device);
fr_status fri_add_relu(fr_module *m, const char *name);
/* Batch norm that a relu follows, wherever that stands: one InPlaceABN if abn_slope > 0, whose relu is an Identity. */
fr_status fri_add_activated_norm(fr_module *m, const char *name, int64_t channels, const fr_model_opts *o);
fr_status fri_add_activation(fr_module *m, const char *name, const fr_model_opts *o);
/* *x = tail(norm(conv(*x))), of two children by name; conv NULL: of the norm alone. A norm that is an InPlaceABN has
 * its relu in it: it gets no tail. */
fr_status fri_run_norm(fr_module *m, const char *conv, const char *norm, const fri_norm_tail *tail, fr_tensor **x);
fr_status fri_add_maxpool(fr_module *m, const char *name, int64_t kernel, int64_t stride, int64_t padding);
/* Adds any module, under a name or the next number; takes *child. */
fr_status fri_add(fr_module *m, const char *name, fr_module **child);

/* The child of this name, or NULL. */
fr_module *fri_child(fr_module *m, const char *name);
/* The same for a child that is a chain; the tail is that of its last child, a batch norm. */
fr_status fri_run_chain(fr_module *m, const char *name, const fri_norm_tail *tail, fr_tensor **x);
/* *x = child(*x) by name. */
fr_status fri_run(fr_module *m, const char *name, fr_tensor **x);

/* Options or the defaults; checks what all models need. */
fr_status fri_model_opts(const char *model, const fr_model_opts *opts, int64_t stride, fr_model_opts *out);
bool fri_global_head(const fr_model_opts *o);

#endif
