/* report.h - the JSON of --report, for tests: a missing or mistyped key fails the test. */
#ifndef TESTS_TRAIN_REPORT_H
#define TESTS_TRAIN_REPORT_H

#include <cjson/cJSON.h>

cJSON *report_read(const char *path);
/* root[outer], or root[outer][inner]. */
cJSON *report_at(cJSON *root, const char *outer, const char *inner);
double report_number(cJSON *root, const char *outer, const char *inner);

#endif
