/* report.c - see report.h. */
#include "report.h"

#include <criterion/criterion.h>
#include <stdio.h>

cJSON *report_read(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "no report %s", path);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    cJSON *root = cJSON_Parse(text);
    cr_assert_not_null(root, "the report is no JSON: %s", text);
    return root;
}

cJSON *report_at(cJSON *root, const char *outer, const char *inner) {
    cJSON *o = cJSON_GetObjectItemCaseSensitive(root, outer);
    cJSON *i = inner != NULL && o != NULL ? cJSON_GetObjectItemCaseSensitive(o, inner) : o;
    cr_assert_not_null(i, "the report has no %s.%s", outer, inner != NULL ? inner : "");
    return i;
}

double report_number(cJSON *root, const char *outer, const char *inner) {
    cJSON *i = report_at(root, outer, inner);
    cr_assert(cJSON_IsNumber(i), "%s.%s is no number", outer, inner != NULL ? inner : "");
    return i->valuedouble;
}
