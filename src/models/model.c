/* model.c - a network by its name, and a classifier from its file. */
#include <frugal/models.h>

#include "models/models.h"

#include <stdlib.h>
#include <string.h>

typedef fr_status make_fn(int depth, const fr_model_opts *opts, fr_module **m);

static fr_status make(const char *name, const fr_model_opts *opts, fr_module **m) {
    static const struct {
        const char *name;
        make_fn *make;
    } family[] = {{"vgg", fr_vgg},           {"resnet", fr_resnet},         {"densenet_bc", fr_densenet},
                  {"densenet", fr_densenet}, {"mobilenet_v", fr_mobilenet}, {"unet", fr_unet}};
    fr_model_opts o = opts != NULL ? *opts : *FR_MODEL_OPTS();
    const bool large = strcmp(name, "mobilenet_v3_large") == 0;
    if (large || strcmp(name, "mobilenet_v3_small") == 0) return fr_mobilenet_v3(large, &o, m);
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        const size_t n = strlen(family[i].name);
        char *rest = NULL;
        if (strncmp(name, family[i].name, n) != 0 || name[n] < '0' || name[n] > '9') continue;
        const long depth = strtol(name + n, &rest, 10);
        if (strncmp(rest, "_k", 2) == 0 && rest[2] >= '0' && rest[2] <= '9') o.growth = strtol(rest + 2, &rest, 10);
        for (; rest[0] == '_'; rest += strcspn(rest + 1, "_") + 1) {
            const char *part = rest + 1;
            const size_t length = strcspn(part, "_");
            const bool abn = length == 3 && memcmp(part, "abn", 3) == 0;
            if (length == 5 && memcmp(part, "small", 5) == 0)
                o.small_stem = true;
            else if (abn || (length == 2 && memcmp(part, "bn", 2) == 0))
                o.batch_norm = true;
            else
                break;
            if (abn) o.abn_slope = FR_ABN_SLOPE;
        }
        if (rest[0] == '\0' && depth <= INT32_MAX) return family[i].make((int)depth, &o, m);
    }
    return fr_fail(
        FR_EINVAL,
        "model '%s' is not known: vgg16, resnet18, densenet121, densenet_bc40_k12, mobilenet_v2, "
        "mobilenet_v3_small, mobilenet_v3_large, unet4 and other depths are, with _bn, _small, _abn behind them",
        name);
}

fr_status fr_model(const char *name, const fr_model_opts *opts, fr_module **m) {
    if (name == NULL || m == NULL) return fr_fail(FR_EINVAL, "fr_model: %s is NULL", name == NULL ? "name" : "m");
    return make(name, opts, m);
}

/* ---- a classifier from its file -------------------------------------------------------------------------- */

static fr_status head_of(const char *path, const char *name, fr_head *out) {
    static const char *const names[] =
        {[FR_HEAD_AUTO] = "", [FR_HEAD_TORCHVISION] = "torchvision", [FR_HEAD_GLOBAL] = "global"};
    for (int h = 0; h < (int)(sizeof names / sizeof *names); h++) {
        *out = (fr_head)h;
        if (strcmp(name, names[h]) == 0) return FR_OK;
    }
    return fr_fail(FR_EFORMAT, "'%s': head '%s' of its network is not known", path, name);
}

static fr_status load(const char *path, fr_device device, fr_classifier *c) {
    fr_head head = FR_HEAD_AUTO;
    fr_status s = FR_OK;
    FR_TRY(s, fr_weights_info_read(path, &c->info));
    FR_TRY(s, head_of(path, c->info.head, &head));
    FR_TRY(s, fr_model(c->info.model,
                       FR_MODEL_OPTS(.classes = c->info.classes, .in_channels = c->info.channels,
                                     .image_size = c->info.height, .head = head, .device = device),
                       &c->model));
    FR_TRY(s, fr_weights_load(c->model, path, NULL));
    FR_TRY(s, fr_net_fold(&c->model));
    fr_weights_input(&c->info, &c->input);
done:
    return s;
}

void fr_weights_input(const fr_weights_info *info, fr_loader_opts *out) {
    if (info == NULL || out == NULL) return;
    *out = fr_loader_opts_default();
    out->channels = info->channels;
    out->height = info->height;
    out->width = info->width;
    for (int64_t i = 0; i < info->channels && i < (int64_t)(sizeof out->mean / sizeof *out->mean); i++) {
        out->mean[i] = info->mean[i];
        out->std[i] = info->std[i];
    }
}

fr_status fr_classifier_load(const char *path, fr_device device, fr_classifier *out) {
    if (path == NULL || out == NULL)
        return fr_fail(FR_EINVAL, "fr_classifier_load: %s is NULL", path == NULL ? "path" : "out");
    fr_classifier c = {0};
    fr_status s = load(path, device, &c);
    if (s < 0) {
        fr_classifier_clear(&c);
        return s;
    }
    fr_classifier_clear(out);
    *out = c;
    return s;
}

void fr_classifier_clear(fr_classifier *c) {
    if (c == NULL) return;
    fr_module_release(&c->model);
    fr_weights_info_clear(&c->info);
}
