/* sampler.h - the order of images in balanced epochs. */
#ifndef FRI_DATA_SAMPLER_H
#define FRI_DATA_SAMPLER_H

#include "data/transform.h"

/* The images by class. */
typedef struct fri_balance {
    int64_t *image; /* [count] */
    int64_t *end;   /* of each class with images */
    int64_t classes;
} fri_balance;

/* FR_EINVAL: the images have no classes, or changing classes. */
fr_status fri_balance_init(const fr_dataset *d, fri_balance *b);
void fri_balance_free(fri_balance *b);
/* n images with replacement: torch's WeightedRandomSampler with weights 1 / images of the class. A function of
 * (key, epoch). */
void fri_balance_draw(const fri_balance *b, uint64_t key, int64_t epoch, int64_t n, int64_t *order);

#endif
