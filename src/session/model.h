/* model.h - the network of a run, its loss, frozen parts, groups and segments. */
#ifndef FRI_SESSION_MODEL_H
#define FRI_SESSION_MODEL_H

#include "session/session.h"

/* model.c. fri_model_check tests on meta that network, images, batches and segments fit each other. fri_model_build
 * makes the model, its optimizer and all other tensors of a step. */
const fr_network_file *fri_network_file(const fri_config *c); /* of --weights FILE.onnx; NULL: no such file */
/* The check sets c->model_name, accuracy, other_classes and streams. */
fr_status fri_model_check(fri_config *c, fr_dataset *train);
/* head.c: replaces the last layer of a network from a file, for another number of results or for other classes.
 * FR_EINVAL names both numbers. */
fr_status fri_head_fit(fri_run *r);
/* Runs fn on meta with a session that holds only the model, frozen as in training, under the flags' switches. A
 * private pool and event log keep the trial invisible to the run and to plans. */
fr_status fri_on_meta(const fri_config *c, fr_status (*fn)(const fri_run *trial, void *ctx), void *ctx);
fr_status fri_model_units(const fri_config *c, int *out); /* number of units */
/* trained.c: --train-only and --freeze. Layers with parameters are numbered in the order of the network. */
fr_status fri_freeze_parts(fri_run *r); /* freezes layers of a new model */
int64_t fri_layers(fr_module *m);
/* True if `path` belongs to a new layer, whose name then replaces `layer` ("" at first). Tensors of a layer are
 * consecutive. */
enum { FRI_LAYER_BYTES = 512 };
bool fri_layer_next(char layer[FRI_LAYER_BYTES], const char *path);
fr_status fri_model_build(fri_run *r);
void fri_model_release(fri_run *r);
/* Dtype of the network's images: --half, or --amp if all readers of the images cast. */
fr_dtype fri_model_dtype(const fri_run *r);
/* Normalizes u8 images. */
fr_status fri_model_images(const fri_run *r, fr_tensor **images);
fr_status fri_model_forward(const fri_run *r, fr_tensor *x, fr_tensor **y);

fr_status fri_groups_build(fri_run *r); /* groups.c: parameter groups and EMA */

/* segments.c. *weight: bytes that each unit saves, measured on meta, malloced; NULL without --checkpoint-segments. */
fr_status fri_segment_weights(const fri_config *c, size_t **weight);
fr_status fri_segments_check(const fri_run *r);
fr_status fri_segments_forward(const fri_run *r, fr_tensor *x, fr_tensor **y);

/* loss.c: mean loss of a batch, a scalar with a graph: the program's own loss, mean squared error for vectors, else
 * --loss. Label smoothing and class weights apply to training only. */
fr_status fri_loss_of_batch(const fri_run *r, fr_tensor *y, fr_tensor *targets, bool training, fr_tensor **loss);
fr_status fri_loss_check(const fri_config *c); /* checks the flags once the targets are known */
fr_status fri_class_weights_begin(fri_run *r); /* creates r->class_weights if requested */

#endif
