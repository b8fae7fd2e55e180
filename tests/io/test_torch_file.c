/* test_torch_file.c - files of torch.save have PyTorch's values, or are refused with a sentence; damaged files do
 * no harm. The files are the fuzzer's (tests/fuzz/make_seeds.py). */
#include "io/support.h"

#include "base/half.h"
#include "fuzz/zip_sums.h"
#include "io/safetensors.h"

#include <frugal/io.h>
#include <frugal/net.h>

#include <stdlib.h>
#include <string.h>

TestSuite(torch_file, .init = make_folder, .fini = remove_folder);

static const char *seed(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/tests/fuzz/seeds/torch/%s", getenv("FRUGAL_SOURCE_ROOT"), name);
    return path;
}

static const fri_safetensors_entry *entry(const fri_safetensors *f, const char *name, fr_dtype dtype, int rank) {
    const fri_safetensors_entry *e = fri_safetensors_find(f, name);
    cr_assert(e != NULL && e->dtype == dtype && e->shape.rank == rank, "%s", name);
    return e;
}

Test(torch_file, tensors_have_pytorchs_types_and_values) {
    fri_safetensors *f = NULL;
    float part[6];
    uint16_t half[2];
    int64_t count = 0;
    OK(fri_safetensors_open(seed("types"), &f));
    cr_expect_eq(f->n_entries, 5);
    const fri_safetensors_entry *e = entry(f, "part", FR_F32, 2);
    cr_expect_eq(e->shape.dim[1], 3);
    memcpy(part, e->data, sizeof part);
    for (int i = 0; i < 6; i++) cr_expect_eq(part[i], 4 + i);
    memcpy(half, entry(f, "half", FR_F16, 1)->data, sizeof half);
    cr_expect_eq(half[0], 0x3e00);
    cr_expect_eq(half[1], 0xc000);
    memcpy(&count, entry(f, "count", FR_I64, 0)->data, sizeof count);
    cr_expect_eq(count, 7);
    cr_expect_eq(entry(f, "none", FR_F32, 2)->bytes, 0);
    cr_expect_eq(((const char *)entry(f, "flag", FR_BOOL, 1)->data)[0], 1);
    fri_safetensors_close(&f);
}

Test(torch_file, a_state_dict_fills_a_module) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 1});
    x = fr_net_batchnorm2d(n, NULL, fr_net_conv2d(n, NULL, x, 2, 3, NULL, FR_BIAS), NULL);
    OK(fr_net_end(&n, &x, 1, &m));
    OK(fr_weights_load(m, seed("module"), NULL));
    const float *w = fr_tensor_data(fr_module_tensor(fr_module_find(m, "0"), "weight"));
    for (int i = 0; i < 18; i++) cr_expect_eq(w[i], i); /* one channel: both layouts are the same */
    const float *variance = fr_tensor_data(fr_module_tensor(fr_module_find(m, "1"), "running_var"));
    cr_expect_eq(variance[1], 1);
    fr_module_release(&m);
}

/* Parameters, with and without flags, buffers and plain tensors; and files with bytes after the archive. */
Test(torch_file, state_dicts_of_all_kinds_and_protocols_have_their_values) {
    static const char *const kinds[] = {"ordered2", "ordered3", "ordered4", "ordered5", "default2",
                                        "default3", "default4", "default5", "no_sums"};
    static const char *const modules[] = {"module2", "module3", "module4", "module5", "trailing", "comment"};
    static const struct {
        const char *name;
        float first;
        size_t n;
    } tensors[] = {{"w", 0, 6}, {"frozen", 6, 2}, {"buffer", 8, 4}, {"plain", 0, 2}};
    fri_safetensors *f = NULL, *whole = NULL;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        OK(fri_safetensors_open(seed(kinds[i]), &f));
        cr_expect_eq(f->n_entries, COUNT(tensors), "%s", kinds[i]);
        for (size_t k = 0; k < COUNT(tensors); k++) {
            const fri_safetensors_entry *e = entry(f, tensors[k].name, FR_F32, k == 0 ? 2 : 1);
            cr_assert_eq(e->bytes, tensors[k].n * sizeof(float), "%s %s", kinds[i], e->name);
            for (size_t j = 0; j < tensors[k].n; j++) {
                float v = 0;
                memcpy(&v, (const char *)e->data + j * sizeof v, sizeof v);
                cr_expect_eq(v, tensors[k].first + (float)j, "%s: %s[%zu] is %g", kinds[i], e->name, j, v);
            }
        }
    }
    OK(fri_safetensors_open(seed("module"), &whole));
    for (size_t i = 0; i < COUNT(modules); i++) {
        OK(fri_safetensors_open(seed(modules[i]), &f));
        cr_expect_eq(f->n_entries, whole->n_entries, "%s", modules[i]);
        for (size_t k = 0; k < whole->n_entries; k++) {
            const fri_safetensors_entry *e = &whole->entries[k], *x = entry(f, e->name, e->dtype, e->shape.rank);
            cr_expect(x->bytes == e->bytes && memcmp(x->data, e->data, e->bytes) == 0, "%s: %s", modules[i], e->name);
        }
    }
    fri_safetensors_close(&whole);
    fri_safetensors_close(&f);
}

#define PLAIN  "it is not a plain state dict of tensors: "
#define PYTHON "; in Python, safetensors.torch.save_file({k: v.contiguous() for k, v in STATE_DICT.items()}, NEW)"
Test(torch_file, other_files_are_refused_with_the_item_and_the_line_of_python) {
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"strided", PLAIN "turned is a tensor that is not contiguous" PYTHON},
        {"negated", PLAIN "w is a negated view (take v.resolve_neg())" PYTHON},
        {"attribute", PLAIN "w is a parameter with attributes" PYTHON},
        {"checkpoint", PLAIN "epoch is a number; the tensors are below state_dict; in Python, "
                             "safetensors.torch.save_file({k: v.contiguous() for k, v in "
                             "torch.load(FILE)['state_dict'].items()}, NEW)"},
        {"nested", PLAIN "model is a dict; the tensors are below model; in Python"},
        {"values", PLAIN "0 is None" PYTHON},
        {"list", PLAIN "its pickle holds a list" PYTHON},
        {"complex", PLAIN "w is an object of torch.ComplexFloatStorage" PYTHON},
        {"class", PLAIN "its pickle holds an object of torch.nn.modules.linear.Linear" PYTHON},
        {"code", PLAIN "a is an object of posix.system" PYTHON},
        {"code4", PLAIN "b is an object of posix.system" PYTHON},
        {"script", "it is a TorchScript archive, as torch.jit.save writes; in Python, safetensors.torch.save_file({k: "
                   "v.contiguous() for k, v in torch.jit.load(FILE).state_dict().items()}, NEW)"},
    };
    fri_safetensors *f = NULL;
    for (size_t i = 0; i < COUNT(cases); i++) {
        cr_expect_eq(fri_safetensors_open(seed(cases[i].name), &f), FR_EUNSUPPORTED, "%s", cases[i].name);
        EXPECT_SENTENCE(cases[i].says);
    }
}

/* Changes `from`, the first one or in the zip's directory, into `to` of equal length, and reads the file. Checksums:
 * made right. */
static fr_status read_changed(const char *name, const char *from, const char *to, size_t bytes, bool checksums) {
    size_t n = 0, at = 0;
    fri_safetensors *f = NULL;
    unsigned char *file = read_bytes(seed(name), &n);
    if (strncmp(from, "data/", 5) == 0) at = zip_number(file + n - 6, 4);
    while (at + bytes <= n && memcmp(file + at, from, bytes) != 0) at++;
    cr_assert(at + bytes <= n, "%s has no '%s'", name, from);
    memcpy(file + at, to, bytes);
    if (checksums) zip_sums(file, n);
    const fr_status s = fri_safetensors_open_memory(name, file, n, false, &f);
    fri_safetensors_close(&f);
    free(file);
    return s;
}

Test(torch_file, arguments_and_damage_are_named) {
    static const struct {
        const char *name, *from, *to;
        size_t bytes;
        bool checksums;
        fr_status status;
        const char *says;
    } cases[] = {
        {"types", "little", "LITTLE", 6, true, FR_EFORMAT, "its byteorder is 'LITTLE', neither little nor big"},
        {"types", "little", "little", 6, false, FR_OK, NULL},
        {"types", "\0\0\x80\x40", "\0\0\x80\x41", 4, false, FR_EFORMAT, "its record data/0 has the checksum"},
        {"types", "\0\0\x80\x40", "\0\0\x80\x41", 4, true, FR_OK, NULL},
        {"ordered2", "\x88", "N", 1, true, FR_EUNSUPPORTED, "calls _rebuild_parameter with arguments"},
        {"module", "\x89", "N", 1, true, FR_EUNSUPPORTED, "calls _rebuild_tensor_v2 with arguments"},
        {"ordered2", "rebuild_parameter\n", "rebuild_Parameter\n", 18, true, FR_EUNSUPPORTED,
         "w is an object of torch._utils._rebuild_Parameter"},
        {"default4", "list", "Code", 4, true, FR_OK, NULL}, /* the class of missing values */
        {"module4", "_metadata", "_Metadata", 9, true, FR_EUNSUPPORTED, "its pickle holds a dict with attributes"},
        {"module4", "_metadata", "metadata_", 9, true, FR_EUNSUPPORTED, "its pickle holds a dict with attributes"},
        {"module4", "\x80\4", "\x80\6", 2, true, FR_EFORMAT, "its pickle is damaged"},
        {"ordered4", "Tensor", "Target", 6, true, FR_EUNSUPPORTED, "buffer is an object of torch.Target"},
        {"ordered4", "collections", "Collections", 11, true, FR_EUNSUPPORTED, "calls _rebuild_tensor_v2"},
        {"module", "PK\1\2", "PK\1\3", 4, true, FR_EFORMAT, "entry 0 of the zip's directory is damaged"},
        {"types", "data/1", "data/0", 6, true, FR_EFORMAT, "records of its zip archive overlap or have one name"},
        {"types", "data/1", "data/9", 6, true, FR_EFORMAT, "its pickle is damaged"},
        {"module", "PK\5\6", "PK\5\7", 4, true, FR_EFORMAT, "a zip archive without its end"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const fr_status s = read_changed(cases[i].name, cases[i].from, cases[i].to, cases[i].bytes, cases[i].checksums);
        cr_expect_eq(s, cases[i].status, "case %zu: %s", i, fr_last_error());
        if (s < 0 && cases[i].says != NULL) EXPECT_SENTENCE(cases[i].says);
    }
}

/* Changes every byte except padding once, with the old checksums and with right ones, and cuts the file at every
 * place. */
Test(torch_file, damaged_files_are_one_sentence) {
    static const char *const names[] = {"module", "ordered5"};
    for (size_t file = 0; file < COUNT(names); file++) {
        size_t n = 0;
        int refused[3] = {0};
        unsigned char *whole = read_bytes(seed(names[file]), &n), *copy = malloc(n);
        for (size_t i = 0; i < 3 * n; i++) {
            fri_safetensors *f = NULL;
            const size_t how = i / n, at = i % n;
            memcpy(copy, whole, n);
            if (how < 2) copy[at] ^= (unsigned char)(1 + at % 255);
            if (how == 1) zip_sums(copy, n);
            if (how < 2 && whole[at] == 'Z') continue; /* padding */
            const fr_status s = fri_safetensors_open_memory("bad", copy, how < 2 ? n : at, false, &f);
            cr_expect((s == FR_OK) == (f != NULL));
            refused[how] += s < 0;
            for (size_t k = 0; s == FR_OK && k < f->n_entries; k++) {
                const unsigned char *data = f->entries[k].data;
                cr_expect(data >= copy && f->entries[k].bytes <= (size_t)(copy + n - data));
            }
            fri_safetensors_close(&f);
        }
        cr_expect_gt(refused[0], 800, "%s: %d", names[file], refused[0]);
        cr_expect_gt(refused[1], 400, "%s: %d", names[file], refused[1]);
        cr_expect_eq(refused[2], n, "%s: %d of %zu cut files", names[file], refused[2], n);
        free(whole);
        free(copy);
    }
}
