/* test_tensor.c - views of rows; meta tensors, which have a place and no values. */
#include <criterion/criterion.h>
#include <frugal/tensor.h>

#include "support/golden.h"
#include "tensor/tensor.h"

/* Rows of another tensor: those there are, and no others. */
Test(tensor, narrow0_stays_inside) {
    static const int64_t wrong[][2] = {{0, 4}, {1, 3}, {3, 1}, {-1, 1}, {1, -1}, {4, 0}, {1, INT64_MAX}};
    fr_tensor *x = NULL, *y = NULL;
    float row[2];
    must(fr_tensor_from_host((const float[]){0, 1, 2, 3, 4, 5}, 2, (int64_t[]){3, 2}, FR_F32, test_device(), &x));
    must(fr_tensor_narrow0(x, 2, 1, &y));
    must(fr_tensor_to_host(y, row));
    cr_expect(row[0] == 4 && row[1] == 5, "row 2 is %g, %g", row[0], row[1]);
    must(fr_tensor_narrow0(x, 3, 0, &y));
    cr_expect_eq(fr_tensor_numel(y), 0);
    fr_tensor_release(&y);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refused(fr_tensor_narrow0(x, wrong[i][0], wrong[i][1], &y), FR_ESHAPE, "narrow0", "3 rows", y);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(tensor, meta_has_no_values_to_copy) {
    fr_tensor *x = NULL;
    double value = 7;
    float data = 7;
    must(fr_tensor_full(0, NULL, 1, FR_F32, FR_META, &x));
    cr_expect_null(fr_tensor_data(x));
    expect_refused(fr_tensor_item(x, &value), FR_EUNSUPPORTED, "4 bytes", "no data", NULL);
    expect_refused(fr_tensor_to_host(x, &data), FR_EUNSUPPORTED, "4 bytes", "no data", NULL);
    cr_expect(value == 7 && data == 7);
    fr_tensor_release(&x);
}

/* Addresses on meta stand for bytes of one tensor each, as the device's would: the allocator and its plans rely on it.
 */
Test(tensor, meta_addresses_are_of_one_tensor_each) {
    enum { COUNT = 6 };
    const int64_t bytes = (int64_t)24 << 20;
    fr_tensor *x[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) must(fr_tensor_empty(1, &bytes, FR_U8, FR_META, &x[i]));
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++) {
            const char *a = fri_data(x[i]), *b = fri_data(x[k]);
            cr_expect(a + bytes <= b || b + bytes <= a, "tensors %d and %d overlap", k, i);
        }
    for (int i = 0; i < COUNT; i++) fr_tensor_release(&x[i]);
}
