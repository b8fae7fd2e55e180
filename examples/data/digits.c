/* digits.c - see digits.h. */
#include "digits.h"

#include "digits_embed.h"

fr_status digits_dataset(fr_split split, fr_dataset **out) {
    if (split == FR_SPLIT_TRAIN)
        return fr_dataset_idx_memory("digits train", digits_train_images, digits_train_images_bytes,
                                     digits_train_labels, digits_train_labels_bytes, 10, out);
    return fr_dataset_idx_memory("digits test", digits_test_images, digits_test_images_bytes, digits_test_labels,
                                 digits_test_labels_bytes, 10, out);
}
