/* interrupted.c - a signal in the middle of an evaluation ends the run after the evaluation, and half an evaluation
 * is not logged as a whole.
 *
 * A plain program: the signal comes from the target of a test image, at the same moment in each run. */
#include <frugal/train.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGES = 8, BATCH = 4 }; /* of each split */

static int targets; /* made so far */

static fr_status images(fr_split split, fr_dataset **out) {
    return fr_dataset_synthetic(IMAGES, 10, 8, 8, 3, (uint64_t)split, out);
}

static fr_status unet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "unet");
    return fr_unet(1, FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size, .device = o->device), out);
}

static int64_t pixel_classes(int64_t classes) {
    return classes + 1;
}

/* The first test image of the second epoch brings the signal. */
static void pixel_target(const float *image, int64_t height, int64_t width, int64_t channels, int64_t label,
                         int64_t *target) {
    (void)image, (void)channels;
    for (int64_t i = 0; i < height * width; i++) target[i] = label + 1;
    if (++targets == 3 * IMAGES + 1) raise(SIGTERM);
}

static int count(const char *path, const char *word) {
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) n += strstr(line, word) != NULL;
    if (f != NULL) fclose(f);
    return n;
}

int main(void) {
    static const char *const none[] = {NULL};
    char path[] = "/tmp/frugal-interrupted-XXXXXX";
    int fd = mkstemp(path);
    const fr_train_program program = {.name = "interrupted",
                                      .summary = "",
                                      .description = "",
                                      .examples = none,
                                      .defaults = fr_train_opts_default(),
                                      .sgd_lr = 0.05,
                                      .depths = "1",
                                      .digits = images,
                                      .model = unet,
                                      .pixel_classes = pixel_classes,
                                      .pixel_target = pixel_target};
    char *words[] = {"interrupted", "--image-size", "8", "--batch-size", "4",     "--epochs", "3", "--threads",
                     "1",           "--workers",    "0", "--quiet",      "--log", path,       NULL};
    int status = fr_train_main(&program, sizeof words / sizeof *words - 1, words);
    int evaluations = count(path, "test/accuracy"), bad = status != 128 + SIGTERM || evaluations != 1;
    if (bad) fprintf(stderr, "interrupted: exit status %d, %d evaluations in the log\n", status, evaluations);
    if (targets != 3 * IMAGES + BATCH) { /* the batch of the signal is the last */
        fprintf(stderr, "interrupted: %d targets were made, %d were to come\n", targets, 3 * IMAGES + BATCH);
        bad = 1;
    }
    if (fd >= 0) close(fd);
    unlink(path);
    return bad;
}
