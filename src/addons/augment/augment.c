/* augment.c - the add-on's table: flags, and the augmentation of a loader. */
#include "addons/augment/parts.h"

#include <frugal/addon.h>
#include <frugal/train.h>
#include <frugal/unstable/try.h>

_Static_assert((int)FRI_AMOUNTS <= (int)FR_AUGMENT_AMOUNTS, "amounts have places in fr_augmentation");

static fr_status check(const fr_augment_opts *o) {
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue", "erasing"};
    const double asked[] = {o->brightness, o->contrast, o->saturation, o->hue, o->erasing};
    static const double most[] = {10, 10, 10, 0.5, 1};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (!(asked[i] >= 0 && asked[i] <= most[i]))
            return fr_fail(FR_EINVAL, "augment: %s is %g, must lie in 0..%g", names[i], asked[i], most[i]);
    if (!(o->mixup >= 0 && o->mixup <= 1000) || !(o->cutmix >= 0 && o->cutmix <= 1000))
        return fr_fail(FR_EINVAL, "augment: mixup is %g and cutmix %g, they must lie in 0..1000", o->mixup, o->cutmix);
    if (o->rand_ops < 0 || o->rand_ops > FRI_RAND_OPS_MAX || o->rand_magnitude < 0 ||
        o->rand_magnitude > FRI_RAND_MAGNITUDE_MAX)
        return fr_fail(FR_EINVAL, "augment: rand_ops is %d and rand_magnitude %d, they must lie in 0..%d and 0..%d",
                       o->rand_ops, o->rand_magnitude, FRI_RAND_OPS_MAX, FRI_RAND_MAGNITUDE_MAX);
    return FR_OK;
}

fr_status fr_augment(const fr_augment_opts *opts, fr_loader_opts *loader) {
    const fr_augment_opts o = opts != NULL ? *opts : fr_augment_opts_default();
    FRI_NOT_NULL(loader);
    FRI_TRY(check(&o));
    const bool colored = o.brightness > 0 || o.contrast > 0 || o.saturation > 0 || o.hue > 0;
    loader->augmentation = (fr_augmentation){
        .bytes = o.rand_ops > 0 ? fri_rand_augment : NULL,
        .real = colored ? fri_color : NULL,
        .last = o.erasing > 0 ? fri_erase : NULL,
        .batch = o.mixup > 0 || o.cutmix > 0 ? fri_mix : NULL,
        .amount = {o.brightness, o.contrast, o.saturation, o.hue, o.rand_ops, o.rand_magnitude, o.erasing, o.mixup,
                   o.cutmix},
    };
    return FR_OK;
}

/* ---- flags ----------------------------------------------------------------------------------------------------- */

/* Ops and magnitude, "2,9". */
static fr_status read_rand_augment(const char *text, int *ops, int *magnitude) {
    int n = 0;
    if (sscanf(text, "%2d,%2d%n", ops, magnitude, &n) == 2 && text[n] == '\0' && *ops >= 1 &&
        *ops <= FRI_RAND_OPS_MAX && *magnitude >= 0 && *magnitude <= FRI_RAND_MAGNITUDE_MAX)
        return FR_OK;
    return fr_fail(FR_EINVAL, "--rand-augment %s: is not N,M with 1 to 16 ops of a magnitude of 0 to 30, such as 2,9",
                   text);
}

static fr_status of_training(const fr_train_opts *o, fr_loader_opts *loader) {
    fr_augment_opts a = fr_augment_opts_default();
    if (o->rand_augment != NULL) FRI_TRY(read_rand_augment(o->rand_augment, &a.rand_ops, &a.rand_magnitude));
    a.brightness = o->brightness;
    a.contrast = o->contrast;
    a.saturation = o->saturation;
    a.hue = o->hue;
    a.erasing = o->random_erasing;
    a.mixup = o->mixup;
    a.cutmix = o->cutmix;
    return fr_augment(&a, loader);
}

#define ROW(kind, field) FR_FLAG_##kind, FR_GROUP_TRAINING, offsetof(fr_train_opts, field)
#define BELOW(a, b)      .real_least = a, .below = b

static const fr_flag flags[] = {
    {"mixup", ROW(REAL, mixup), "ALPHA",
     "Blend each image and its class with another of the batch, by a share from Beta(ALPHA, ALPHA); 0: do not.",
     BELOW(0, 1000), .course = true, .lacking = "0"},
    {"cutmix", ROW(REAL, cutmix), "ALPHA",
     "Paste a box of another image of the batch into each, the classes shared by area; with --mixup too, each batch "
     "has one of the two.",
     BELOW(0, 1000), .course = true, .lacking = "0"},
    {"random-erasing", ROW(REAL, random_erasing), "P",
     "The probability that a box of a training image, 2 to 33 % of it, becomes its mean color.", BELOW(0, 1.0000001),
     .course = true, .lacking = "0"},
    {"brightness", ROW(REAL, brightness), "X",
     "Multiply training images by a random number of 1 - X to 1 + X; 0: do not.", BELOW(0, 10), .course = true,
     .lacking = "0"},
    {"contrast", ROW(REAL, contrast), "X", "The same of the distance from the image's mean gray.", BELOW(0, 10),
     .course = true, .lacking = "0"},
    {"saturation", ROW(REAL, saturation), "X", "The same of the distance from each pixel's gray.", BELOW(0, 10),
     .course = true, .lacking = "0"},
    {"hue", ROW(REAL, hue), "X", "Turn the hue of training images by up to X of the circle either way.",
     BELOW(0, 0.5000001), .course = true, .lacking = "0"},
    {"rand-augment", ROW(TEXT, rand_augment), "N,M",
     "RandAugment: N of 14 ops (shears, shifts, turns, colors) on each training image, of magnitude M, 0 to 30.",
     .unset = "none", .implied = "2,9", .course = true, .lacking = ""},
    {0},
};

extern const fr_addon fr_addon_augment;
const fr_addon fr_addon_augment = {.name = "augment", .flags = flags, .augment = of_training};
