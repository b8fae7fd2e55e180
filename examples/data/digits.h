/* digits.h - the handwritten digits that are compiled into the examples; see README.md for where they come from. */
#ifndef EXAMPLES_DATA_DIGITS_H
#define EXAMPLES_DATA_DIGITS_H

#include <frugal/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1,500 training or 297 test images of 8 x 8 pixels, 10 classes. */
fr_status digits_dataset(fr_split split, fr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
