/* frames.h - a data set of three classes, the first frequent, and the batches of an epoch. */
#ifndef TESTS_DATA_FRAMES_H
#define TESTS_DATA_FRAMES_H

#include "data/files.h"

enum { IMAGES = 40, SIZE = 8, CLASSES = 3, BATCH = 8 };
enum { BATCHES = IMAGES / BATCH, NUMBERS = BATCHES * BATCH * SIZE * SIZE };

/* The class of an image: 20, 12 and 8 images of the three. */
int64_t frames_class(int64_t index);
/* Gray frames of 8 x 8; vectors instead of classes, if so. */
fr_dataset *frames_make(fr_target target);
fr_loader *frames_loader(const fr_loader_opts *o);
/* Numbers of some batches of epoch 2, from a loader with these options. */
void frames_collect(fr_loader_opts o, int64_t from, int64_t to, float *images, float *shares);

#endif
