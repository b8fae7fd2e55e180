/* test_number.c - real numbers have a decimal point in files, flags and sentences, also where the program's locale has
 * a decimal comma. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/status.h"

static void decimal_comma(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    bool comma = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !comma; i++)
        comma = setlocale(LC_ALL, names[i]) != NULL && localeconv()->decimal_point[0] == ',';
    if (!comma) cr_skip("no locale with a decimal comma is installed");
}

Test(number, text_has_a_point_in_every_locale) {
    char text[FRI_NUMBER_BYTES];
    decimal_comma();
    cr_expect_str_eq(fri_number_text(0.1, text), "0.1");
    cr_expect_str_eq(fri_number_text(-1e-300 / 3, text), "-3.3333333333333334e-301");
    fr_snprintf(text, sizeof text, "%.2f", 1.5);
    cr_expect_str_eq(text, "1.50");
    snprintf(text, sizeof text, "%.2f", 1.5);
    cr_expect_str_eq(text, "1,50", "the program's own output has lost its locale");
}

Test(number, files_have_a_point_in_every_locale) {
    char *text = NULL;
    size_t n = 0;
    decimal_comma();
    FILE *file = open_memstream(&text, &n);
    cr_assert_not_null(file);
    fr_fprintf(file, "%g %s", 0.25, "x");
    fclose(file);
    cr_expect_str_eq(text, "0.25 x");
    free(text);
}

Test(number, numbers_are_read_in_every_locale) {
    decimal_comma();
    cr_expect_eq(fr_strtod("0.5", NULL), 0.5);
}

Test(number, sentences_have_a_point_in_every_locale) {
    decimal_comma();
    cr_expect_eq(fr_fail(FR_EINVAL, "dropout: p is %g", 1.5), FR_EINVAL);
    cr_expect_str_eq(fr_last_error(), "dropout: p is 1.5");
}
