/* test_onnx_nodes.c - ONNX files of a few nodes (make_nodes.py) compute what ONNX Runtime computes, also after
 * saving, or are refused with the case's sentence. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <frugal/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "io/support.h"
#include "support/golden.h"

enum { MOST = 8 };

TestSuite(onnx_nodes, .init = make_folder, .fini = remove_folder);

static fri_safetensors *cases(void) {
    fri_safetensors *file = NULL;
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/addons/onnx/tiny/nodes.safetensors", getenv("FRUGAL_SOURCE_ROOT"));
    must(fri_safetensors_open_as(path, FRI_SAFETENSORS_COPIED, &file));
    must(fri_safetensors_read(file));
    return file;
}

/* "name.what", with number i if i >= 0; NULL: missing. */
static const fri_safetensors_entry *part(fri_safetensors *file, const char *name, const char *what, int i) {
    char full[256];
    if (i < 0)
        snprintf(full, sizeof full, "%s.%s", name, what);
    else
        snprintf(full, sizeof full, "%s.%s%d", name, what, i);
    return fri_safetensors_find(file, full);
}

/* Runs the network on the case's inputs and compares all results. */
static void expect_results(fr_module *m, fri_safetensors *file, const char *name, const char *when) {
    fr_tensor *x[MOST] = {NULL}, *y[MOST] = {NULL};
    int n_in = 0, n_out = 0;
    for (; n_in < MOST && part(file, name, "x", n_in) != NULL; n_in++) {
        const fri_safetensors_entry *e = part(file, name, "x", n_in);
        must(fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, FR_F32, FR_CPU, &x[n_in]));
    }
    while (n_out < MOST && part(file, name, "y", n_out) != NULL) n_out++;
    fr_module_evaluation_begin(m);
    const bool grad = fr_no_grad_begin();
    const fr_status s = fr_module_forward_n(m, x, n_in, y, n_out);
    fr_no_grad_end(grad);
    fr_module_evaluation_end(m);
    cr_expect_eq(s, FR_OK, "%s, %s: %s", name, when, fr_last_error());
    for (int i = 0; i < n_out && s == FR_OK; i++) {
        const fri_safetensors_entry *e = part(file, name, "y", i);
        double *v = values_of(y[i]), most = 0, apart = 0;
        const int64_t n = fr_tensor_numel(y[i]);
        bool same = fr_tensor_rank(y[i]) == e->shape.rank;
        for (int k = 0; same && k < e->shape.rank; k++) same = fr_tensor_dim(y[i], k) == e->shape.dim[k];
        cr_expect(same, "%s, %s: result %d has another shape", name, when, i);
        for (int64_t k = 0; same && k < n; k++) {
            const double want = (double)((const float *)e->data)[k];
            const bool equal = v[k] == want || (isnan(v[k]) && isnan(want)); /* infinities, NaN */
            if (isfinite(want)) most = fmax(most, fabs(want));
            if (!equal) apart = isfinite(v[k] - want) ? fmax(apart, fabs(v[k] - want)) : INFINITY;
        }
        cr_expect(apart <= 2e-6 * most, "%s, %s: result %d is %g of %g off", name, when, i, apart, most);
        free(v);
    }
    for (int i = 0; i < MOST; i++) {
        fr_tensor_release(&x[i]);
        fr_tensor_release(&y[i]);
    }
}

static void expect_case(fri_safetensors *file, const char *name) {
    const fri_safetensors_entry *bytes = part(file, name, "onnx", -1), *refused = part(file, name, "refused", -1);
    fr_module *m = NULL, *again = NULL;
    write_bytes(in_folder("case.onnx"), bytes->data, (size_t)bytes->shape.dim[0]);
    const fr_status s = fr_onnx_load(in_folder("case.onnx"), FR_ONNX_OPTS(.height = 8, .width = 8), &m);
    if (refused != NULL) {
        char sentence[300];
        snprintf(sentence, sizeof sentence, "%.*s", (int)refused->shape.dim[0], (const char *)refused->data);
        cr_expect(s < 0 && strstr(fr_last_error(), sentence) != NULL, "%s: not '%s', but '%s'", name, sentence,
                  s < 0 ? fr_last_error() : "loaded");
        fr_module_release(&m);
        return;
    }
    cr_expect_eq(s, FR_OK, "%s: %s", name, fr_last_error());
    if (s < 0) return;
    const fri_safetensors_entry *layers = part(file, name, "layers", -1);
    if (layers != NULL)
        cr_expect_eq(fr_module_layers(m), layers->shape.dim[0], "%s: %d layers", name, fr_module_layers(m));
    expect_results(m, file, name, "as it is");
    const fr_status saved = fr_onnx_save(m, in_folder("saved.onnx"), NULL); /* every written file is readable */
    if (part(file, name, "once", -1) == NULL) cr_expect_eq(saved, FR_OK, "%s: %s", name, fr_last_error());
    if (saved == FR_OK) {
        const fr_status t = fr_onnx_load(in_folder("saved.onnx"), NULL, &again);
        cr_expect_eq(t, FR_OK, "%s, saved: %s", name, fr_last_error());
        if (t == FR_OK) expect_results(again, file, name, "saved");
    }
    fr_module_release(&m);
    fr_module_release(&again);
}

/* The case's data lie in data.bin, beside the file. */
Test(onnx_nodes, a_link_out_of_the_folder_is_not_followed) {
    fri_safetensors *file = cases();
    const fri_safetensors_entry *bytes = part(file, "data_beside", "onnx", -1);
    const float zeros[8] = {0};
    fr_module *m = NULL;
    write_bytes(in_folder("case.onnx"), bytes->data, (size_t)bytes->shape.dim[0]);
    cr_assert_eq(symlink("/proc/self/exe", in_folder("data.bin")), 0);
    cr_expect_eq(fr_onnx_load(in_folder("case.onnx"), NULL, &m), FR_EFORMAT);
    EXPECT_SENTENCE("its data 'data.bin' are a link that leads out of its folder");
    cr_assert_eq(unlink(in_folder("data.bin")), 0);
    write_bytes(in_folder("real.bin"), zeros, sizeof zeros);
    cr_assert_eq(symlink("real.bin", in_folder("data.bin")), 0);
    OK(fr_onnx_load(in_folder("case.onnx"), NULL, &m));
    fr_module_release(&m);
    fri_safetensors_close(&file);
}

Test(onnx_nodes, every_case_computes_what_onnx_runtime_computes) {
    fri_safetensors *file = cases();
    int n = 0;
    for (size_t i = 0; i < file->n_entries; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s", file->entries[i].name);
        char *dot = strrchr(name, '.');
        if (dot == NULL || strcmp(dot, ".onnx") != 0) continue;
        *dot = '\0';
        expect_case(file, name);
        n++;
    }
    cr_expect_gt(n, 20);
    fri_safetensors_close(&file);
    expect_nothing_left();
}
