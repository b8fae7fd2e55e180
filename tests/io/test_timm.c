/* test_timm.c - a file with timm's names fills a network with torchvision's; what is of another network is refused and
 * changes nothing. That the logits are timm's is test_torchvision.py's business. */
#include "io/support.h"

#include "io/safetensors.h"

#include <frugal/io.h>
#include <frugal/net.h>

#include <stdlib.h>
#include <string.h>

TestSuite(timm, .init = make_folder, .fini = remove_folder);

static fr_value conv_norm(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, double eps) {
    fr_net_scope_begin(n, "%s", name);
    x = fr_net_conv2d(n, "0", x, out, kernel, FR_CONV2D_OPTS(.padding = kernel / 2), FR_NO_BIAS);
    x = fr_net_batchnorm2d(n, "1", x, FR_BATCHNORM2D_OPTS(.eps = eps));
    fr_net_scope_end(n);
    return x;
}

/* A stem, a block without expansion and one with, as MobileNetV3 has them; all channels are alike, so that a wrong pair
 * would fit. */
static fr_module *mobile(uint64_t seed, double eps, int64_t classes) {
    fr_module *m = NULL;
    fr_seed(seed);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 6, 6, 4});
    x = conv_norm(n, "features.0", x, 4, 3, eps);
    x = conv_norm(n, "features.1.block.0", x, 4, 3, eps);
    x = fr_net_conv2d(n, "features.1.block.1.fc1", x, 4, 1, NULL, FR_BIAS);
    x = fr_net_conv2d(n, "features.1.block.1.fc2", x, 4, 1, NULL, FR_BIAS);
    x = conv_norm(n, "features.1.block.2", x, 4, 1, eps);
    x = conv_norm(n, "features.2.block.0", x, 4, 1, eps);
    x = conv_norm(n, "features.2.block.1", x, 4, 3, eps);
    x = conv_norm(n, "features.2.block.2", x, 4, 1, eps);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "classifier.0", x, 4, FR_BIAS);
    x = fr_net_linear(n, "classifier.3", x, classes, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    return m;
}

/* A stem, a block, a smaller picture and ten more, as ConvNeXt has them: the eleventh is not the second. */
static fr_module *next(uint64_t seed) {
    fr_module *m = NULL;
    fr_seed(seed);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 3});
    x = fr_net_layer_norm(n, "features.0.1", fr_net_conv2d(n, "features.0.0", x, 4, 1, NULL, FR_BIAS), 1e-6);
    for (int k = -1; k < 11; k++) {
        if (k == 0) x = fr_net_layer_norm(n, "features.2.0", x, 1e-6);
        if (k == 0) x = fr_net_conv2d(n, "features.2.1", x, 4, 2, FR_CONV2D_OPTS(.stride = 2), FR_BIAS);
        fr_net_scope_begin(n, k < 0 ? "features.1.0" : "features.3.%d", k);
        x = fr_net_layer_norm(n, "block.2", fr_net_conv2d(n, "block.0", x, 4, 1, NULL, FR_BIAS), 1e-6);
        x = fr_net_linear(n, "block.5", fr_net_linear(n, "block.3", x, 4, FR_BIAS), 4, FR_BIAS);
        x = fr_net_layer_scale(n, "layer_scale", x, 0.25 * k);
        fr_net_scope_end(n);
    }
    x = fr_net_layer_norm(n, "classifier.0", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1e-6);
    x = fr_net_linear(n, "classifier.2", fr_net_flatten(n, "flatten", x, 1), 3, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    return m;
}

typedef struct renaming {
    const char *ours, *timms;
} renaming;

static const renaming mobile_names[] = {
    {"features.0.0.", "conv_stem."},
    {"features.0.1.", "bn1."},
    {"features.1.block.0.0.", "blocks.0.0.conv_dw."},
    {"features.1.block.0.1.", "blocks.0.0.bn1."},
    {"features.1.block.1.fc1.", "blocks.0.0.se.conv_reduce."},
    {"features.1.block.1.fc2.", "blocks.0.0.se.conv_expand."},
    {"features.1.block.2.0.", "blocks.0.0.conv_pw."},
    {"features.1.block.2.1.", "blocks.0.0.bn2."},
    {"features.2.block.0.0.", "blocks.1.0.conv_pw."},
    {"features.2.block.0.1.", "blocks.1.0.bn1."},
    {"features.2.block.1.0.", "blocks.1.0.conv_dw."},
    {"features.2.block.1.1.", "blocks.1.0.bn2."},
    {"features.2.block.2.0.", "blocks.1.0.conv_pwl."},
    {"features.2.block.2.1.", "blocks.1.0.bn3."},
    {"classifier.0.", "conv_head."},
    {"classifier.3.", "classifier."},
};
static const renaming next_names[] = {
    {"features.0.0.", "stem.0."},
    {"features.0.1.", "stem.1."},
    {"features.1.0.", "stages.0.blocks.0."},
    {"features.2.", "stages.1.downsample."},
    {"features.3.", "stages.1.blocks."},
    {"classifier.0.", "head.norm."},
    {"classifier.2.", "head.fc."},
};
static const renaming block_names[] = {
    {"layer_scale", "gamma"}, {"block.0.", "conv_dw."}, {"block.2.", "norm."},
    {"block.3.", "mlp.fc1."}, {"block.5.", "mlp.fc2."},
};

static void rename_first(char name[128], const renaming *r, size_t count) {
    char with[128];
    for (size_t i = 0; i < count; i++) {
        char *at = strstr(name, r[i].ours);
        if (at == NULL) continue;
        snprintf(with, sizeof with, "%.*s%s%s", (int)(at - name), name, r[i].timms, at + strlen(r[i].ours));
        strcpy(name, with);
        return;
    }
}

static const char *file(void) {
    return in_folder("weights.safetensors");
}

/* m's weights as timm has them, one of them under another name if `from` is not NULL: the shapes of a convolution and
 * of gamma are timm's, and the order is another. */
static void write_as_timm(fr_module *m, const renaming *r, size_t count, const char *from, const char *to) {
    static char all[200][128];
    fri_safetensors_entry list[200];
    fri_safetensors *f = NULL;
    size_t n = 0;
    OK(fr_weights_save(m, in_folder("ours.safetensors"), NULL));
    OK(fri_safetensors_open(in_folder("ours.safetensors"), &f));
    cr_assert_lt(f->n_entries, COUNT(list));
    for (size_t i = f->n_entries; i-- > 0; n++) {
        list[n] = f->entries[i];
        snprintf(all[n], sizeof all[n], "%s", f->entries[i].name);
        rename_first(all[n], r, count);
        rename_first(all[n], block_names, r == next_names ? COUNT(block_names) : 0);
        if (from != NULL && strcmp(all[n], from) == 0) strcpy(all[n], to);
        if (strcmp(all[n], "conv_head.weight") == 0) list[n].shape = FRI_SHAPE(4, 4, 1, 1);
        if (strstr(all[n], "gamma") != NULL) list[n].shape = FRI_SHAPE(4);
        list[n].name = all[n];
    }
    OK(fri_safetensors_write(file(), list, n, NULL, 0, NULL, NULL));
    fri_safetensors_close(&f);
}

Test(timm, names_are_paired_in_the_order_of_running) {
    for (int k = 0; k < 2; k++) {
        size_t n = 0;
        fr_module *a = k ? next(1) : mobile(1, 1e-5, 3), *b = k ? next(2) : mobile(2, 1e-5, 3);
        unsigned char *want = module_bytes(a, &n);
        cr_assert_not(module_equals(b, want, n));
        write_as_timm(a, k ? next_names : mobile_names, k ? COUNT(next_names) : COUNT(mobile_names), NULL, NULL);
        OK(fr_weights_load(b, file(), NULL));
        cr_expect(module_equals(b, want, n), "network %d", k);
        free(want);
        fr_module_release(&a);
        fr_module_release(&b);
    }
}

/* 3 -> 5 classes: the head stays, and all else is the file's. */
Test(timm, a_new_head_stays_fresh) {
    size_t n[2];
    fr_module *a = mobile(1, 1e-5, 3), *b = mobile(2, 1e-5, 5);
    unsigned char *head = module_bytes(fr_module_find(b, "classifier.3"), &n[0]);
    unsigned char *features = module_bytes(fr_module_find(a, "features"), &n[1]);
    write_as_timm(a, mobile_names, COUNT(mobile_names), NULL, NULL);
    cr_expect_eq(fr_weights_load(b, file(), NULL), FR_ESHAPE);
    EXPECT_SENTENCE("classifier.3.weight is [3, 4] in the file but [5, 4] in the module");
    cr_expect_not(module_equals(fr_module_find(b, "features"), features, n[1]));
    OK(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "classifier.3")));
    cr_expect(module_equals(fr_module_find(b, "features"), features, n[1]));
    cr_expect(module_equals(fr_module_find(b, "classifier.3"), head, n[0]));
    free(head);
    free(features);
    fr_module_release(&a);
    fr_module_release(&b);
}

Test(timm, other_networks_are_refused) {
    static const struct {
        const char *from, *to, *sentence;
    } rows[] = {
        {"blocks.1.0.bn3.bias", "blocks.1.0.bn3.tail", "'blocks.1.0.bn3.tail' is of no network here"},
        {"blocks.1.0.bn3.bias", "blocks.1.0.bn3.1234", "'blocks.1.0.bn3.1234' is of no network here"},
        {"conv_head.bias", "conv_head.running_mean", "'conv_head.running_mean'; the module's is 'classifier.0.bias'"},
    };
    size_t n = 0;
    fr_module *a = mobile(1, 1e-5, 3), *b = mobile(2, 1e-5, 3), *other = mobile(3, 1e-3, 3), *far = next(4);
    unsigned char *was = module_bytes(b, &n);
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_as_timm(a, mobile_names, COUNT(mobile_names), rows[i].from, rows[i].to);
        cr_expect_eq(fr_weights_load(b, file(), NULL), FR_EINVAL, "row %zu", i);
        EXPECT_SENTENCE(rows[i].sentence);
        EXPECT_SENTENCE("weights.safetensors");
    }
    write_as_timm(a, mobile_names, COUNT(mobile_names), NULL, NULL);
    cr_expect_eq(fr_weights_load(other, file(), NULL), FR_EINVAL);
    EXPECT_SENTENCE("whose batch norms have eps 1e-05; this network's have 0.001");
    cr_expect_eq(fr_weights_load(far, file(), NULL), FR_EINVAL);
    EXPECT_SENTENCE("its names are timm's, and it has 44 tensors; the module has 120");
    cr_expect(module_equals(b, was, n));
    free(was);
    fr_module_release(&a);
    fr_module_release(&b);
    fr_module_release(&other);
    fr_module_release(&far);
}
