/* app_photos.c - trains a network on a folder of photos within a memory budget, saves it, and names a new photo.
 *
 *     app_photos FOLDER WEIGHTS PHOTO [BUDGET]     WEIGHTS: file to write; BUDGET: bytes, 16 MiB without it
 *
 *     FOLDER/train/cat/1.jpg ...    one folder per class
 *     FOLDER/train/dog/1.jpg ...
 *     FOLDER/test/cat/1.jpg ...     the same classes: photos that measure the accuracy
 *     FOLDER/test/dog/1.jpg ... */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 64, BATCH = 16 };

/* The network is a list of layers. Each layer's input size follows from the layer before. */
static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 3}); /* N, H, W, C */
    for (int i = 0; i < 4; i++) {
        x = fr_net_conv2d(n, NULL, x, 32 << i, 3, FR_CONV2D_OPTS(.stride = 2, .padding = 1), FR_NO_BIAS);
        x = fr_net_batchnorm2d(n, NULL, x, NULL);
        x = fr_net_relu(n, NULL, x);
    }
    x = fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1);
    x = fr_net_flatten(n, NULL, x, 1);
    x = fr_net_linear(n, NULL, x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out); /* reports the first error of any layer */
}

static fr_status print_epoch(void *ctx, const fr_session_info *now) {
    (void)ctx;
    printf("epoch %d of %d: loss %.3f, test accuracy %.1f %%\n", (int)now->epoch + 1, (int)now->epochs, now->epoch_loss,
           100 * now->test_accuracy);
    return FR_OK;
}

static fr_status train(const char *folder, const char *weights, size_t budget) {
    fr_dataset *photos = NULL, *test_photos = NULL;
    fr_session *session = NULL;
    fr_session_info info;
    fr_status s = FR_OK;

    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.on_epoch = print_epoch;
    o.train.memory.budget = budget;
    o.train.data.image_size = SIDE;
    o.train.optim.batch_size = BATCH;
    o.train.data.augment = FR_TRAIN_AUGMENT_LIGHT;

    FR_TRY(s, fr_dataset_image_folder(folder, FR_SPLIT_TRAIN, &photos));
    FR_TRY(s, fr_dataset_image_folder(folder, FR_SPLIT_TEST, &test_photos));
    FR_TRY(s, fr_session_create(&o, photos, test_photos, &session)); /* FR_ENOMEM: names the smallest budget */
    FR_TRY(s, fr_session_run(session));
    FR_TRY(s, fr_session_export(session, weights));
    FR_TRY(s, fr_session_info_get(session, &info));
    printf("%s written; peak memory %zu of %zu bytes\n", weights, info.peak_reserved, budget);
done:
    fr_session_release(&session);
    fr_dataset_release(&photos);
    fr_dataset_release(&test_photos);
    return s;
}

/* Names a photo with the saved network; a second program could do it. */
static fr_status name(const char *weights, const char *path) {
    fr_classifier c = {0};
    fr_image photo = {0};
    double *p = NULL;
    int64_t best = 0;
    fr_status s = FR_OK;

    FR_TRY(s, fr_classifier_load_own(weights, network, NULL, FR_CPU, &c));
    FR_TRY(s, fr_image_read(path, &photo));
    p = calloc((size_t)c.info.classes, sizeof *p);
    if (p == NULL) FR_TRY(s, fr_fail(FR_ENOMEM, "no memory for %d classes", (int)c.info.classes));
    FR_TRY(s, fr_predict(c.model, &photo, &c.input, p, c.info.classes));
    for (int64_t i = 1; i < c.info.classes; i++)
        if (p[i] > p[best]) best = i;
    printf("%s: %s (%.1f %%)\n", path, c.info.class_name[best], 100 * p[best]);
done:
    free(p);
    fr_image_clear(&photo);
    fr_classifier_clear(&c);
    return s;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: app_photos FOLDER WEIGHTS PHOTO [BUDGET]\n");
        return 2;
    }
    size_t budget = argc > 4 ? strtoull(argv[4], NULL, 10) : 16 << 20;
    fr_status s = train(argv[1], argv[2], budget);
    if (s == FR_OK) s = name(argv[2], argv[3]);
    if (s != FR_OK) fprintf(stderr, "app_photos: %s\n", fr_last_error());
    return s == FR_OK ? 0 : 1;
}
