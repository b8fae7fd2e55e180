/* data.c - from --dataset to datasets, and to loaders with the augmentation that belongs to them. */
#include "base/status.h"
#include "train/run.h"

/* What is known of a dataset without its files: sizes for --device meta, and how its images may be varied. */
static const struct {
    const char *name;
    bool needs_data;
    int64_t train, test, classes; /* published sizes; classes 0: --classes */
    int64_t shift;                /* pixels */
    bool flip;
    double degrees, zoom, shear; /* as fr_loader_opts has them */
} known[] = {
    [FR_TRAIN_DIGITS] = {"digits", false, 1500, 297, 10, 2, false, 10, 0.1, 10},
    [FR_TRAIN_MNIST] = {"mnist", true, 60000, 10000, 10, 2, false},
    [FR_TRAIN_FASHION_MNIST] = {"fashion-mnist", true, 60000, 10000, 10, 4, true},
    [FR_TRAIN_CIFAR10] = {"cifar10", true, 50000, 10000, 10, 4, true},
    [FR_TRAIN_CIFAR100] = {"cifar100", true, 50000, 10000, 100, 4, true},
    [FR_TRAIN_FOLDER] = {"folder", true, 1281167, 50000, 0, 0, true},
    [FR_TRAIN_SYNTHETIC] = {"synthetic", false, 50000, 256, 0, 0, false},
};

enum { SMALL_IMAGE = 64 }; /* below, folders are shifted; from here on, cropped as ImageNet is */

bool fri_without_data(const fri_run *r) {
    return r->opts.device == FR_META || r->opts.plan || r->opts.summary;
}

const char *fri_dataset_name(const fri_run *r) {
    return known[r->opts.dataset].name;
}

static fr_status open_split(const fri_run *r, fr_split split, fr_dataset **out) {
    const fr_train_opts *o = &r->opts;
    if (known[o->dataset].needs_data && o->data == NULL) { /* meta */
        int64_t count = split == FR_SPLIT_TRAIN ? known[o->dataset].train : known[o->dataset].test;
        int64_t classes = known[o->dataset].classes != 0 ? known[o->dataset].classes : o->classes;
        return fr_dataset_synthetic(count, classes, o->image_size, o->image_size, 3, 0, out);
    }
    switch (o->dataset) {
    case FR_TRAIN_DIGITS: return r->program->digits(split, out);
    case FR_TRAIN_MNIST:
    case FR_TRAIN_FASHION_MNIST: return fr_dataset_idx(o->data, split, known[o->dataset].classes, out);
    case FR_TRAIN_CIFAR10: return fr_dataset_cifar10(o->data, split, out);
    case FR_TRAIN_CIFAR100: return fr_dataset_cifar100(o->data, split, out);
    case FR_TRAIN_FOLDER: return fr_dataset_image_folder(o->data, split, out);
    case FR_TRAIN_SYNTHETIC:
        return fr_dataset_synthetic(split == FR_SPLIT_TRAIN ? known[o->dataset].train : known[o->dataset].test,
                                    o->classes, o->image_size, o->image_size, 3, (uint64_t)split, out);
    }
    return fri_fail(FR_EINTERNAL, "trainer: dataset %d", (int)o->dataset);
}

static fr_status check_flags(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    const char *name = known[o->dataset].name;
    if (known[o->dataset].needs_data && o->data == NULL && !fri_without_data(r))
        return fri_fail(FR_EINVAL, "--dataset %s needs --data PATH, the folder with its files", name);
    if (!known[o->dataset].needs_data && o->data != NULL)
        return fri_fail(FR_EINVAL,
                        "--data %s: --dataset %s reads no files; mnist, fashion-mnist, cifar10, cifar100 and folder do",
                        o->data, name);
    return FR_OK;
}

/* Statistics of at most this many training images; noise and sizes without data have none. */
static fr_status find_mean_std(fri_run *r, const fr_dataset_info *info) {
    enum { LOOK_AT = 1024 };
    fr_status s = FR_OK;
    if (fri_without_data(r) || r->opts.dataset == FR_TRAIN_SYNTHETIC) {
        for (int c = 0; c < 3; c++) {
            r->mean[c] = 0.5;
            r->std[c] = 0.25;
        }
        return FR_OK;
    }
    FR_TRY(s, fr_dataset_mean_std(r->train, LOOK_AT, r->mean, r->std));
    for (int c = 0; c < 3; c++) {
        if (info->channels == 1) {
            r->mean[c] = r->mean[0];
            r->std[c] = r->std[0];
        }
        if (!(r->std[c] > 0)) r->std[c] = 1; /* images of one color */
    }
done:
    return s;
}

fr_status fri_data_open(fri_run *r) {
    fr_dataset_info train, test;
    fr_status s = FR_OK;
    bool given = r->opts.classes != FR_TRAIN_AUTO;
    int64_t asked = r->opts.classes;
    if (r->opts.image_size == FR_TRAIN_AUTO) r->opts.image_size = r->opts.dataset == FR_TRAIN_FOLDER ? 224 : 32;
    if (!given) r->opts.classes = 10;
    FR_TRY(s, check_flags(r));
    FR_TRY(s, open_split(r, FR_SPLIT_TRAIN, &r->train));
    FR_TRY(s, open_split(r, FR_SPLIT_TEST, &r->test));
    FR_TRY(s, fr_dataset_info_get(r->train, &train));
    FR_TRY(s, fr_dataset_info_get(r->test, &test));
    if (given && asked != train.classes) {
        s = fri_fail(FR_EINVAL, "--classes %lld: dataset %s has %lld classes", (long long)asked, fri_dataset_name(r),
                     (long long)train.classes);
        goto done;
    }
    r->opts.classes = train.classes;
    r->outputs = r->program->pixel_classes != NULL ? r->program->pixel_classes(train.classes) : train.classes;
    r->train_count = train.count;
    r->test_count = test.count;
    if (r->opts.batch_size > train.count && !r->opts.keep_last) {
        s = fri_fail(FR_EINVAL,
                     "--batch-size %lld: dataset %s has %lld training images, so no batch would be full; lower it or "
                     "add --keep-last",
                     (long long)r->opts.batch_size, fri_dataset_name(r), (long long)train.count);
        goto done;
    }
    FR_TRY(s, find_mean_std(r, &train));
done:
    return s;
}

static void vary(const fri_run *r, fr_split split, fr_loader_opts *l) {
    int64_t size = r->opts.image_size, shift = known[r->opts.dataset].shift;
    bool on = split == FR_SPLIT_TRAIN && r->opts.augment;
    if (r->opts.dataset == FR_TRAIN_FOLDER && size >= SMALL_IMAGE)
        l->resize_height = l->resize_width = size * 256 / 224;
    else if (r->opts.dataset == FR_TRAIN_FOLDER)
        shift = size / 8;
    if (!on) return;
    l->padding = shift;
    l->random_crop = true;
    l->flip = known[r->opts.dataset].flip;
    l->degrees = known[r->opts.dataset].degrees;
    l->zoom = known[r->opts.dataset].zoom;
    l->shear = known[r->opts.dataset].shear;
}

void fri_data_loader_opts(const fri_run *r, fr_split split, fr_loader_opts *l) {
    const fr_train_opts *o = &r->opts;
    bool train = split == FR_SPLIT_TRAIN;
    *l = fr_loader_opts_default();
    l->batch_size = o->batch_size;
    if (!train && l->batch_size > r->test_count) l->batch_size = r->test_count;
    if (train && l->batch_size > r->train_count) l->batch_size = r->train_count;
    l->height = l->width = o->image_size;
    l->channels = 3;
    for (int c = 0; c < 3; c++) {
        l->mean[c] = r->mean[c];
        l->std[c] = r->std[c];
    }
    l->shuffle = train;
    l->drop_last = train && !o->keep_last;
    l->seed = (uint64_t)o->seed;
    l->workers = (int)o->workers;
    l->prefetch = (int)o->prefetch;
    l->device = o->device == FR_META ? FR_META : FR_CPU;
    vary(r, split, l);
}

fr_status fri_data_loader(const fri_run *r, fr_split split, fr_loader **out) {
    fr_loader_opts l;
    fri_data_loader_opts(r, split, &l);
    fr_status s = fr_loader_create(split == FR_SPLIT_TRAIN ? r->train : r->test, &l, out);
    int started = fr_loader_workers(*out);
    if (s == FR_OK && !fri_without_data(r) && started < l.workers && split == FR_SPLIT_TRAIN && !r->opts.quiet)
        fprintf(r->out, "note: --workers %d: %d could be started\n", l.workers, started);
    return s;
}
