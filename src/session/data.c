/* data.c - opens the data sets of --dataset, and loaders with the matching augmentation. */
#include "session/data.h"
#include "session/flags.h"
#include "session/model.h"
#include "data/loader.h"

#include <frugal/addon.h>
#include <string.h>

/* Facts about datasets that are known without files: sizes for --device meta, and the permitted augmentation. */
static const struct {
    const char *name;
    bool needs_data;
    int64_t train, test, classes; /* published sizes; classes 0: --classes says */
    int64_t shift;                /* pixels */
    bool flip;
    double degrees, zoom, shear; /* fields of fr_loader_opts with equal names */
} known[] = {
    [FR_TRAIN_DIGITS] = {"digits", false, 1500, 297, 10, 2, false, 10, 0.1, 10},
    [FR_TRAIN_MNIST] = {"mnist", true, 60000, 10000, 10, 2, false},
    [FR_TRAIN_FASHION_MNIST] = {"fashion-mnist", true, 60000, 10000, 10, 4, true},
    [FR_TRAIN_CIFAR10] = {"cifar10", true, 50000, 10000, 10, 4, true},
    [FR_TRAIN_CIFAR100] = {"cifar100", true, 50000, 10000, 100, 4, true},
    [FR_TRAIN_FOLDER] = {"folder", true, 1281167, 50000, 0, 0, true},
    [FR_TRAIN_MASKS] = {"masks", true, 10000, 1000, 0, 0, true},
    [FR_TRAIN_SYNTHETIC] = {"synthetic", false, 50000, 256, 0, 0, false},
    [FR_TRAIN_OWN] = {"own", false, 0, 0, 0, 0, true},
    [FR_TRAIN_TAR] = {"tar", true, 1281167, 50000, 0, 0, true},
};

enum { SMALL_IMAGE = 64 }; /* images below this size are padded and shifted; larger ones are cropped as for ImageNet */

const char *fri_dataset_name(fr_train_dataset d) {
    return known[d].name;
}

bool fri_dataset_reads_files(fr_train_dataset d) {
    return known[d].needs_data;
}

bool fri_dataset_in_folders(fr_train_dataset d) {
    return d == FR_TRAIN_FOLDER || d == FR_TRAIN_MASKS || d == FR_TRAIN_TAR;
}

fr_status fri_nothing_read(void *ctx, int64_t index, void *pixels, void *target) {
    (void)ctx, (void)pixels, (void)target;
    return fr_fail(FR_EINTERNAL, "trainer: image %lld of a dry run is read", (long long)index);
}

/* Data set of the right sizes whose images are never read. */
static fr_status masks_without_files(const fr_train_opts *o, int64_t count, fr_dataset **out) {
    return fr_dataset_create(&(fr_dataset_source){.name = "masks",
                                                  .count = count,
                                                  .classes = o->data.classes,
                                                  .height = o->data.image_size,
                                                  .width = o->data.image_width,
                                                  .channels = 3,
                                                  .read = fri_nothing_read,
                                                  .target = FR_TARGET_PIXELS},
                             out);
}

/* Opens the source that the add-on called --dataset NAME provides. */
static fr_status open_source(const fr_train_opts *o, fr_split split, fr_dataset **out) {
    const char *name = fri_dataset_name(o->data.dataset);
    const fr_addon *a = fr_addon_find(name);
    for (const fr_train_source *s = a != NULL ? a->sources : NULL; s != NULL && s->name != NULL; s++)
        if (strcmp(s->name, name) == 0) return s->open(o, split, out);
    char what[64];
    snprintf(what, sizeof what, "--dataset %s", name);
    return fr_addon_missing(what, name);
}

/* Test labels are meaningful only if both sets number their classes alike. */
static fr_status check_same_classes(const fr_dataset *train, const fr_dataset *test, int64_t classes) {
    for (int64_t i = 0; i < classes; i++) {
        const char *a = fr_dataset_class_name(train, i), *b = fr_dataset_class_name(test, i);
        if (a != NULL && b != NULL && strcmp(a, b) != 0)
            return fr_fail(FR_EFORMAT, "class %lld is %s in the training shards and %s in the test shards",
                           (long long)i, a, b);
    }
    return FR_OK;
}

static fr_status open_split(const fri_config *c, fr_split split, fr_dataset **out) {
    const fr_train_opts *o = &c->opts;
    const bool digits = o->data.dataset != FR_TRAIN_DIGITS || c->program->digits != NULL;
    if (!digits || (known[o->data.dataset].needs_data && o->data.path == NULL)) { /* no files: only sizes are needed */
        int64_t count = split == FR_SPLIT_TRAIN ? known[o->data.dataset].train : known[o->data.dataset].test;
        int64_t classes = known[o->data.dataset].classes != 0 ? known[o->data.dataset].classes : o->data.classes;
        if (o->data.dataset == FR_TRAIN_MASKS) return masks_without_files(o, count, out);
        return fr_dataset_synthetic(count, classes, o->data.image_size, o->data.image_width, 3, 0, out);
    }
    switch (o->data.dataset) {
    case FR_TRAIN_DIGITS: return c->program->digits(split, out);
    case FR_TRAIN_MNIST:
    case FR_TRAIN_FASHION_MNIST: return fr_dataset_idx(o->data.path, split, known[o->data.dataset].classes, out);
    case FR_TRAIN_CIFAR10: return fr_dataset_cifar10(o->data.path, split, out);
    case FR_TRAIN_CIFAR100: return fr_dataset_cifar100(o->data.path, split, out);
    case FR_TRAIN_FOLDER: return fr_dataset_image_folder(o->data.path, split, out);
    case FR_TRAIN_TAR: return open_source(o, split, out);
    case FR_TRAIN_MASKS: return fr_dataset_mask_folder(o->data.path, split, o->data.classes, out);
    case FR_TRAIN_SYNTHETIC:
        return fr_dataset_synthetic(split == FR_SPLIT_TRAIN ? known[o->data.dataset].train
                                                            : known[o->data.dataset].test,
                                    o->data.classes, o->data.image_size, o->data.image_width, 3, (uint64_t)split, out);
    case FR_TRAIN_OWN: *out = fr_dataset_retain(c->given[split]); return FR_OK;
    }
    return fr_fail(FR_EINTERNAL, "trainer: dataset %d", (int)o->data.dataset);
}

/* Mean and deviation with which the network of --weights was trained, from the weights file; a file without such
 * values gets ImageNet's, as torchvision uses for photos. Returns false if the data decide. */
static bool normalization_of_weights(fri_config *c) {
    static const double imagenet[2][3] = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    fr_weights_info info = {0};
    if (c->opts.files.weights == NULL) return false;
    const bool says = fr_weights_info_read(c->opts.files.weights, &info) == FR_OK && info.channels == c->channels;
    const bool found = says || (fri_dataset_in_folders(c->opts.data.dataset) && c->channels == 3);
    for (int i = 0; i < c->channels && found; i++) {
        c->mean[i] = says ? info.mean[i] : imagenet[0][i];
        c->std[i] = says ? info.std[i] : imagenet[1][i];
    }
    fr_weights_info_clear(&info);
    return found;
}

/* Mean and deviation of at most LOOK_AT training images; synthetic data and runs without data use constants. */
static fr_status find_mean_std(fri_config *c, const fr_dataset *train, int64_t of_images) {
    enum { LOOK_AT = 1024 };
    if (c->std[0] > 0) return FR_OK; /* given by the session's options */
    if (fri_without_data(&c->opts) || c->opts.data.dataset == FR_TRAIN_SYNTHETIC) {
        for (int i = 0; i < FR_CHANNELS_MAX; i++) {
            c->mean[i] = 0.5;
            c->std[i] = 0.25;
        }
        return FR_OK;
    }
    if (normalization_of_weights(c)) return FR_OK;
    FRI_TRY(fr_dataset_mean_std(train, LOOK_AT, c->mean, c->std));
    for (int i = 0; i < c->channels; i++) {
        if (of_images == 1) {
            c->mean[i] = c->mean[0];
            c->std[i] = c->std[0];
        }
        if (!(c->std[i] > 0)) c->std[i] = 1; /* all images have one color */
    }
    return FR_OK;
}

/* The program's own augmentation, or the one of --augment strong. */
static fr_status find_augmentation(fri_config *c, const fr_dataset_info *images) {
    const fr_train_opts *o = &c->opts;
    const fr_addon *addon = fr_addon_find("augment");
    fr_loader_opts l = {0};
    if (o->data.augmentation != NULL)
        l.augmentation = *o->data.augmentation;
    else if (o->data.augment == FR_TRAIN_AUGMENT_STRONG && addon == NULL)
        return fr_addon_missing("--augment strong", "augment");
    else if (o->data.augment == FR_TRAIN_AUGMENT_STRONG)
        FRI_TRY(
            addon->augment(!images->f32,
                           c->targets == FR_TARGET_CLASS && o->optim.loss != FR_TRAIN_DICE && c->program->loss == NULL,
                           &l));
    c->augmentation = l.augmentation;
    return FR_OK;
}

/* Says how many photos lie on a side. Looks at the headers of some. */
static fr_status note_turned(const fri_config *c, const fr_dataset *train) {
    enum { LOOK_AT = 256 };
    int64_t seen = 0, turned = 0;
    if (fri_without_data(&c->opts)) return FR_OK;
    FRI_TRY(fri_dataset_count_turned(train, LOOK_AT, &seen, &turned));
    if (turned > 0)
        fri_say(c, FRI_SAY_NOTE, "%lld of %lld images looked at are not upright, by EXIF; --exif is %s",
                (long long)turned, (long long)seen, c->opts.data.exif ? "on: they are turned" : "off: they stay so");
    if (turned > 0 && c->opts.data.exif && fri_dataset_masks_untold(train))
        fri_say(c, FRI_SAY_NOTE,
                "no shape tells how their masks lie: with --exif masks count as upright, drawn on what one sees; "
                "--no-exif if masks lie as the files do");
    return FR_OK;
}

static int64_t max_number(int64_t a, int64_t b) {
    return a > b ? a : b;
}

fr_status fri_data_open(fri_config *c, fr_dataset **train, fr_dataset **test) {
    fr_train_opts *o = &c->opts;
    fr_dataset_info of_train, of_test = {0};
    int64_t asked = o->data.classes;
    if (asked == FR_TRAIN_AUTO) o->data.classes = 10;
    fr_status s = open_split(c, FR_SPLIT_TRAIN, train);
    if (s == FR_OK) s = open_split(c, FR_SPLIT_TEST, test);
    if (s < 0) return o->data.path != NULL ? fr_fail_prefix(s, "--data: ") : s;
    if (!o->data.exif) FRI_TRY(fr_dataset_as_stored(*train));
    if (!o->data.exif && *test != NULL) FRI_TRY(fr_dataset_as_stored(*test));
    FRI_TRY(fr_dataset_info_get(*train, &of_train));
    if (*test != NULL) FRI_TRY(fr_dataset_info_get(*test, &of_test));
    if (o->data.dataset == FR_TRAIN_TAR && fr_dataset_class_name(*train, 0) == NULL) /* shards count classes by the
                                                                                   highest label */
        of_train.classes = of_test.classes = max_number(max_number(of_train.classes, of_test.classes), asked);
    if (asked != FR_TRAIN_AUTO && asked != of_train.classes)
        return fr_fail(FR_EINVAL, "--classes %lld: dataset %s has %lld classes; give that number", (long long)asked,
                       fri_dataset_name(o->data.dataset), (long long)of_train.classes);
    o->data.classes = of_train.classes;
    if (of_train.left_out > 0)
        fri_say(c, FRI_SAY_NOTE, "%s: %lld files and folders that are no images (.jpg, .jpeg, .png) are left out",
                of_train.source, (long long)of_train.left_out);
    if (*test != NULL && (of_test.target != of_train.target || of_test.classes != of_train.classes ||
                          of_test.channels != of_train.channels || of_test.f32 != of_train.f32))
        return fr_fail(FR_EINVAL, "%s and %s: channels, element type and targets must be equal", of_train.source,
                       of_test.source);
    if (o->data.dataset == FR_TRAIN_TAR && *test != NULL) FRI_TRY(check_same_classes(*train, *test, o->data.classes));
    c->from_labels = of_train.target == FR_TARGET_CLASS && c->program->pixel_target != NULL;
    c->targets = c->from_labels ? FR_TARGET_PIXELS : of_train.target;
    FRI_TRY(find_augmentation(c, &of_train));
    const fr_augmentation *a = &c->augmentation;
    const bool real = a->real != NULL || a->last != NULL || a->batch != NULL;
    c->bytes = c->target == FR_CUDA && !of_train.f32 && !c->from_labels && !real;
    c->outputs = c->from_labels ? c->program->pixel_classes(o->data.classes) : o->data.classes;
    c->channels = o->data.dataset == FR_TRAIN_OWN ? of_train.channels : 3;
    FRI_TRY(fri_loss_check(c));
    c->train_count = of_train.count;
    c->test_count = of_test.count;
    FRI_TRY(fri_check_counts(c, of_train.source));
    FRI_TRY(note_turned(c, *train));
    return find_mean_std(c, *train, of_train.channels);
}

static void set_augmentation(const fri_config *c, int split, fr_loader_opts *l) {
    const int64_t height = c->opts.data.image_size, width = c->opts.data.image_width,
                  size = height < width ? height : width;
    int64_t shift = known[c->opts.data.dataset].shift;
    bool on = split == FR_SPLIT_TRAIN && c->opts.data.augment != FR_TRAIN_AUGMENT_NONE;
    bool files = fri_dataset_in_folders(c->opts.data.dataset);
    if (files && size >= SMALL_IMAGE && height == width) /* other shapes are whole images */
        l->resize_height = l->resize_width = size * 256 / 224;
    else if (files || c->opts.data.dataset == FR_TRAIN_OWN)
        shift = size / 8;
    if (!on) return;
    l->padding = shift;
    l->random_crop = true;
    l->flip = known[c->opts.data.dataset].flip;
    l->degrees = known[c->opts.data.dataset].degrees;
    l->zoom = known[c->opts.data.dataset].zoom;
    l->shear = known[c->opts.data.dataset].shear;
}

void fri_data_loader_opts(const fri_config *c, int split, fr_loader_opts *l) {
    const fr_train_opts *o = &c->opts;
    const bool train = split == FR_SPLIT_TRAIN;
    *l = fr_loader_opts_default();
    l->batch_size = fri_batch_size(c, split);
    l->height = o->data.image_size;
    l->width = o->data.image_width;
    l->channels = c->channels;
    memcpy(l->mean, c->mean, sizeof l->mean);
    memcpy(l->std, c->std, sizeof l->std);
    l->shuffle = train;
    l->drop_last = train && !o->data.keep_last;
    l->seed = (uint64_t)o->optim.seed;
    l->workers = (int)o->data.workers;
    l->prefetch = (int)o->data.prefetch;
    l->shuffle_window = o->data.shuffle_window;
    l->dtype = fri_image_dtype(c);
    l->device = o->device == FR_META ? FR_META : FR_CPU;
    if (l->device != FR_META && o->files.predict == NULL) { /* a dry run reads no batches of the run's data set */
        l->group = train ? o->memory.accumulate : c->ranks;
        l->every = c->ranks;
        l->first = c->rank;
    }
    l->balanced = train && o->data.balanced_sampling;
    if (train) l->augmentation = c->augmentation;
    set_augmentation(c, split, l);
}

fr_status fri_data_loader(const fri_config *c, int split, fr_dataset *data, fr_loader **out) {
    fr_loader_opts l;
    fri_data_loader_opts(c, split, &l);
    if (split == FR_SPLIT_TEST) l.batch_size = fri_evaluation_part(c);
    fr_status s = fr_loader_create(data, &l, out);
    int started = fri_tensor_loader_workers(*out);
    if (s == FR_OK && !fri_without_data(&c->opts) && started < l.workers && split == FR_SPLIT_TRAIN)
        fri_say(c, FRI_SAY_NOTE, "--workers %d: %d could be started", l.workers, started);
    return s;
}
