/* model.c - a network by name, and a classifier from a file. */
#include "models/models.h"

#include <frugal/addon.h>
#include <frugal/try.h>
#include <frugal/weights.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FAMILY(name, make) {name, false, make},
static const fr_model_family families[] = {FR_MODEL_FAMILIES(FAMILY){0}};

/* Names of an add-on's networks, for a sentence where the add-on was not built. */
static const struct {
    const char *begin, *addon;
} elsewhere[] = {{"mobilenet_v3", "zoo"},
                 {"mobilenetv3", "zoo"},
                 {"efficientnet", "zoo"},
                 {"squeezenet", "zoo"},
                 {"convnext", "zoo"}};

/* Takes "_w0.5" off the end of name, into *width; other names stay unchanged. Independent of the locale's point. */
static const char *cut_width(char *name, double *width) {
    double n = 0, scale = 0;
    char *end = strrchr(name, '_'), *at = end != NULL ? end + 2 : name;
    if (end == NULL || end[1] != 'w' || *at < '0' || *at > '9') return name;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && scale == 0); at++) {
        if (*at != '.') n = 10 * n + (*at - '0');
        scale = *at == '.' ? 1 : 10 * scale;
    }
    if (*at != '\0') return name;
    *width = scale > 0 ? n / scale : n;
    *end = '\0';
    return name;
}

/* The family with the whole `name`, or with the part before a number; NULL: unknown. */
static const fr_model_family *family_in(const fr_model_family *f, const char *name) {
    for (; f != NULL && f->name != NULL; f++) {
        const size_t n = strlen(f->name);
        if (strncmp(name, f->name, n) != 0) continue;
        if (f->alone ? name[n] == '\0' : name[n] >= '0' && name[n] <= '9') return f;
    }
    return NULL;
}

/* Add-ons come first: "mobilenet_v3_small" is no MobileNetV2. */
static const fr_model_family *family_of(const char *name) {
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++) {
        const fr_model_family *f = family_in((*a)->models, name);
        if (f != NULL) return f;
    }
    return family_in(families, name);
}

static const char known[] = "vgg11, vgg13, vgg16, vgg19, resnet18, resnet34, resnet50, resnet101, resnet152, "
                            "densenet121, densenet169, densenet_bc40_k12, mobilenet_v2, unet4, with the add-on "
                            "zoo mobilenet_v3_small, mobilenet_v3_large, efficientnet_b0, convnext_tiny, "
                            "squeezenet1_1";

/* Ends a sentence with the nearest known name, of at most 2 wrong letters, or with a full stop if no name is near. */
static const char *near_name(const char *name, char text[FR_WEIGHTS_NAME_BYTES + 32]) {
    int best = 3;
    strcpy(text, ".");
    for (const char *c = known; *c != '\0'; c += strcspn(c, " "), c += strspn(c, " ")) {
        char word[FR_WEIGHTS_NAME_BYTES] = "";
        memcpy(word, c, strcspn(c, ", ")); /* every known name is shorter than FR_WEIGHTS_NAME_BYTES */
        const int d = fr_text_distance(name, word);
        if (d < best) best = d, sprintf(text, "; did you mean '%s'?", word);
    }
    return text;
}

static fr_status fail_unknown(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strncmp(name, elsewhere[i].begin, strlen(elsewhere[i].begin)) == 0 &&
            fr_addon_find(elsewhere[i].addon) == NULL) {
            char what[FR_WEIGHTS_NAME_BYTES + 16];
            snprintf(what, sizeof what, "model '%.*s'", FR_WEIGHTS_NAME_BYTES, name);
            return fr_addon_missing(what, elsewhere[i].addon);
        }
    char near[FR_WEIGHTS_NAME_BYTES + 32];
    return fr_fail(FR_EINVAL,
                   "model '%s' is not known%s There are %s. A name may end in _bn, _small, _abn and last _w0.5. "
                   "fr_classifier_load_own loads a network of one's own",
                   name, near_name(name, near), known);
}

/* Reads the number and the flags after the family's name. False: unknown text. */
static bool read_rest(const char *rest, int *number, fr_model_opts *o) {
    char *end = NULL;
    bool seen[3] = {false};
    const long depth = strtol(rest, &end, 10);
    if (strncmp(end, "_k", 2) == 0 && end[2] >= '0' && end[2] <= '9') o->growth = strtol(end + 2, &end, 10);
    for (; end[0] == '_'; end += strcspn(end + 1, "_") + 1) {
        const char *part = end + 1;
        const size_t length = strcspn(part, "_");
        const bool abn = length == 3 && memcmp(part, "abn", 3) == 0;
        const bool stem = length == 5 && memcmp(part, "small", 5) == 0;
        const bool norm = abn || (length == 2 && memcmp(part, "bn", 2) == 0);
        bool *before = &seen[stem ? 0 : abn ? 1 : 2];
        if ((!stem && !norm) || *before) break; /* each suffix stands once */
        *before = true;
        if (stem) o->small_stem = true;
        if (norm) o->batch_norm = true;
        if (abn) o->abn_slope = FR_ABN_SLOPE;
    }
    *number = (int)depth;
    return end[0] == '\0' && depth <= INT32_MAX;
}

/* Passes on a failure, or names the network's name if default options fail, too: there is no mobilenet_v4. */
static fr_status blame_name(fr_status s, const char *asked, const fr_model_family *f, const char *rest) {
    char why[512], near[FR_WEIGHTS_NAME_BYTES + 32];
    fr_model_opts plain = *FR_MODEL_OPTS(.device = FR_META);
    fr_module *m = NULL;
    int number = 0;
    snprintf(why, sizeof why, "%s", fr_last_error());
    if (!f->alone) (void)read_rest(rest, &number, &plain);
    const bool exists = f->make(number, &plain, &m) == FR_OK;
    fr_module_release(&m);
    return exists ? fr_fail(s, "%s", why) : fr_fail(s, "model '%s': %s%s", asked, why, near_name(asked, near));
}

static fr_status make_module(const char *name, const fr_model_opts *opts, fr_module **m) {
    const char *const asked = name;
    fr_model_opts o = opts != NULL ? *opts : *FR_MODEL_OPTS();
    char base[FR_WEIGHTS_NAME_BYTES] = "";
    int number = 0;
    if (strlen(name) < sizeof base) name = cut_width(memcpy(base, name, strlen(name)), &o.width);
    const fr_model_family *f = family_of(name);
    if (f == NULL || (!f->alone && !read_rest(name + strlen(f->name), &number, &o))) return fail_unknown(asked);
    fr_status s = f->make(number, &o, m);
    return s == FR_EINVAL ? blame_name(s, asked, f, name + strlen(f->name)) : s;
}

fr_status fr_model(const char *name, const fr_model_opts *opts, fr_module **m) {
    if (name == NULL || m == NULL) return fr_fail(FR_EINVAL, "fr_model: %s is NULL", name == NULL ? "name" : "m");
    return make_module(name, opts, m);
}

/* ---- a classifier from its file -------------------------------------------------------------------------- */

/* The name in a file of weights. */
static const char *head_name(fr_head head) {
    return head == FR_HEAD_TORCHVISION ? "torchvision" : head == FR_HEAD_GLOBAL ? "global" : "";
}

static fr_status head_of(const char *path, const char *name, fr_head *out) {
    for (*out = FR_HEAD_AUTO; *out <= FR_HEAD_GLOBAL; (*out)++)
        if (strcmp(name, head_name(*out)) == 0) return FR_OK;
    return fr_fail(FR_EFORMAT, "'%s': head '%s' of its network is not known", path, name);
}

/* A network of the program; make NULL: fr_model makes the network. */
typedef struct own_network {
    fr_network_fn *make;
    void *ctx;
} own_network;

/* The network on a device; first on meta, so a file too small for the weights allocates nothing. */
static fr_status build_from_file(const char *path, const own_network *own, const fr_weights_info *info,
                                 fr_device device, fr_module **m) {
    fr_head head = FR_HEAD_AUTO;
    if (own->make != NULL)
        return FRI_CALLBACK("the function of the network", own->make(own->ctx, device, info->classes, m));
    fr_status s = head_of(path, info->head, &head);
    if (s < 0) return s;
    return fr_model(info->model,
                    FR_MODEL_OPTS(.classes = info->classes, .in_channels = info->channels, .image_size = info->height,
                                  .image_width = info->width, .head = head, .device = device),
                    m);
}

static fr_status check_size(const char *path, const own_network *own, const fr_weights_info *info) {
    fr_module *m = NULL;
    struct stat file;
    fr_status s = build_from_file(path, own, info, FR_META, &m);
    const int64_t parameters = fr_module_parameter_count(m);
    fr_module_release(&m);
    if (s < 0 || stat(path, &file) != 0 || parameters <= file.st_size / 2) return s; /* a half at least has 2 bytes */
    return fr_fail(FR_EFORMAT, "'%s' names %s, of %lld parameters, but has %lld bytes: the file is damaged", path,
                   info->model, (long long)parameters, (long long)file.st_size);
}

static fr_status load_classifier(const char *path, const own_network *own, fr_device device, fr_classifier *c) {
    const fr_network_file *file = NULL;
    FRI_TRY(fr_network_file_of(path, &file));
    FRI_TRY(fr_weights_info_read(path, &c->info));
    if (file != NULL && file->load != NULL && own->make == NULL) {
        FRI_TRY(file->load(path, device, c->info.height, c->info.width, &c->model));
    } else {
        FRI_TRY(check_size(path, own, &c->info));
        FRI_TRY(build_from_file(path, own, &c->info, device, &c->model));
        FRI_TRY(fr_weights_load(c->model, path, NULL));
    }
    fr_module_train(c->model, false);
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        if ((*a)->fold != NULL) FRI_TRY((*a)->fold(&c->model));
    fr_weights_input(&c->info, &c->input);
    return FR_OK;
}

void fr_weights_input(const fr_weights_info *info, fr_loader_opts *out) {
    if (info == NULL || out == NULL) return;
    *out = fr_loader_opts_default();
    out->channels = info->channels;
    out->height = info->height;
    out->width = info->width;
    for (int64_t i = 0; i < info->channels && i < FR_CHANNELS_MAX; i++) {
        out->mean[i] = info->mean[i];
        out->std[i] = info->std[i];
    }
}

static fr_status replace_classifier(const char *path, const own_network *own, fr_device device, fr_classifier *out) {
    FRI_OWNED(fr_classifier_clear) fr_classifier c = {0};
    FRI_TRY(load_classifier(path, own, device, &c));
    fr_classifier_clear(out);
    *out = c;
    c = (fr_classifier){0};
    return FR_OK;
}

fr_status fr_classifier_load(const char *path, fr_device device, fr_classifier *out) {
    FRI_NOT_NULL(path, out);
    return replace_classifier(path, &(own_network){NULL, NULL}, device, out);
}

fr_status fr_classifier_load_own(const char *path, fr_network_fn *network, void *ctx, fr_device device,
                                 fr_classifier *out) {
    FRI_NOT_NULL(path, network, out);
    return replace_classifier(path, &(own_network){network, ctx}, device, out);
}

void fr_classifier_clear(fr_classifier *c) {
    if (c == NULL) return;
    fr_module_release(&c->model);
    fr_weights_info_clear(&c->info);
}
