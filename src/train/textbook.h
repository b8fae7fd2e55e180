/* textbook.h - values of the networks in published tables, counted by running them on meta. */
#ifndef FRI_TRAIN_TEXTBOOK_H
#define FRI_TRAIN_TEXTBOOK_H

#include <frugal/models.h>

typedef enum fri_textbook_net {
    FRI_TEXTBOOK_GUIDE, /* conv 3-64, relu, conv 64-64, relu, pool 2, conv 64-128; padding 1; images of 682 x 700 */
    FRI_TEXTBOOK_VGG16,
    FRI_TEXTBOOK_VGG19,
    FRI_TEXTBOOK_RESNET50,
    FRI_TEXTBOOK_RESNET101,
    FRI_TEXTBOOK_RESNET152,
    FRI_TEXTBOOK_MNIST,    /* PyTorch's old example: conv 1-10 5x5, pool, conv 10-20 5x5, dropout, pool, 320-50-10 */
    FRI_TEXTBOOK_TORCHSTAT /* the same on 3 x 224 x 224: 56180-50-10 */
} fri_textbook_net;

enum { FRI_TEXTBOOK_LAYERS = 400 };

/* One image's way through the layers. */
typedef struct fri_textbook {
    int64_t input;
    int64_t parameters, biases;            /* elements; biases: of rank 1, batch norm's too */
    int n;                                 /* layers without parts, in the order in which they ran */
    const char *kind[FRI_TEXTBOOK_LAYERS]; /* "Conv2d" */
    int64_t values[FRI_TEXTBOOK_LAYERS];   /* of its output */
    bool has_parameters[FRI_TEXTBOOK_LAYERS];
} fri_textbook;

fr_status fri_textbook_run(fri_textbook_net net, fri_textbook *out);

/* Sum over layers of the kinds named ("Conv2d ReLU"), NULL: all but AdaptiveAvgPool2d and Flatten; "*": all that have
 * parameters. */
int64_t fri_textbook_sum(const fri_textbook *t, const char *kinds);

#endif
