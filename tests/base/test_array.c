/* test_array.c - arrays that grow by an element at a time. */
#include "base/status.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(array, keeps_what_it_holds_while_it_grows_and_after_the_last_ones_were_dropped) {
    int *items = NULL, n = 0;
    for (int round = 0; round < 3; round++) {
        for (; n < 5000; n++) {
            cr_assert_eq(FRI_ROOM(items, n, "numbers"), FR_OK);
            items[n] = n;
        }
        for (int i = 0; i < n; i++) cr_assert_eq(items[i], i);
        n = round == 0 ? 63 : 0;
    }
    free(items);
}

Test(array, without_memory_says_what_had_no_room_and_keeps_the_rest) {
    char *items = NULL;
    cr_assert_eq(FRI_ROOM(items, 0, "names"), FR_OK);
    strcpy(items, "kept");
    const size_t too_long = SIZE_MAX / 2 + 1;
    cr_expect_eq(fri_array_room(&items, 1, too_long, "names"), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), "names: no host memory"), "%s", fr_last_error());
    cr_expect_eq(fri_array_room(&items, 64, too_long / 32, "names"), FR_ENOMEM, "the size wrapped");
    cr_expect_str_eq(items, "kept");
    free(items);
}
