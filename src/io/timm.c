/* timm.c - pairs the tensors of a timm file with a module's.
 *
 * timm calls the layers of MobileNet, EfficientNet and ConvNeXt otherwise than torchvision, and runs them in the same
 * order. So names are sorted by that order, which ranks of timm's words give, and paired with the module's one by one;
 * the last words must agree, and afterwards the shapes. */
#include "io/timm.h"

#include "base/status.h"
#include "tensor/tensor.h"

#include <frugal/nn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 128, NAME_BYTES = 200 };

typedef struct ranked {
    char key[KEY_BYTES];
    const fri_safetensors_entry *entry;
} ranked;

/* In the order in which parts of one module run. */
static const char *const words[] = {"conv_stem",
                                    "stem",
                                    "conv",
                                    "conv_pw",
                                    "bn1",
                                    "downsample",
                                    "blocks",
                                    "stages",
                                    "gamma",
                                    "conv_dw",
                                    "conv_head",
                                    "bn2",
                                    "se",
                                    "conv_reduce",
                                    "conv_expand",
                                    "conv_pwl",
                                    "bn3",
                                    "norm",
                                    "mlp",
                                    "fc1",
                                    "fc2",
                                    "head",
                                    "classifier",
                                    "fc",
                                    "weight",
                                    "bias",
                                    "running_mean",
                                    "running_var",
                                    "num_batches_tracked"};

static int rank_of(const char *word, size_t n) {
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0) return i;
    return -1;
}

/* A block without expansion begins with the depthwise convolution: its parts have the ranks that they have behind an
 * expansion. */
static size_t moved(const fri_safetensors *f, const char *name, const char *word, size_t n, const char **as) {
    static const char *const pairs[][2] = {{"conv_pw", "conv_pwl"}, {"bn2", "bn3"}, {"bn1", "bn2"}};
    char other[NAME_BYTES + 32];
    *as = word;
    snprintf(other, sizeof other, "%.*sconv_dw.weight", (int)(word - name), name);
    if (fri_safetensors_find(f, other) == NULL) return n;
    snprintf(other, sizeof other, "%.*sconv_pwl.weight", (int)(word - name), name);
    if (fri_safetensors_find(f, other) != NULL) return n;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strlen(pairs[i][0]) == n && memcmp(pairs[i][0], word, n) == 0) *as = pairs[i][1];
    return *as != word ? strlen(*as) : n;
}

/* False: timm has no such name. */
static bool rank_name(const fri_safetensors *f, const char *name, char key[KEY_BYTES]) {
    size_t at = 0;
    if (strlen(name) >= NAME_BYTES) return false;
    for (const char *word = name; *word != '\0'; word += strspn(word, ".")) {
        size_t n = strcspn(word, ".");
        const char *as = word;
        char *end = NULL;
        long number = strtol(word, &end, 10);
        if (end != word + n || number < 0 || number > 999) {
            const size_t length = moved(f, name, word, n, &as);
            number = rank_of(as, length);
        }
        if (number < 0 || at + 5 > KEY_BYTES) return false;
        at += (size_t)snprintf(key + at, KEY_BYTES - at, "%03ld.", number);
        word += n;
    }
    return at > 0;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const ranked *)a)->key, ((const ranked *)b)->key);
}

static const char *last_word(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL ? dot + 1 : name;
}

static bool agree(const char *theirs, const char *ours) {
    theirs = last_word(theirs);
    ours = last_word(ours);
    return strcmp(theirs, ours) == 0 || (strcmp(theirs, "gamma") == 0 && strcmp(ours, "layer_scale") == 0);
}

/* timm's batch norms have PyTorch's eps; torchvision's MobileNetV3 has another. */
static fr_status check_eps(fr_module *m) {
    const double theirs = 1e-5, eps = fr_module_eps(m);
    fr_status s = FR_OK;
    if (eps != theirs && strcmp(fr_module_class_of(m)->name, "BatchNorm2d") == 0)
        return fr_fail(FR_EINVAL,
                       "its names are timm's, whose batch norms have eps %g; this network's have %g: timm's network is "
                       "made by timm's name, mobilenetv3_large_100",
                       theirs, eps);
    for (int i = 0; i < fr_module_children(m) && s == FR_OK; i++) s = check_eps(fr_module_child(m, i));
    return s;
}

static bool has_timms_names(const fri_safetensors *f, const fr_entries *e) {
    static const char *const stem[] = {"conv_stem.weight", "stem.0.weight"};
    for (size_t i = 0; i < 2; i++) {
        bool here = false;
        for (size_t k = 0; k < e->n && !here; k++) here = strcmp(e->entry[k].name, stem[i]) == 0;
        if (!here && fri_safetensors_find(f, stem[i]) != NULL) return true;
    }
    return false;
}

fr_status fri_timm_pair(fr_module *m, const fri_safetensors *f, const fr_entries *e, const fri_safetensors_entry **from,
                        bool *paired) {
    *paired = false;
    if (!has_timms_names(f, e)) return FR_OK;
    if (f->n_entries != e->n)
        return fr_fail(FR_EINVAL, "its names are timm's, and it has %zu tensors; the module has %zu", f->n_entries,
                       e->n);
    ranked *list = calloc(e->n, sizeof *list);
    fr_status s = list != NULL ? check_eps(m) : fr_fail(FR_ENOMEM, "no host memory for %zu names", e->n);
    for (size_t i = 0; i < e->n && s == FR_OK; i++) {
        list[i].entry = &f->entries[i];
        if (!rank_name(f, f->entries[i].name, list[i].key))
            s = fr_fail(FR_EINVAL, "its names are timm's, but '%.200s' is of no network here", f->entries[i].name);
    }
    if (s == FR_OK) qsort(list, e->n, sizeof *list, by_key);
    for (size_t i = 0; i < e->n && s == FR_OK; i++) {
        from[i] = list[i].entry;
        if (!agree(from[i]->name, e->entry[i].name))
            s = fr_fail(FR_EINVAL, "its names are timm's, and tensor %zu is '%.200s'; the module's is '%.200s'", i + 1,
                        from[i]->name, e->entry[i].name);
    }
    *paired = s == FR_OK;
    free(list);
    return s;
}
