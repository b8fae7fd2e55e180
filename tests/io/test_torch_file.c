/* test_torch_file.c - files of torch.save have PyTorch's values, or are refused with a sentence; damaged files do
 * no harm. The files are the fuzzer's (tests/fuzz/make_seeds.py). */
#include "io/support.h"

#include "base/half.h"
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

Test(torch_file, other_files_are_refused_with_the_line_of_python) {
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"strided", "a tensor in it is not contiguous; in Python, safetensors.torch.save_file({"},
        {"checkpoint", "it is not a plain state dict of tensors: its pickle has an item that is no tensor: "},
        {"code", "it is not a plain state dict of tensors: its pickle has posix"},
    };
    fri_safetensors *f = NULL;
    for (size_t i = 0; i < COUNT(cases); i++) {
        cr_expect_eq(fri_safetensors_open(seed(cases[i].name), &f), FR_EUNSUPPORTED, "%s", cases[i].name);
        EXPECT_SENTENCE(cases[i].says);
    }
}

/* Changes every byte except padding once, and cuts the file at every place. */
Test(torch_file, damaged_files_are_one_sentence) {
    size_t n = 0;
    int refused = 0;
    unsigned char *whole = read_bytes(seed("module"), &n), *copy = malloc(n);
    for (size_t i = 0; i < 2 * n; i++) {
        fri_safetensors *f = NULL;
        memcpy(copy, whole, n);
        if (i < n) copy[i] ^= (unsigned char)(1 + i % 255);
        if (i < n && whole[i] == 'Z') continue; /* padding */
        const fr_status s = fri_safetensors_open_memory("bad", copy, i < n ? n : i - n, false, &f);
        cr_expect((s == FR_OK) == (f != NULL));
        refused += s < 0;
        for (size_t k = 0; s == FR_OK && k < f->n_entries; k++) {
            const unsigned char *at = f->entries[k].data;
            cr_expect(at >= copy && f->entries[k].bytes <= (size_t)(copy + n - at));
        }
        fri_safetensors_close(&f);
    }
    cr_expect_gt(refused, 500);
    free(whole);
    free(copy);
}
