/* test_weights.c - weights are written and read back; layouts and types equal PyTorch's; mismatches are listed and
 * change nothing. test_torchvision.py compares with PyTorch. */
#include "net/layers.h"
#include "io/support.h"

#include "base/half.h"
#include "io/safetensors.h"
#include "io/session_files.h"

#include <frugal/io.h>
#include <frugal/net.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(weights, .init = make_folder, .fini = remove_folder);

static const char *file(void) {
    return in_folder("weights.safetensors");
}

static const fri_safetensors_entry *entry(const fri_safetensors *f, const char *name) {
    const fri_safetensors_entry *e = fri_safetensors_find(f, name);
    cr_assert(e != NULL, "no tensor '%s' in the file", name);
    return e;
}

static fr_tensor *tensor(fr_module *m, int child, const char *name) {
    return fr_module_tensor(fr_module_child(m, child), name);
}

Test(weights, come_back_bit_for_bit_in_both_layouts) {
    static const fr_weights_layout layouts[] = {FR_WEIGHTS_AUTO, FR_WEIGHTS_TORCH, FR_WEIGHTS_FRUGAL};
    for (size_t i = 0; i < COUNT(layouts); i++) {
        size_t n = 0;
        fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU);
        OK(fr_tensor_fill(tensor(a, 1, "num_batches_tracked"), 12345));
        unsigned char *want = module_bytes(a, &n);
        cr_assert_not(module_equals(b, want, n));
        OK(fr_weights_save(a, file(), FR_WEIGHTS_OPTS(.layout = layouts[i])));
        OK(fr_weights_load(b, file(), NULL));
        cr_expect(module_equals(b, want, n), "layout %d", (int)layouts[i]);
        cr_expect_eq(files_in(folder), 1);
        free(want);
        fr_module_release(&a);
        fr_module_release(&b);
    }
}

/* small_net with `classes` outputs. */
static fr_module *net_of(uint64_t seed, int64_t classes) {
    fr_module *m = small_net(seed, FR_CPU), *head = NULL;
    OK(fri_nn_linear(24, classes, true, FR_CPU, &head));
    OK(fr_module_replace(m, "6", &head));
    return m;
}

/* A named head of another size stays fresh; all other tensors come from the file. */
Test(weights, a_skipped_layer_stays_as_it_is) {
    static const char *const skips[] = {"6", "6.", "6.weight"};
    for (size_t i = 0; i < COUNT(skips); i++) {
        size_t n[3], whole;
        fr_module *a = net_of(1, 5), *b = net_of(2, i < 2 ? 7 : 5);
        unsigned char *conv = module_bytes(fr_module_child(a, 0), &n[0]);
        unsigned char *norm = module_bytes(fr_module_child(a, 1), &n[1]);
        unsigned char *head = module_bytes(fr_module_child(b, 6), &n[2]), *all = module_bytes(b, &whole);
        OK(fr_weights_save(a, file(), NULL));
        if (i < 2) {
            cr_expect_eq(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "")), FR_ESHAPE);
            EXPECT_SENTENCE("6.weight is [5, 24] in the file but [7, 24] in the module");
            cr_expect_eq(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "6.weight")), FR_ESHAPE);
            EXPECT_SENTENCE("6.bias is [5]");
            cr_expect(module_equals(b, all, whole));
        }
        OK(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = skips[i])));
        cr_expect(module_equals(fr_module_child(b, 0), conv, n[0]), "%s: the convolution", skips[i]);
        cr_expect(module_equals(fr_module_child(b, 1), norm, n[1]), "%s: the batch norm", skips[i]);
        cr_expect_eq(module_equals(fr_module_child(b, 6), head, n[2]), i < 2, "%s: the head", skips[i]);
        fr_tensor *w = tensor(b, 6, "weight");
        cr_expect_eq(memcmp(fr_tensor_data(w), head, fr_tensor_nbytes(w)), 0, "%s: its weight", skips[i]);
        free(conv);
        free(norm);
        free(head);
        free(all);
        fr_module_release(&a);
        fr_module_release(&b);
    }
}

/* Row i of a head becomes row row[i] of the file, bit for bit, in both layouts (layer 6 follows a Flatten); -1: stays.
 * A file with fewer rows, or with a batch norm as layer 6, changes nothing. */
Test(weights, rows_of_a_head_come_alone) {
    enum { OLD = 5, NEW = 7, IN = 24 };
    static const int64_t row[NEW] = {3, -1, 0, 4, -1, -1, 1};
    static fri_head_rows rows;
    size_t n;
    for (int layout = FR_WEIGHTS_TORCH; layout <= FR_WEIGHTS_FRUGAL; layout++) {
        fr_module *a = net_of(1, OLD), *b = net_of(2, NEW), *other = NULL;
        fr_module *head = fr_module_child(b, 6);
        unsigned char *was = module_bytes(head, &n), *body = module_bytes(fr_module_child(a, 0), &n);
        OK(fr_weights_save(a, file(), FR_WEIGHTS_OPTS(.layout = (fr_weights_layout)layout)));
        memcpy(rows.row, row, sizeof row);
        rows.classes = OLD - 1;
        rows.kept = false;
        OK(fri_weights_load_head(b, file(), "6", &rows));
        cr_expect(!rows.kept && module_equals(head, was, (NEW * IN + NEW) * sizeof(float)));
        cr_expect(module_equals(fr_module_child(b, 0), body, n), "the body is the file's");
        rows.classes = OLD;
        OK(fri_weights_load_head(b, file(), "6", &rows));
        cr_expect(rows.kept);
        const float *from = fr_tensor_data(tensor(a, 6, "weight")), *bias = fr_tensor_data(tensor(a, 6, "bias"));
        const float *to = fr_tensor_data(tensor(b, 6, "weight")), *before = (const float *)(const void *)was;
        for (int i = 0; i < NEW; i++) {
            const float *want = row[i] < 0 ? before + i * IN : from + row[i] * IN;
            cr_expect_eq(memcmp(to + i * IN, want, IN * sizeof *to), 0, "layout %d, row %d", layout, i);
            cr_expect_eq(((float *)fr_tensor_data(tensor(b, 6, "bias")))[i],
                         row[i] < 0 ? before[NEW * IN + i] : bias[row[i]], "layout %d, bias %d", layout, i);
        }
        OK(fri_nn_batchnorm2d(IN, NULL, FR_CPU, &other));
        OK(fr_module_replace(a, "6", &other));
        OK(fr_weights_save(a, file(), NULL));
        rows.kept = false;
        OK(fri_weights_load_head(b, file(), "6", &rows));
        cr_expect(!rows.kept, "a norm has no rows");
        free(was);
        free(body);
        fr_module_release(&a);
        fr_module_release(&b);
    }
}

/* Names below a skipped prefix are optional; all others must match. */
Test(weights, names_below_a_skipped_prefix_may_differ) {
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU), *other = NULL;
    OK(fri_nn_batchnorm2d(24, NULL, FR_CPU, &other));
    OK(fr_module_replace(a, "6", &other));
    OK(fr_weights_save(a, file(), NULL));
    cr_expect_eq(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "0")), FR_EINVAL);
    EXPECT_SENTENCE("unexpected 6.num_batches_tracked, 6.running_mean");
    OK(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "6")));
    OK(fri_nn_identity(&other));
    OK(fr_module_replace(a, "6", &other));
    OK(fr_weights_save(a, file(), NULL));
    cr_expect_eq(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "1")), FR_EINVAL);
    EXPECT_SENTENCE("missing 6.weight, 6.bias");
    OK(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.skip = "6")));
    fr_module_release(&a);
    fr_module_release(&b);
}

Test(weights, torch_layout_is_pytorchs) {
    fr_module *m = small_net(1, FR_CPU);
    fri_safetensors *f = NULL;
    OK(fr_weights_save(m, file(), NULL));
    OK(fri_safetensors_open(file(), &f));
    const fri_safetensors_entry *conv = entry(f, "0.weight"), *linear = entry(f, "6.weight");
    const fr_shape krsc = FRI_SHAPE(4, 3, 3, 3);
    cr_expect(fri_shape_equal(&conv->shape, &krsc));
    const float *w = fr_tensor_data(tensor(m, 0, "weight")), *v = fr_tensor_data(tensor(m, 6, "weight"));
    const float *cw = conv->data, *lw = linear->data;
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 9; p++) cr_assert_eq(cw[(k * 3 + c) * 9 + p], w[(k * 9 + p) * 3 + c]);
    for (int o = 0; o < 5; o++)
        for (int c = 0; c < 4; c++)
            for (int p = 0; p < 6; p++) cr_assert_eq(lw[o * 24 + c * 6 + p], v[o * 24 + p * 4 + c]);
    cr_expect_eq(entry(f, "1.num_batches_tracked")->dtype, FR_I64);
    cr_expect_eq(entry(f, "1.num_batches_tracked")->shape.rank, 0);
    cr_expect_str_eq(fri_safetensors_metadata(f, "format"), "pt");
    cr_expect_str_eq(fri_safetensors_metadata(f, "frugal.layout"), "torch");
    fri_safetensors_close(&f);
    fr_module_release(&m);
}

/* Copies the file's tensors, floats as `to` and multiplied by `factor`, without the tensor `without`. */
static void rewrite(const char *to_path, fr_dtype to, const char *without) {
    fri_safetensors *f = NULL;
    OK(fri_safetensors_open(file(), &f));
    fri_safetensors_entry *list = calloc(f->n_entries, sizeof *list);
    void **owned = calloc(f->n_entries, sizeof *owned);
    size_t n = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        if (without != NULL && strcmp(e->name, without) == 0) continue;
        list[n] = *e;
        if (e->dtype == FR_F32) {
            int64_t count = fri_shape_numel(&e->shape);
            const float *from = e->data;
            owned[n] = malloc((size_t)count * 8);
            for (int64_t k = 0; k < count; k++) {
                if (to == FR_F64)
                    ((double *)owned[n])[k] = from[k];
                else if (to == FR_F32)
                    ((float *)owned[n])[k] = from[k];
                else
                    ((uint16_t *)owned[n])[k] = to == FR_F16 ? fri_f16_from_f32(from[k]) : fri_bf16_from_f32(from[k]);
            }
            list[n].dtype = to;
            list[n].data = owned[n];
        }
        n++;
    }
    OK(fri_safetensors_write(to_path, list, n, NULL, 0, NULL, NULL));
    for (size_t i = 0; i < n; i++) free(owned[i]);
    free(list);
    free(owned);
    fri_safetensors_close(&f);
}

Test(weights, every_float_type_is_converted_on_load) {
    static const fr_dtype types[] = {FR_F32, FR_F64, FR_F16, FR_BF16};
    fr_module *a = small_net(1, FR_CPU);
    OK(fr_weights_save(a, file(), NULL));
    for (size_t i = 0; i < COUNT(types); i++) {
        fr_module *b = small_net(2, FR_CPU);
        rewrite(in_folder("converted"), types[i], NULL);
        OK(fr_weights_load(b, in_folder("converted"), NULL)); /* no layout said: PyTorch's */
        const float *x = fr_tensor_data(tensor(a, 6, "weight")), *y = fr_tensor_data(tensor(b, 6, "weight"));
        for (int k = 0; k < 120; k++) {
            float want = types[i] == FR_F16    ? fri_f32_from_f16(fri_f16_from_f32(x[k]))
                         : types[i] == FR_BF16 ? fri_f32_from_bf16(fri_bf16_from_f32(x[k]))
                                               : x[k];
            cr_assert_eq(y[k], want, "%s, element %d", fr_dtype_name(types[i]), k);
        }
        /* Half modules get the bits of a cast. */
        OK(fr_module_to_dtype(b, FR_F16));
        OK(fr_weights_load(b, in_folder("converted"), NULL));
        const uint16_t *h = fr_tensor_data(tensor(b, 6, "weight"));
        for (int k = 0; k < 120 && types[i] != FR_BF16; k++) cr_assert_eq(h[k], fri_f16_from_f32(x[k]));
        fr_module_release(&b);
    }
    fr_module_release(&a);
}

/* A network with names and shapes different from small_net's. */
static fr_module *other_net(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value image = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 5, 5, 3}),
             row = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 7});
    const fr_value out[] = {fr_net_conv2d(n, "0", image, 4, 5, NULL, FR_BIAS),
                            fr_net_linear(n, "extra", row, 5, FR_BIAS)};
    OK(fr_net_end(&n, out, 2, &m));
    return m;
}

Test(weights, misfits_are_listed_in_one_sentence_and_change_nothing) {
    size_t n = 0;
    fr_module *a = other_net(), *b = small_net(2, FR_CPU);
    unsigned char *was = module_bytes(b, &n);
    OK(fr_weights_save(a, file(), NULL));
    cr_expect_eq(fr_weights_load(b, file(), NULL), FR_EINVAL);
    EXPECT_SENTENCE("missing 1.weight, 1.bias, 1.running_mean, 1.running_var, 6.weight, 6.bias;");
    EXPECT_SENTENCE("unexpected extra.");
    EXPECT_SENTENCE("0.weight is [4, 3, 5, 5] in the file but [4, 3, 3, 3] in the module");
    EXPECT_SENTENCE(file());
    cr_expect(module_equals(b, was, n));
    cr_expect_eq(fr_weights_load(b, file(), FR_WEIGHTS_OPTS(.strict = false)), FR_ESHAPE);
    cr_expect(strstr(fr_last_error(), "missing") == NULL, "%s", fr_last_error());
    cr_expect(module_equals(b, was, n));
    free(was);
    fr_module_release(&a);
    fr_module_release(&b);
}

/* A body and a head under these names; head NULL: none. */
static fr_module *named_net(const char *body, const char *head) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_linear(n, body, fr_net_input(n, FR_F32, 2, (int64_t[]){1, 3}), 4, FR_BIAS);
    if (head != NULL) x = fr_net_linear(n, head, x, 2, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    return m;
}

Test(weights, files_with_other_names_get_advice) {
    static const struct {
        const char *body, *head, *says;
    } cases[] = {
        {"module.body", "module.fc", "with the prefix 'module.': in Python, {k.removeprefix('module.'): v for k"},
        {"body", "fc.1", "; only fc is missing: rename the file's tensors, or load with .strict = false"},
        {"body", "head.fc", "the missing names with the prefix 'head.': in Python"},
        {"body", "classifier", "; only fc is missing: rename the file's tensors"},
        {"body", NULL, "; only fc is missing"},
        {"conv", "classifier", "; no name agrees, so the file is of another network"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fr_module *a = named_net(cases[i].body, cases[i].head), *b = named_net("body", "fc");
        OK(fr_weights_save(a, file(), NULL));
        cr_expect_eq(fr_weights_load(b, file(), NULL), FR_EINVAL);
        EXPECT_SENTENCE(cases[i].says);
        fr_module_release(&a);
        fr_module_release(&b);
    }
    fr_module *a = named_net("body", "fc");
    static const char *const endings[] = {"a.pth", "a.pt", "pytorch_model.bin"};
    for (size_t i = 0; i < COUNT(endings); i++) {
        cr_expect_eq(fr_weights_save(a, in_folder(endings[i]), NULL), FR_EINVAL);
        EXPECT_SENTENCE("is the ending of torch.save's files, which PyTorch alone writes; name it .safetensors");
        cr_expect_neq(access(in_folder(endings[i]), F_OK), 0);
    }
    fr_module_release(&a);
}

Test(weights, long_lists_are_cut_and_counted) {
    fr_module *a = small_net(1, FR_CPU), *many = NULL;
    OK(fr_weights_save(a, file(), NULL));
    fr_net *net = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(net, FR_F32, 2, (int64_t[]){1, 2});
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "part%d", i);
        x = fr_net_linear(net, name, x, 2, FR_BIAS);
    }
    OK(fr_net_end(&net, &x, 1, &many));
    cr_expect_eq(fr_weights_load(many, file(), NULL), FR_EINVAL);
    EXPECT_SENTENCE("part3.bias and 52 more; unexpected ");
    EXPECT_SENTENCE(" and 1 more");
    fr_module_release(&a);
    fr_module_release(&many);
}

Test(weights, a_file_of_older_pytorch_has_no_batch_count) {
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU);
    OK(fr_weights_save(a, file(), NULL));
    rewrite(in_folder("older"), FR_F32, "1.num_batches_tracked");
    OK(fr_weights_load(b, in_folder("older"), NULL));
    rewrite(in_folder("broken"), FR_F32, "1.running_var");
    cr_expect_eq(fr_weights_load(b, in_folder("broken"), NULL), FR_EINVAL);
    EXPECT_SENTENCE("missing 1.running_var");
    OK(fr_weights_load(b, in_folder("broken"), FR_WEIGHTS_OPTS(.strict = false)));
    fr_module_release(&a);
    fr_module_release(&b);
}

/* {k: v.float() for k, v in ...} turns counters, too. */
Test(weights, a_count_of_batches_may_have_any_type) {
    const struct {
        fr_dtype dtype;
        const void *data;
        size_t bytes;
        int64_t count;
    } cells[] = {{FR_F32, &(float){12345}, 4, 12345},     {FR_F16, &(uint16_t){0x6400}, 2, 1024},
                 {FR_BF16, &(uint16_t){0x4480}, 2, 1024}, {FR_F64, &(double){1e15}, 8, 1000000000000000},
                 {FR_F32, &(float){NAN}, 4, 0},           {FR_F32, &(float){INFINITY}, 4, 0},
                 {FR_I32, &(int32_t){70000}, 4, 70000},   {FR_I16, &(int16_t){300}, 2, 300},
                 {FR_U8, &(uint8_t){200}, 1, 200},        {FR_I64, &(int64_t){1ll << 40}, 8, 1ll << 40}};
    fr_module *a = small_net(1, FR_CPU);
    for (size_t i = 0; i < COUNT(cells); i++) {
        fr_module *b = small_net(2, FR_CPU);
        fri_safetensors *f = NULL;
        int64_t count = -1;
        OK(fr_weights_save(a, file(), NULL));
        OK(fri_safetensors_open(file(), &f));
        fri_safetensors_entry *list = calloc(f->n_entries, sizeof *list);
        for (size_t k = 0; k < f->n_entries; k++) {
            list[k] = f->entries[k];
            if (strcmp(list[k].name, "1.num_batches_tracked") != 0) continue;
            list[k].dtype = cells[i].dtype;
            list[k].data = cells[i].data;
        }
        OK(fri_safetensors_write(in_folder("counted"), list, f->n_entries, NULL, 0, NULL, NULL));
        OK(fr_weights_load(b, in_folder("counted"), NULL));
        OK(fr_tensor_to_host(tensor(b, 1, "num_batches_tracked"), &count));
        cr_expect_eq(count, cells[i].count, "cell %zu: %lld", i, (long long)count);
        free(list);
        fri_safetensors_close(&f);
        fr_module_release(&b);
    }
    fr_module_release(&a);
}

/* A module on meta is compared alone. */
Test(weights, a_module_on_meta_reads_no_data) {
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_META), *c = net_of(3, 7);
    OK(fr_weights_save(a, file(), NULL));
    OK(fr_weights_load(b, file(), NULL));
    OK(fr_weights_save(c, file(), NULL));
    cr_expect_lt(fr_weights_load(b, file(), NULL), 0);
    EXPECT_SENTENCE("does not fit the module");
    fr_module_release(&a);
    fr_module_release(&b);
    fr_module_release(&c);
}

Test(weights, integers_are_not_converted) {
    fr_module *m = NULL;
    fr_tensor *count = NULL;
    const float one = 1;
    size_t n = 0;
    OK(fri_nn_relu(&m));
    OK(fr_tensor_full(1, (int64_t[]){1}, 3, FR_I64, FR_CPU, &count));
    OK(fr_module_add_buffer(m, "count", &count));
    unsigned char *was = module_bytes(m, &n);
    fri_safetensors_entry e = {.name = "count", .dtype = FR_F32, .shape = {1, {1}}, .data = &one};
    OK(fri_safetensors_write(file(), &e, 1, NULL, 0, NULL, NULL));
    cr_expect_eq(fr_weights_load(m, file(), NULL), FR_EDTYPE);
    EXPECT_SENTENCE("count is f32 in the file but i64 in the module");
    cr_expect(module_equals(m, was, n));
    free(was);
    fr_module_release(&m);
}

Test(weights, another_layout_than_the_file_says_is_refused) {
    fr_module *m = small_net(1, FR_CPU);
    OK(fr_weights_save(m, file(), NULL));
    cr_expect_eq(fr_weights_load(m, file(), FR_WEIGHTS_OPTS(.layout = FR_WEIGHTS_FRUGAL)), FR_EINVAL);
    EXPECT_SENTENCE("its layout is torch, but the caller asks for frugal");
    fr_module_release(&m);
}

/* A module with a custom forward: inputs of its parts are unknown. */
static fr_status box_forward(fr_module *m, fr_tensor **x) {
    fr_status s = FR_OK;
    for (int i = 0; fr_module_child(m, i) != NULL && s == FR_OK; i++) s = fr_module_run_child(m, i, x);
    return s;
}

static fr_module *box(void) {
    static const fr_module_class box_class = {.name = "Box", .forward = box_forward};
    fr_module *m = NULL, *part = NULL;
    OK(fr_module_create(&box_class, 0, &m));
    OK(fri_nn_conv2d(3, 2, 3, NULL, true, FR_CPU, &part));
    OK(fr_module_add_child(m, "conv", &part));
    OK(fri_nn_flatten(1, &part));
    OK(fr_module_add_child(m, "flatten", &part));
    OK(fri_nn_linear(12, 5, false, FR_CPU, &part));
    OK(fr_module_add_child(m, "3", &part));
    return m;
}

Test(weights, a_flatten_of_unknown_size_must_be_told) {
    size_t n = 0;
    fr_module *m = box();
    fri_safetensors *f = NULL;
    cr_expect_eq(fr_weights_save(m, file(), NULL), FR_EINVAL);
    EXPECT_SENTENCE("the 12 features of '3.weight' come from a Flatten");
    cr_expect_eq(fr_weights_save(m, file(), FR_WEIGHTS_OPTS(.flatten_height = 5, .flatten_width = 7)), FR_EINVAL);
    EXPECT_SENTENCE("are not made of 35 pixels (5 x 7 given)");
    cr_expect_eq(files_in(folder), 0);
    OK(fr_weights_save(m, file(), FR_WEIGHTS_OPTS(.flatten_height = 2, .flatten_width = 3)));
    OK(fri_safetensors_open(file(), &f));
    const float *v = fr_tensor_data(tensor(m, 2, "weight")), *w = entry(f, "3.weight")->data;
    for (int o = 0; o < 5; o++)
        for (int c = 0; c < 2; c++)
            for (int p = 0; p < 6; p++) cr_assert_eq(w[o * 12 + c * 6 + p], v[o * 12 + p * 2 + c]);
    unsigned char *was = module_bytes(m, &n);
    OK(fr_weights_load(m, file(), FR_WEIGHTS_OPTS(.flatten_height = 2, .flatten_width = 3)));
    cr_expect(module_equals(m, was, n));
    free(was);
    fri_safetensors_close(&f);
    fr_module_release(&m);
}

/* Flatten, LayerNorm, scale, Linear; `shuffled`: with the features in PyTorch's order. */
static fr_module *behind_flatten(bool shuffled, bool gate) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value in = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 2, 3, 4}), x = fr_net_flatten(n, "flatten", in, 1);
    if (shuffled) x = fr_net_channel_shuffle(n, "order", x, 6);
    x = fr_net_layer_scale(n, "scale", fr_net_layer_norm(n, "norm", x, 1e-5), 1);
    if (gate) x = fr_net_mul(n, "mul", x, fr_net_sigmoid(n, "gate", fr_net_linear(n, "fc", x, 24, FR_BIAS)));
    x = fr_net_linear(n, "head", x, 5, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    return m;
}

static fr_status random_values(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx, (void)path, (void)is_parameter;
    return fr_init_uniform(t, -1, 1);
}

/* A norm and a scale after a Flatten have PyTorch's order, C, H, W, in files. */
Test(weights, features_behind_a_flatten_have_pytorchs_order) {
    fr_tensor *x = NULL, *y = NULL, *z = NULL;
    fr_module *a = behind_flatten(false, false), *b = behind_flatten(true, false), *gate = behind_flatten(false, true);
    OK(fr_module_each_tensor(a, random_values, NULL));
    OK(fr_tensor_zeros(4, (int64_t[]){2, 2, 3, 4}, FR_F32, FR_CPU, &x));
    OK(fr_init_uniform(x, -1, 1));
    OK(fr_weights_save(a, file(), NULL));
    OK(fr_weights_load(b, file(), NULL));
    OK(fr_module_forward(a, x, &y));
    OK(fr_module_forward(b, x, &z));
    for (int i = 0; i < 10; i++)
        cr_expect_float_eq(((float *)fr_tensor_data(y))[i], ((float *)fr_tensor_data(z))[i], 1e-5, "%d", i);
    OK(fr_weights_save(b, file(), NULL));
    OK(fr_module_each_tensor(a, random_values, NULL));
    OK(fr_weights_load(a, file(), NULL));
    OK(fr_module_forward(a, x, &z));
    for (int i = 0; i < 10; i++)
        cr_expect_float_eq(((float *)fr_tensor_data(y))[i], ((float *)fr_tensor_data(z))[i], 1e-5, "%d, back", i);
    cr_expect_eq(fr_weights_save(gate, file(), NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("inputs of layer 'mul' have their features in two orders, because one comes from a Flatten; give "
                    "both PyTorch's with fr_net_channel_shuffle(H W) after the Flatten");
    fr_module_release(&gate);
    gate = behind_flatten(true, true);
    OK(fr_weights_save(gate, file(), NULL));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    fr_module_release(&a);
    fr_module_release(&b);
    fr_module_release(&gate);
}

Test(weights, a_layer_has_one_order_of_features) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 2, 3, 4}),
             r = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 24});
    fr_value y = fr_net_linear(n, "fc", fr_net_flatten(n, "flatten", x, 1), 5, FR_BIAS), out[2] = {y};
    fr_net_again(n, "fc", &r, 1, &out[1], 1);
    OK(fr_net_end(&n, out, 2, &m));
    cr_expect_eq(fr_weights_save(m, file(), NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("'fc.weight' is used on flattened images of 6 and of 1 pixels, whose features have two orders");
    fr_module_release(&m);
}

Test(weights, a_cut_file_changes_nothing) {
    size_t n = 0, bytes = 0;
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU);
    OK(fr_weights_save(a, file(), NULL));
    unsigned char *was = module_bytes(b, &n), *whole = read_bytes(file(), &bytes);
    for (size_t cut = 0; cut < bytes; cut += 5) {
        write_bytes(in_folder("cut"), whole, cut);
        cr_assert_eq(fr_weights_load(b, in_folder("cut"), NULL), FR_EFORMAT, "cut to %zu bytes", cut);
    }
    cr_expect(module_equals(b, was, n));
    cr_expect_eq(fr_weights_load(b, in_folder("absent"), NULL), FR_EIO);
    cr_expect_eq(fr_weights_load(b, folder, NULL), FR_EIO);
    free(was);
    free(whole);
    fr_module_release(&a);
    fr_module_release(&b);
}

Test(weights, a_full_disk_and_a_bad_folder_keep_the_older_file) {
    size_t n = 0, now_n = 0;
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU);
    OK(fr_weights_save(a, file(), NULL));
    unsigned char *older = read_bytes(file(), &n);
    for (size_t room = 0; room < n; room += 97) {
        limit_files(room);
        fr_status s = fr_weights_save(b, file(), NULL);
        limit_files(RLIM_INFINITY);
        cr_assert_eq(s, FR_EIO, "%zu bytes of room", room);
        EXPECT_SENTENCE("File too large");
        cr_assert_eq(files_in(folder), 1);
    }
    unsigned char *now = read_bytes(file(), &now_n);
    cr_expect(now_n == n && memcmp(now, older, n) == 0);
    char inside_a_file[1100];
    snprintf(inside_a_file, sizeof inside_a_file, "%s/weights", file());
    cr_expect_eq(fr_weights_save(b, inside_a_file, NULL), FR_EIO);
    EXPECT_SENTENCE("Not a directory");
    free(now);
    free(older);
    fr_module_release(&a);
    fr_module_release(&b);
}

Test(weights, meta_has_nothing_to_save_and_checks_what_it_loads) {
    fr_module *a = small_net(1, FR_CPU), *meta = small_net(1, FR_META), *other = other_net();
    cr_expect_eq(fr_weights_save(meta, file(), NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("'0.weight' is on meta");
    OK(fr_weights_save(a, file(), NULL));
    OK(fr_weights_load(meta, file(), NULL));
    OK(fr_weights_save(other, file(), NULL));
    cr_expect_eq(fr_weights_load(meta, file(), NULL), FR_EINVAL);
    fr_module_release(&a);
    fr_module_release(&meta);
    fr_module_release(&other);
}

Test(weights, bad_arguments_are_refused) {
    fr_module *m = small_net(1, FR_CPU);
    cr_expect_eq(fr_weights_save(NULL, file(), NULL), FR_EINVAL);
    cr_expect_eq(fr_weights_load(m, NULL, NULL), FR_EINVAL);
    cr_expect_eq(fr_weights_save(m, file(), FR_WEIGHTS_OPTS(.layout = (fr_weights_layout)9)), FR_EINVAL);
    cr_expect_eq(fr_weights_save(m, file(), FR_WEIGHTS_OPTS(.flatten_height = 7)), FR_EINVAL);
    EXPECT_SENTENCE("flatten_height 7 and flatten_width 0");
    fr_module_release(&m);
}
