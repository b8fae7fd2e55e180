/* augment.c - the add-on's table, and the augmentation of a loader. */
#include "addons/augment/parts.h"

#include <frugal/addon.h>
#include <frugal/try.h>

_Static_assert((int)FRI_AMOUNTS <= (int)FR_AUGMENT_AMOUNTS, "amounts have places in fr_augmentation");

static fr_status check_options(const fr_augment_opts *o) {
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
    FRI_TRY(check_options(&o));
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

/* --augment strong: torchvision's recipe for classifiers, and colors where there are masks or vectors. */
static fr_status augment_strong(bool bytes, bool classes, fr_loader_opts *loader) {
    if (!classes) return fr_augment(FR_AUGMENT_OPTS(.brightness = 0.4, .contrast = 0.4, .saturation = 0.4), loader);
    return fr_augment(FR_AUGMENT_OPTS(.rand_ops = bytes ? 2 : 0, .rand_magnitude = 9, .erasing = 0.1, .mixup = 0.2,
                                      .cutmix = 1),
                      loader);
}

extern const fr_addon fr_addon_augment;
const fr_addon fr_addon_augment = {.name = "augment", .augment = augment_strong};
