/* test_dlpack.c - DLPack import and export: no copy, a single owner, and foreign objects are refused. test_dlpack.py
 * compares with PyTorch. */
#include "io/support.h"

#include "memory/allocator.h"
#include "io/dlpack.h"
#include "tensor/tensor.h"

#include <frugal/autograd.h>
#include <frugal/ops.h>

#include <stdlib.h>
#include <string.h>

TestSuite(dlpack);

static size_t live_bytes(void) {
    fr_memory_stats s;
    OK(fr_memory_stats_get(FR_CPU, &s));
    return s.requested;
}

Test(dlpack, export_shares_memory_and_outlives_the_tensor) {
    size_t before = live_bytes();
    fr_tensor *t = NULL;
    struct DLManagedTensorVersioned *m = NULL, *second = NULL;
    OK(fr_tensor_full(3, (int64_t[]){2, 3, 4}, 1.5, FR_F32, FR_CPU, &t));
    OK(fr_tensor_to_dlpack(t, &m));
    OK(fr_tensor_to_dlpack(t, &second));
    const fri_dl_tensor *d = &m->dl_tensor;
    cr_expect_eq(m->version.major, 1);
    cr_expect_eq(m->flags, 0);
    cr_expect_eq(d->data, fr_tensor_data(t));
    cr_expect_eq(second->dl_tensor.data, fr_tensor_data(t));
    cr_expect(d->device_type == 1 && d->device_id == 0 && d->ndim == 3 && d->byte_offset == 0);
    cr_expect(d->dtype.code == 2 && d->dtype.bits == 32 && d->dtype.lanes == 1);
    static const int64_t shape[3] = {2, 3, 4}, strides[3] = {12, 4, 1};
    cr_expect_arr_eq(d->shape, shape, sizeof shape);
    cr_expect_arr_eq(d->strides, strides, sizeof strides, "strides count elements");
    fr_tensor_release(&t);
    cr_expect_eq(((float *)d->data)[23], 1.5f);
    m->deleter(m);
    cr_expect_gt(live_bytes(), before, "the second export still holds it");
    second->deleter(second);
    cr_expect_eq(live_bytes(), before);
}

Test(dlpack, views_and_empty_tensors_export) {
    fr_tensor *t = NULL, *rows = NULL, *empty = NULL, *back = NULL;
    struct DLManagedTensorVersioned *m = NULL;
    OK(fr_tensor_zeros(2, (int64_t[]){5, 3}, FR_I16, FR_CPU, &t));
    OK(fr_tensor_narrow0(t, 2, 2, &rows));
    OK(fr_tensor_to_dlpack(rows, &m));
    cr_expect_eq(m->dl_tensor.data, (char *)fr_tensor_data(t) + 12);
    m->deleter(m);
    OK(fr_tensor_zeros(2, (int64_t[]){0, 3}, FR_F32, FR_CPU, &empty));
    OK(fr_tensor_to_dlpack(empty, &m));
    cr_expect(m->dl_tensor.data == NULL);
    OK(fr_tensor_from_dlpack(&m, &back));
    cr_expect_eq(fr_tensor_numel(back), 0);
    fr_tensor_release(&back);
    fr_tensor_release(&t);
    fr_tensor_release(&rows);
    fr_tensor_release(&empty);
}

Test(dlpack, every_type_goes_there_and_back) {
    size_t before = live_bytes();
    for (int type = 0; type < FR_DTYPE_COUNT; type++) {
        fr_tensor *t = NULL, *back = NULL;
        struct DLManagedTensorVersioned *m = NULL;
        OK(fr_tensor_full(1, (int64_t[]){3}, 1, (fr_dtype)type, FR_CPU, &t));
        OK(fr_tensor_to_dlpack(t, &m));
        OK(fr_tensor_from_dlpack(&m, &back));
        cr_expect(m == NULL);
        cr_expect_eq(fr_tensor_dtype(back), type);
        cr_expect_eq(fr_tensor_data(back), fr_tensor_data(t));
        fr_tensor_release(&t);
        double value = 0;
        fr_tensor *one = NULL;
        OK(fr_tensor_narrow0(back, 2, 1, &one));
        OK(fr_tensor_item(one, &value));
        cr_expect_eq(value, 1);
        fr_tensor_release(&one);
        fr_tensor_release(&back);
    }
    cr_expect_eq(live_bytes(), before);
}

/* ---- foreign memory ------------------------------------------------------------------------------------------ */

static int deleted;
static float first_value; /* of the memory released last */

static void delete_foreign(struct DLManagedTensorVersioned *self) {
    deleted++;
    first_value = *(float *)self->manager_ctx;
    free(self->manager_ctx);
    free(self);
}

static int64_t foreign_shape[3] = {2, 2, 3}, foreign_strides[3] = {6, 3, 1};

static struct DLManagedTensorVersioned *foreign(void) {
    struct DLManagedTensorVersioned *m = calloc(1, sizeof *m);
    float *data = aligned_alloc(64, 64);
    for (int i = 0; i < 12; i++) data[i] = (float)(i - 6);
    m->version.major = 1;
    m->manager_ctx = data;
    m->deleter = delete_foreign;
    m->dl_tensor = (fri_dl_tensor){.data = data,
                                   .device_type = 1,
                                   .ndim = 3,
                                   .dtype = {2, 32, 1},
                                   .shape = foreign_shape,
                                   .strides = foreign_strides};
    return m;
}

Test(dlpack, import_uses_the_memory_and_gives_it_back_once) {
    size_t before = live_bytes();
    fr_tensor *t = NULL, *y = NULL, *view = NULL;
    struct DLManagedTensorVersioned *m = foreign();
    float *data = m->manager_ctx;
    OK(fr_tensor_from_dlpack(&m, &t));
    cr_expect(m == NULL);
    cr_expect_eq(live_bytes(), before, "in no report");
    cr_expect_eq(fr_tensor_data(t), data);
    data[0] = 7; /* visible to the library */
    OK(fr_relu(t, &y));
    cr_expect_eq(((float *)fr_tensor_data(y))[0], 7);
    OK(fr_tensor_fill(t, -2)); /* visible to the owner */
    cr_expect_eq(data[11], -2);
    OK(fr_tensor_narrow0(t, 1, 1, &view));
    fr_tensor_release(&t);
    cr_expect_eq(deleted, 0, "a view is left");
    fr_tensor_release(&view);
    cr_expect_eq(deleted, 1);
    fr_tensor_release(&y);
    cr_expect_eq(live_bytes(), before);
}

Test(dlpack, no_op_writes_over_foreign_memory_and_backward_works) {
    fr_tensor *t = NULL, *w = NULL, *y = NULL;
    struct DLManagedTensorVersioned *m = foreign();
    OK(fr_tensor_from_dlpack(&m, &t));
    OK(fr_tensor_full(3, foreign_shape, 2, FR_F32, FR_CPU, &w));
    OK(fr_tensor_set_requires_grad(w, true));
    OK(fr_relu(t, &t)); /* x = relu(x) would be in place for memory of our own */
    cr_expect_eq(deleted, 1);
    cr_expect_eq(first_value, -6);
    m = foreign();
    OK(fr_tensor_from_dlpack(&m, &t));
    OK(fr_mul(t, w, &y));
    fr_tensor_release(&t); /* needed by backward only */
    cr_expect_eq(deleted, 1);
    OK(fr_sum(y, &y));
    OK(fr_backward(y, NULL));
    const float *grad = fr_tensor_data(fr_tensor_get_grad(w));
    for (int i = 0; i < 12; i++) cr_expect_eq(grad[i], (float)(i - 6));
    fr_tensor_release(&y);
    cr_expect_eq(deleted, 2);
    fr_tensor_release(&w);
}

/* Parameters in foreign memory: relabelling, gradients and in-place updates of memory outside of any allocator. */
Test(dlpack, foreign_memory_can_be_a_leaf) {
    fr_tensor *t = NULL, *loss = NULL;
    struct DLManagedTensorVersioned *m = foreign();
    OK(fr_tensor_from_dlpack(&m, &t));
    OK(fr_tensor_set_requires_grad(t, true));
    fr_tensor_category_set(t, FR_MEM_PARAMETER);
    OK(fr_mul(t, t, &loss));
    OK(fr_sum(loss, &loss));
    OK(fr_backward(loss, NULL));
    cr_expect_eq(((float *)fr_tensor_data(fr_tensor_get_grad(t)))[0], -12);
    fr_tensor_release(&loss);
    fr_tensor_release(&t);
    cr_expect_eq(deleted, 1);
}

typedef void spoil(struct DLManagedTensorVersioned *m);
static int64_t odd_strides[3] = {1, 2, 4}, huge_shape[3] = {INT64_C(1) << 40, INT64_C(1) << 40, 4},
               negative_shape[3] = {2, -2, 3};
static void another_version(struct DLManagedTensorVersioned *m) {
    m->version.major = 2;
}
static void read_only(struct DLManagedTensorVersioned *m) {
    m->flags = 1;
}
static void on_cuda(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.device_type = 2;
}
static void complex_numbers(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.dtype.code = 5;
}
static void vectors(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.dtype.lanes = 4;
}
static void too_many_dimensions(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.ndim = 7;
}
static void transposed(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.strides = odd_strides;
}
static void huge(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.shape = huge_shape;
}
static void negative(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.shape = negative_shape;
}
static void no_data(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.data = NULL;
}
static void misaligned(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.byte_offset = 2;
}

static void far_offset(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.byte_offset = UINT64_MAX - 3; /* 4 bytes before the data */
}
static void end_behind_memory(struct DLManagedTensorVersioned *m) {
    m->dl_tensor.byte_offset = UINT64_MAX - (uint64_t)(uintptr_t)m->dl_tensor.data - 3;
}

static const struct {
    spoil *spoil;
    fr_status status;
    const char *sentence;
} bad[] = {
    {another_version, FR_EFORMAT, "major version 2"},
    {read_only, FR_EUNSUPPORTED, "read-only"},
    {on_cuda, FR_EUNSUPPORTED, "device of type 2"},
    {complex_numbers, FR_EDTYPE, "code 5, 32 bits"},
    {vectors, FR_EDTYPE, "4 lanes"},
    {too_many_dimensions, FR_ESHAPE, "rank 7"},
    {transposed, FR_EUNSUPPORTED, "dimension 2 has stride 4, a compact row-major tensor has 1"},
    {huge, FR_ESHAPE, "dlpack"},
    {negative, FR_ESHAPE, "dlpack"},
    {no_data, FR_EINVAL, "data is NULL"},
    {misaligned, FR_EUNSUPPORTED, "not aligned"},
    {far_offset, FR_EINVAL, "byte offset 18446744073709551612"},
    {end_behind_memory, FR_EINVAL, "exceeds the address space"},
};

Test(dlpack, what_is_refused_stays_the_callers) {
    for (size_t i = 0; i < COUNT(bad); i++) {
        fr_tensor *t = NULL;
        struct DLManagedTensorVersioned *m = foreign();
        bad[i].spoil(m);
        cr_expect_eq(fr_tensor_from_dlpack(&m, &t), bad[i].status, "%s", bad[i].sentence);
        EXPECT_SENTENCE(bad[i].sentence);
        cr_expect(t == NULL && m != NULL);
        cr_expect_eq(deleted, (int)i);
        m->deleter(m);
    }
}

Test(dlpack, what_cannot_be_exported_is_refused) {
    fr_tensor *leaf = NULL, *meta = NULL, *detached = NULL;
    struct DLManagedTensorVersioned *m = NULL;
    OK(fr_tensor_zeros(1, (int64_t[]){3}, FR_F32, FR_CPU, &leaf));
    OK(fr_tensor_set_requires_grad(leaf, true));
    cr_expect_eq(fr_tensor_to_dlpack(leaf, &m), FR_EUSAGE);
    EXPECT_SENTENCE("fr_tensor_detach");
    OK(fr_tensor_detach(leaf, &detached));
    OK(fr_tensor_to_dlpack(detached, &m));
    m->deleter(m);
    OK(fr_tensor_empty(1, (int64_t[]){3}, FR_F32, FR_META, &meta));
    cr_expect_eq(fr_tensor_to_dlpack(meta, &m), FR_EUNSUPPORTED);
    cr_expect_eq(fr_tensor_to_dlpack(NULL, &m), FR_EINVAL);
    fr_tensor_release(&leaf);
    fr_tensor_release(&meta);
    fr_tensor_release(&detached);
}
