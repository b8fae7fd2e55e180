/* test_switch_pairs.c - a switch changes memory, never mathematics: pairs and triples of switches, 10 steps of
 * training.
 *
 * On each of four small networks: every switch alone, and a random choice of the pairs and triples that can be on
 * together. Losses, gradients, parameters and running statistics of all steps are the bytes of the run with all
 * switches off, and a dry run of the same program reports the same peaks, requested, allocated and by category. Under
 * autocast the run to compare with is under autocast too: how far that one is from f32 is bounded by the last test.
 *
 * FRUGAL_SWITCH_SETS: how many sets beyond the single switches per network (16 if unset; "all": every pair and
 * triple). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "meta/meta.h"
#include "support/golden.h"
#include "support/small_train.h"
#include "autograd/run.h"

enum { STEPS = 10, SETS = 16, MOST_SETS = 1024, DRY_STEPS = 3 };

/* The bits of a set: the following, then the bits of the list (fri_switch_at). */
enum { POOL_I32, POOL_U8, TWO_SEGMENTS, EACH_UNIT, NESTED, GRAD_ZERO, FUSED, AMP_F16, AMP_BF16, LISTED };
static const char *const names[LISTED] = {"pool i32",  "pool u8",    "two segments", "each unit", "nested",
                                          "grad zero", "fused step", "f16",          "bf16"};

#define BIT(i) (1u << (i))

static int switches(void) {
    int n = LISTED;
    while (fri_switch_at(n - LISTED) != NULL) n++;
    return n;
}

static const char *name_of(int i) {
    return i < LISTED ? names[i] : fri_switch_at(i - LISTED)->name;
}

static bool is(unsigned set, const char *name) {
    return __builtin_popcount(set) == 1 && strcmp(name_of(__builtin_ctz(set)), name) == 0;
}

/* A set has at most one bit of each group: a group's bits are values of one switch, or (fused) have no gradient to
 * keep or to unscale. */
static const unsigned groups[] = {BIT(POOL_I32) | BIT(POOL_U8), BIT(TWO_SEGMENTS) | BIT(EACH_UNIT) | BIT(NESTED),
                                  BIT(GRAD_ZERO) | BIT(FUSED), BIT(FUSED) | BIT(AMP_F16), BIT(AMP_F16) | BIT(AMP_BF16)};

static bool possible(unsigned set) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (__builtin_popcount(set & groups[i]) > 1) return false;
    return true;
}

static small_setting setting_of(small_net net, unsigned set) {
    small_setting c = {.net = net, .steps = STEPS, .switches = fr_switches_all_off()};
    for (int i = LISTED; i < switches(); i++) {
        const fri_switch *w = fri_switch_at(i - LISTED);
        *fri_switch_field(w, &c.switches) = (set >> i & 1) == w->saves;
    }
    if (set >> POOL_I32 & 1) c.switches.pool_index = FR_I32;
    if (set >> POOL_U8 & 1) c.switches.pool_index = FR_U8;
    c.form = set >> TWO_SEGMENTS & 1 ? SMALL_TWO
             : set >> EACH_UNIT & 1  ? SMALL_EACH
             : set >> NESTED & 1     ? SMALL_NESTED
                                     : SMALL_PLAIN;
    c.grad_zero = set >> GRAD_ZERO & 1;
    c.fused = set >> FUSED & 1;
    c.amp = set >> AMP_F16 & 1 ? SMALL_F16 : set >> AMP_BF16 & 1 ? SMALL_BF16 : SMALL_F32;
    return c;
}

static const char *text_of(small_net net, unsigned set) {
    static char buf[256];
    snprintf(buf, sizeof buf, "%s with", small_net_names[net]);
    for (int i = 0; i < switches(); i++)
        if (set >> i & 1) {
            strcat(buf, " ");
            strcat(buf, name_of(i));
        }
    return buf;
}

/* ---- a set ------------------------------------------------------------------------------------------------------ */

static void expect_equal(const small_bytes *a, const small_bytes *b, const char *what, const char *text) {
    cr_assert_eq(a->n, b->n, "%s: %zu bytes of %s, not %zu", text, b->n, what, a->n);
    if (memcmp(a->data, b->data, a->n) == 0) return;
    size_t at = 0;
    while (a->data[at] == b->data[at]) at++;
    cr_expect(false, "%s: %s differ, first in step %zu", text, what, at / (a->n / STEPS));
}

static void expect_same_peaks(const fr_memory_stats *run, const fr_memory_stats *dry, const char *text) {
    cr_expect_eq(run->peak_requested, dry->peak_requested, "%s: peak of %zu requested, the dry run's is %zu", text,
                 run->peak_requested, dry->peak_requested);
    cr_expect_eq(run->peak_allocated, dry->peak_allocated, "%s: peak of %zu allocated, the dry run's is %zu", text,
                 run->peak_allocated, dry->peak_allocated);
    cr_expect_eq(memcmp(run->at_peak_requested, dry->at_peak_requested, sizeof run->at_peak_requested), 0,
                 "%s: categories at the peak differ", text);
}

/* A switch without effect proves nothing: each switch, set alone, must have been at work. */
static void expect_at_work(small_net net, unsigned set, const small_record *r) {
    const char *text = text_of(net, set);
    if (is(set, "inplace")) cr_expect_gt(r->graph.inplace, 0u, "%s: nothing ran in place", text);
    if (is(set, "encode")) cr_expect_gt(r->graph.encoded + r->graph.absorbed, 0u, "%s: nothing was encoded", text);
    if (is(set, "rebuild")) cr_expect_gt(r->graph.rebuilt, 0u, "%s: nothing was rebuilt", text);
    if (is(set, "offload")) cr_expect_gt(r->graph.offloaded, 0u, "%s: nothing was moved", text);
    if (set & groups[1])
        cr_expect_geq(r->graph.recomputed_segments, (uint64_t)STEPS, "%s: nothing was recomputed", text);
}

typedef struct study {
    small_net net;
    small_record off[3]; /* all switches off, per kind of autocast */
    int runs;
} study;

static void run_set(study *s, unsigned set) {
    const char *text = text_of(s->net, set);
    small_setting c = setting_of(s->net, set);
    small_record r, dry;
    small_train(&c, test_device(), &r);
    expect_equal(&s->off[c.amp].state, &r.state, "losses, parameters and statistics", text);
    if (!c.fused) expect_equal(&s->off[c.amp].gradients, &r.gradients, "gradients", text);
    expect_at_work(s->net, set, &r);
    c.steps = DRY_STEPS; /* the peak is reached by then: state and kept gradients exist after the first step */
    small_train(&c, FR_META, &dry);
    expect_same_peaks(&r.memory, &dry.memory, text);
    small_record_free(&r);
    s->runs++;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static uint32_t random_below(uint32_t *state, uint32_t n) {
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*state * n) >> 32);
}

static int list_sets(unsigned *sets) {
    int n = 0;
    for (unsigned set = 1; set < BIT(switches()); set++) {
        int size = __builtin_popcount(set);
        if (size < 2 || size > 3 || !possible(set)) continue;
        cr_assert_lt(n, MOST_SETS);
        sets[n++] = set;
    }
    return n;
}

/* Half of the choice are pairs, lest all be triples: there are some 80 pairs and 300 triples. */
static void run_choice(study *s, int wanted) {
    static unsigned sets[MOST_SETS];
    uint32_t random = 17 + (uint32_t)s->net;
    int n = list_sets(sets);
    for (int i = 0; i < n && i < wanted; i++) {
        int at = i;
        do at = i + (int)random_below(&random, (uint32_t)(n - i));
        while (wanted < n / 8 && __builtin_popcount(sets[at]) != 2 + i % 2);
        unsigned set = sets[at];
        sets[at] = sets[i];
        sets[i] = set;
        run_set(s, set);
    }
}

static int wanted_sets(void) {
    const char *text = getenv("FRUGAL_SWITCH_SETS");
    if (text == NULL || *text == '\0') return SETS;
    return strcmp(text, "all") == 0 ? MOST_SETS : atoi(text);
}

static void study_net(small_net net) {
    study s = {.net = net};
    fri_meta_target_set(fri_backend_get(test_device()));
    for (int amp = 0; amp < 3; amp++) {
        small_setting c = setting_of(net, 0);
        c.amp = (small_amp)amp;
        small_train(&c, test_device(), &s.off[amp]);
        cr_assert(isfinite(s.off[amp].loss[STEPS - 1]));
        cr_expect_neq(s.off[amp].loss[0], s.off[amp].loss[STEPS - 1], "%s does not train", small_net_names[net]);
    }
    for (int i = 0; i < switches(); i++) run_set(&s, BIT(i));
    run_choice(&s, wanted_sets());
    cr_log_info("%s: %d sets of switches", small_net_names[net], s.runs);
    for (int amp = 0; amp < 3; amp++) small_record_free(&s.off[amp]);
    fri_meta_target_set(NULL);
    fr_switches_set(fr_switches_default());
    fr_offload_close();
    expect_nothing_left();
}

Test(switch_pairs, vgg, .timeout = 3000) {
    study_net(SMALL_VGG);
}

Test(switch_pairs, resnet, .timeout = 3000) {
    study_net(SMALL_RESNET);
}

Test(switch_pairs, densenet, .timeout = 3000) {
    study_net(SMALL_DENSENET);
}

Test(switch_pairs, unet, .timeout = 3000) {
    study_net(SMALL_UNET);
}

/* ---- bounded differences ------------------------------------------------------------------------------------- */

/* Autocast rounds inputs, weights and maps to 11 (f16) or 8 (bf16) bits: relative to f32, the first loss is off by at
 * most 1 rounding. Training amplifies the difference; over 20 steps the losses stay within 5 % of the first loss
 * (docs/memory.md). */
Test(switch_pairs, autocast_stays_near_f32, .timeout = 250) {
    static const double first[3] = {0, 0x1p-11, 0x1p-8}, later = 0.05;
    for (int net = 0; net < SMALL_NETS; net++) {
        small_record r[3];
        for (int amp = 0; amp < 3; amp++) {
            small_setting c = setting_of((small_net)net, 0);
            c.amp = (small_amp)amp;
            small_train(&c, test_device(), &r[amp]);
        }
        for (int amp = 1; amp < 3; amp++) {
            const char *name = amp == 1 ? "f16" : "bf16";
            double off = fabs(r[amp].loss[0] / r[0].loss[0] - 1), worst = 0;
            for (int i = 0; i < STEPS; i++) worst = fmax(worst, fabs(r[amp].loss[i] - r[0].loss[i]) / r[0].loss[0]);
            cr_log_info("%s in %s: first loss off by %.2g, all by %.2g", small_net_names[net], name, off, worst);
            cr_expect_leq(off, first[amp], "%s in %s: the first loss is off by %g", small_net_names[net], name, off);
            cr_expect_leq(worst, later, "%s in %s: losses are off by %g", small_net_names[net], name, worst);
            cr_expect_neq(memcmp(r[amp].loss, r[0].loss, sizeof r[0].loss), 0, "autocast did nothing");
        }
        for (int amp = 0; amp < 3; amp++) small_record_free(&r[amp]);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}
