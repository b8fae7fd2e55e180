/* test_frozen_training.c - random choices of frozen parts: training parts get equal bits under every switch, and a
 * plan equals the run.
 *
 * FRUGAL_FROZEN_SETS: how many choices (20 if unset; the long run takes 100). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "meta/meta.h"
#include "support/golden.h"
#include "support/small_train.h"

static void expect_equal(const small_bytes *a, const small_bytes *b, const char *what, const char *text) {
    cr_assert_eq(a->n, b->n, "%s: %zu bytes of %s, not %zu", text, b->n, what, a->n);
    cr_expect_eq(memcmp(a->data, b->data, a->n), 0, "%s: %s differ", text, what);
}

static void expect_planned(const small_setting *c, const fr_memory_stats *run, const char *text) {
    small_record dry;
    small_setting few = *c;
    few.steps = 3;
    small_train(&few, FR_META, &dry);
    cr_expect_eq(run->peak_requested, dry.memory.peak_requested, "%s: peak %zu, planned %zu", text, run->peak_requested,
                 dry.memory.peak_requested);
    cr_expect_eq(run->peak_allocated, dry.memory.peak_allocated, "%s: allocated %zu, planned %zu", text,
                 run->peak_allocated, dry.memory.peak_allocated);
    cr_expect_eq(run->peak_reserved, dry.memory.peak_reserved, "%s: reserved %zu, planned %zu", text,
                 run->peak_reserved, dry.memory.peak_reserved);
    cr_expect_eq(memcmp(run->at_peak_requested, dry.memory.at_peak_requested, sizeof run->at_peak_requested), 0,
                 "%s: categories at the peak differ", text);
}

static fr_switches switches_of(uint32_t r) {
    fr_switches s = r & 1 ? fr_switches_default() : fr_switches_all_off();
    s.rebuild = r & 2;
    if (r & 4) s.inplace = !s.inplace;
    if (r & 8) s.encode = !s.encode;
    return s;
}

static void study(uint32_t choice) {
    static const small_form forms[] = {SMALL_PLAIN, SMALL_PLAIN, SMALL_TWO, SMALL_EACH, SMALL_NESTED, SMALL_LOG};
    char text[96];
    small_setting c = {.net = choice % SMALL_NETS,
                       .steps = 4,
                       .switches = fr_switches_all_off(),
                       .amp = choice / SMALL_NETS % 3,
                       .frozen = 977 * choice + 1};
    small_record off, on;
    small_train(&c, test_device(), &off);
    snprintf(text, sizeof text, "choice %u, %s, all off", choice, small_net_names[c.net]);
    expect_planned(&c, &off.memory, text);
    c.form = forms[choice / 12 * 5 % 6];
    c.switches = switches_of(choice * 7 + 3);
    small_train(&c, test_device(), &on);
    snprintf(text, sizeof text, "choice %u, %s, %s", choice, small_net_names[c.net], small_form_names[c.form]);
    expect_planned(&c, &on.memory, text);
    expect_equal(&off.state, &on.state, "losses, parameters and statistics", text);
    expect_equal(&off.gradients, &on.gradients, "gradients", text);
    small_record_free(&off);
    small_record_free(&on);
}

Test(frozen_training, a_plan_is_the_run_and_switches_change_no_bit, .timeout = 3000) {
    const char *wanted = getenv("FRUGAL_FROZEN_SETS");
    const int n = wanted != NULL && *wanted != '\0' ? atoi(wanted) : 20;
    fri_meta_target_set(fri_backend_get(test_device()));
    for (int i = 0; i < n; i++) study((uint32_t)i);
    fri_meta_target_set(NULL);
    fr_switches_set(fr_switches_default());
    fr_offload_close();
    expect_nothing_left();
}
