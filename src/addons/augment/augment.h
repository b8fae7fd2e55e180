/* augment.h - torchvision's random changes of training images and batches: the add-on augment. */
#ifndef FRUGAL_AUGMENT_H
#define FRUGAL_AUGMENT_H

#include <frugal/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Classes of torchvision's transforms v2; random by seed, epoch and image, or batch. */
typedef struct fr_augment_opts {
    /* RandAugment: ops per image (at most 16) and magnitude (0..30 of 31) of shears, shifts, turns, colors of 8-bit
     * images of classes or vectors, after the flip and before the colors; 1 or 3 channels. */
    int rand_ops FR_DEFAULT(0), rand_magnitude FR_DEFAULT(9);
    /* ColorJitter of a float image, before the normalization: x makes factors of max(0, 1 - x) to 1 + x, at most 10,
     * hue turns by up to 0.5 either way. f32 images lie in 0..1; 1 or 3 channels. */
    double brightness FR_DEFAULT(0), contrast FR_DEFAULT(0), saturation FR_DEFAULT(0), hue FR_DEFAULT(0);
    /* RandomErasing: the probability that a box of 2 to 33 % of the result becomes 0, last of all; masks stay. */
    double erasing FR_DEFAULT(0);
    /* Alphas of MixUp and CutMix, of classes; both: one or the other, batch by batch; 0: off. Targets are then f32
     * shares [n, classes], as fr_cross_entropy takes them. */
    double mixup FR_DEFAULT(0), cutmix FR_DEFAULT(0);
} fr_augment_opts;

#define FR_AUGMENT_DEFAULTS  .rand_magnitude = 9
#define FR_AUGMENT_OPTS(...) FR_OPTS(fr_augment_opts, FR_AUGMENT_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_augment_opts, FR_AUGMENT_OPTS())

/* Fills loader->augmentation; opts are no longer needed afterwards. FR_EINVAL: a value out of range. */
FR_API fr_status fr_augment(const fr_augment_opts *opts, fr_loader_opts *loader);

#ifdef __cplusplus
}
#endif
#endif
