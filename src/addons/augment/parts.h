/* parts.h - the calls of the augmentation (fr_augmentation of data.h), a file each, and places of amounts. */
#ifndef FRI_AUGMENT_PARTS_H
#define FRI_AUGMENT_PARTS_H

#include <frugal/augment.h>

enum { FRI_COLORS = 4, FRI_RAND_OPS_MAX = 16, FRI_RAND_MAGNITUDE_MAX = 30 }; /* brightness, contrast, saturation, hue */

typedef enum fri_augment_amount {
    FRI_AMOUNT_COLOR, /* FRI_COLORS values */
    FRI_AMOUNT_RAND_OPS = FRI_COLORS,
    FRI_AMOUNT_RAND_MAGNITUDE,
    FRI_AMOUNT_ERASING,
    FRI_AMOUNT_MIXUP,
    FRI_AMOUNT_CUTMIX,
    FRI_AMOUNTS,
} fri_augment_amount;

/* torchvision's RandAugment of bytes. */
uint8_t *fri_rand_augment(const fr_augmentation *a, const fr_augment_input *in, uint8_t *pixels, uint8_t *spare);
/* torchvision's ColorJitter, before the normalization. */
void fri_color(const fr_augmentation *a, const fr_augment_input *in, float *pixels);
/* torchvision's RandomErasing of the result. */
void fri_erase(const fr_augmentation *a, const fr_augment_input *in, float *pixels);
/* MixUp or CutMix of a batch: an image with the one before (the first with the last). */
void fri_mix(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares, float *spare);

#endif
