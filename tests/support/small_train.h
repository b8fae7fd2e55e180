/* small_train.h - four small networks and a training that remembers every bit: what tests of switches compare.
 *
 *   VGG       conv - batch norm - relu twice, max pool, dropout, conv - relu - max pool, dropout, linear
 *   ResNet    conv - batch norm - leaky relu, two residual blocks, average pool, linear
 *   DenseNet  the library's DenseNet-BC-16 behind a stem with batch norm, max pool and dropout
 *   U-Net     the library's behind the same stem
 * Each is a chain of at least seven units on images of 32 x 32; the first maps have 128 KiB in f32, so that the offload
 * switch finds something worth moving. */
#ifndef TESTS_SUPPORT_SMALL_TRAIN_H
#define TESTS_SUPPORT_SMALL_TRAIN_H

#include <frugal/frugal.h>

typedef enum small_net { SMALL_VGG, SMALL_RESNET, SMALL_DENSENET, SMALL_UNET, SMALL_NETS } small_net;
extern const char *const small_net_names[SMALL_NETS];

/* How the chain runs. */
typedef enum small_form {
    SMALL_PLAIN,
    SMALL_TWO,    /* two segments, the last plain */
    SMALL_THREE,  /* three */
    SMALL_EACH,   /* every unit a checkpoint, the last too */
    SMALL_NESTED, /* checkpoints within checkpoints, three deep */
    SMALL_SQRT,
    SMALL_LOG,
    SMALL_FORMS
} small_form;
extern const char *const small_form_names[SMALL_FORMS];

typedef enum small_amp {
    SMALL_F32,
    SMALL_F16, /* autocast, the loss times 1024 by a scaler with a fixed scale */
    SMALL_BF16
} small_amp;

typedef struct small_setting {
    small_net net;
    small_form form;
    small_amp amp;
    fr_switches switches;
    bool grad_zero; /* gradients stay allocated and are cleared, instead of released */
    bool fused;     /* parameters are updated inside backward; not with SMALL_F16 */
    int steps;
    uint32_t frozen; /* 0: none; else a number that selects layers and parameters */
} small_setting;

/* A growing array of bytes. */
typedef struct small_bytes {
    unsigned char *data;
    size_t n, capacity;
} small_bytes;

typedef struct small_record {
    small_bytes state;     /* after each step: the loss, every parameter and buffer */
    small_bytes gradients; /* of each step, -0 as 0; empty if fused */
    double loss[64];
    fr_memory_stats memory;
    fr_graph_stats graph; /* counts of this training */
} small_record;

/* Freezes some layers and parameters of a module; at least one parameter still trains. */
void small_freeze(fr_module *m, uint32_t choice);
fr_module *small_net_make(small_net net, fr_device device);
fr_status small_net_forward(fr_module *m, small_form form, fr_tensor *x, fr_tensor **y);

/* Trains from seed 21 on noise. On FR_META losses are 0 and no bytes are kept. Sets the thread's switches. */
void small_train(const small_setting *c, fr_device device, small_record *out);
void small_record_free(small_record *r);

#endif
