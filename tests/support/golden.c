/* golden.c - see golden.h. */
#include "support/golden.h"

#include <criterion/criterion.h>
#include <frugal/memory.h>
#include "tensor/readback.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/env.h"
#include "base/half.h"
#include "support/stand_in.h"

/* The one table of tolerances: |got - expected| <= absolute + relative * |expected|, per element.
 *   f32    sums of at most a few hundred products of normal numbers, rounded at 2^-24 each; golden values are exact
 *   f16    11 bits: inputs rounded once (2^-11 each), sums in f32, results rounded once
 *   bf16   8 bits, likewise
 *   f64    the golden values themselves are rounded to f32
 * Winograd's convolutions, in f32, are measured by their largest error over the largest value: transforms add and
 * subtract values up to 100 times as large as their difference. Seen: 2.1e-5 at 512 channels, in each pass. */
static const struct {
    fr_dtype dtype;
    double absolute, relative;
} tolerances[] = {{FR_F32, 2e-5, 2e-5}, {FR_F16, 1.2e-2, 4e-3}, {FR_BF16, 1e-1, 3e-2}, {FR_F64, 1e-6, 1e-6}};
const double winograd_tolerance = 3e-5;

void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

void release_tensors(fr_tensor **const *slots) {
    for (int i = 0; slots[i] != NULL; i++) fr_tensor_release(slots[i]);
}

void expect_nothing_left(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(test_device(), &t));
    cr_expect_eq(t.requested, 0u, "%zu bytes live at the end", t.requested);
    cr_expect_eq(fr_graph_stats_get().nodes, 0u, "%d nodes live at the end", (int)fr_graph_stats_get().nodes);
}

void expect_refused(fr_status got, fr_status wanted, const char *word1, const char *word2, fr_tensor *slot) {
    cr_expect_eq(got, wanted, "%s instead of %s: %s", fr_status_name(got), fr_status_name(wanted), fr_last_error());
    cr_expect(strstr(fr_last_error(), word1) != NULL, "'%s' lacks '%s'", fr_last_error(), word1);
    cr_expect(strstr(fr_last_error(), word2) != NULL, "'%s' lacks '%s'", fr_last_error(), word2);
    cr_expect_null(slot, "a refused op filled its slot");
}

void expect_bad_index(fr_status got, const char *word1, const char *word2, fr_tensor **slot) {
    fr_tensor *last = NULL;
    double value = 0;
    if (got != FR_OK || fri_backend_get(test_device())->streams == NULL) {
        expect_refused(got, FR_EINVAL, word1, word2, *slot);
        return;
    }
    fr_tensor_release(slot);
    must(fr_tensor_full(0, NULL, 1, FR_F32, test_device(), &last));
    must(fr_tensor_item(last, &value)); /* waits for the device */
    fr_tensor_release(&last);
    expect_refused(fri_readback_check_all(), FR_EINVAL, word2, word2, NULL);
}

fr_device test_device(void) {
    fr_device d = FR_CPU;
    const char *name = fri_env_get()->test_device;
    if (name != NULL && strcmp(name, "stand-in") == 0) {
        stand_in_begin();
        return FR_CUDA;
    }
    if (name != NULL) must(fr_device_parse(name, &d));
    if (!fr_device_available(d)) cr_skip_test("device %s: %s", fr_device_name(d), fr_device_reason(d));
    if (d == FR_CUDA) fr_exact_convolutions_set(true); /* tolerances are f32's, not TF32's */
    return d;
}

void cpu_only(const char *reason) {
    if (test_device() != FR_CPU) cr_skip_test("only on the CPU: %s", reason);
}

const void *host_of(fr_tensor *t) {
    if (fr_tensor_device(t) == FR_CPU) return fr_tensor_data(t);
    void *copy = malloc(fr_tensor_nbytes(t) + 1);
    cr_assert_not_null(copy);
    must(fr_tensor_to_host(t, copy));
    return copy;
}

void host_to(fr_tensor *t, const void *data) {
    fri_exec e = {0};
    must(fri_backend_get(fr_tensor_device(t))
             ->copy(&e, FRI_COPY_HOST_TO_DEVICE, data, fr_tensor_data(t), fr_tensor_nbytes(t)));
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

golden golden_open(const char *op) {
    golden g = {.op = op};
    char path[1024];
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", root != NULL ? root : ".", op);
    must(fri_safetensors_open(path, &g.file));
    g.rest = fri_safetensors_metadata(g.file, "cases");
    cr_assert_not_null(g.rest);
    return g;
}

bool golden_next(golden *g) {
    size_t n = 0;
    while (*g->rest == ' ') g->rest++;
    while (g->rest[n] != '\0' && g->rest[n] != ' ') n++;
    if (n == 0) {
        fri_safetensors_close(&g->file);
        return false;
    }
    cr_assert_lt(n, sizeof g->name);
    memcpy(g->name, g->rest, n);
    g->name[n] = '\0';
    g->rest += n;
    return true;
}

const fri_safetensors_entry *golden_field(const golden *g, const char *field) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", g->name, field);
    return fri_safetensors_find(g->file, name);
}

static const fri_safetensors_entry *needed(const golden *g, const char *field) {
    const fri_safetensors_entry *e = golden_field(g, field);
    cr_assert_not_null(e, "%s %s: the golden file has no %s", g->op, g->name, field);
    return e;
}

int64_t golden_int(const golden *g, const char *field, int i) {
    int64_t v;
    memcpy(&v, (const char *)needed(g, field)->data + 8 * i, sizeof v);
    return v;
}

double golden_real(const golden *g, const char *field) {
    double v;
    memcpy(&v, needed(g, field)->data, sizeof v);
    return v;
}

fr_tensor *golden_tensor(const golden *g, const char *field, fr_dtype dtype, fr_device device) {
    const fri_safetensors_entry *e = golden_field(g, field);
    fr_tensor *t = NULL, *converted = NULL;
    if (e == NULL) return NULL;
    must(fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, e->dtype, device, &t));
    if (!fr_dtype_is_float(e->dtype) || e->dtype == dtype) return t;
    must(fr_tensor_empty(e->shape.rank, e->shape.dim, dtype, device, &converted));
    must(fr_tensor_copy(converted, t));
    fr_tensor_release(&t);
    return converted;
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

double *values_of(const fr_tensor *t) {
    fr_tensor *wide = NULL;
    double *v = malloc((size_t)fr_tensor_numel(t) * sizeof *v + 1);
    must(fr_tensor_empty(fr_tensor_rank(t), fr_tensor_shape(t), FR_F64, FR_CPU, &wide));
    must(fr_tensor_copy(wide, t));
    must(fr_tensor_to_host(wide, v));
    fr_tensor_release(&wide);
    return v;
}

bool close_enough(fr_dtype computed_in, double got, double expected) {
    double absolute = 0, relative = 0;
    for (size_t i = 0; i < sizeof tolerances / sizeof *tolerances; i++)
        if (tolerances[i].dtype == computed_in) {
            absolute = tolerances[i].absolute;
            relative = tolerances[i].relative;
        }
    return (isnan(got) && isnan(expected)) || got == expected ||
           fabs(got - expected) <= absolute + relative * fabs(expected);
}

void golden_expect(const golden *g, const char *field, const fr_tensor *t, fr_dtype computed_in) {
    fr_tensor *want = golden_tensor(g, field, FR_F64, FR_CPU);
    cr_assert_not_null(want, "%s %s: no %s", g->op, g->name, field);
    cr_assert_not_null(t, "%s %s: %s is missing", g->op, g->name, field);
    cr_assert_eq(fr_tensor_numel(t), fr_tensor_numel(want), "%s %s: %s has %lld elements, not %lld", g->op, g->name,
                 field, (long long)fr_tensor_numel(t), (long long)fr_tensor_numel(want));
    double *a = values_of(t), *b = values_of(want);
    for (int64_t i = 0; i < fr_tensor_numel(t); i++) {
        if (close_enough(computed_in, a[i], b[i])) continue;
        cr_expect(false, "%s %s in %s: %s[%lld] is %.9g, expected %.9g", g->op, g->name, fr_dtype_name(computed_in),
                  field, (long long)i, a[i], b[i]);
        break;
    }
    free(a);
    free(b);
    fr_tensor_release(&want);
}

void expect_same_values(const fr_tensor *a, const fr_tensor *b, const char *what) {
    double *x = values_of(a), *y = values_of(b);
    cr_assert_eq(fr_tensor_numel(a), fr_tensor_numel(b), "%s", what);
    cr_expect_eq(memcmp(x, y, (size_t)fr_tensor_numel(a) * sizeof *x), 0, "%s: other values", what);
    free(x);
    free(y);
}

fr_tensor *uniform_tensor(int rank, const int64_t *shape) {
    fr_tensor *x = NULL;
    must(fr_tensor_uniform(rank, shape, -1, 1, FR_F32, test_device(), &x));
    return x;
}
