/* frames.c - see frames.h. */
#include "data/frames.h"

int64_t frames_class(int64_t index) {
    return index % 2 == 0 ? 0 : index % 5 < 3 ? 1 : 2;
}

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    uint8_t *pixels = to;
    (void)ctx;
    for (int i = 0; i < SIZE * SIZE; i++) pixels[i] = (uint8_t)((index * 31 + i * 7 + frames_class(index) * 40) % 251);
    *(int64_t *)target = frames_class(index);
    return FR_OK;
}

static fr_status numbers(void *ctx, int64_t index, void *to, void *target) {
    int64_t ignored = 0;
    for (int i = 0; i < CLASSES; i++) ((float *)target)[i] = (float)(index % 3);
    return frame(ctx, index, to, &ignored);
}

fr_dataset *frames_make(fr_target target) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = IMAGES,
                                                .classes = CLASSES,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 1,
                                                .read = target == FR_TARGET_VECTOR ? numbers : frame,
                                                .target = target},
                           &d));
    return d;
}

fr_loader *frames_loader(const fr_loader_opts *o) {
    fr_loader *l = NULL;
    fr_dataset *d = frames_make(FR_TARGET_CLASS);
    MUST(fr_loader_create(d, o, &l));
    fr_dataset_release(&d);
    return l;
}

void frames_collect(fr_loader_opts o, int64_t from, int64_t to, float *images, float *shares) {
    fr_tensor *x = NULL, *t = NULL;
    fr_loader *l = frames_loader(&o);
    MUST(fr_loader_position_set(l, 2, from));
    for (int64_t b = from; b < to; b++, images += BATCH * SIZE * SIZE, shares += BATCH * CLASSES) {
        MUST(fr_loader_next(l, &x, &t));
        memcpy(images, fr_tensor_data(x), fr_tensor_nbytes(x));
        for (int i = 0; i < BATCH && fr_tensor_dtype(t) == FR_I64; i++)
            for (int c = 0; c < CLASSES; c++) shares[i * CLASSES + c] = (float)(((int64_t *)fr_tensor_data(t))[i] == c);
        if (fr_tensor_dtype(t) == FR_F32) memcpy(shares, fr_tensor_data(t), fr_tensor_nbytes(t));
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
}
