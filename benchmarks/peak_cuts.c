/* peak_cuts.c - see peak_cuts.h. Dry runs on meta: a step of VGG-16 takes about a millisecond. */
#include "peak_cuts.h"

#include <string.h>

static bool better(const peak_result *a, const peak_result *b) {
    return a->peak != b->peak ? a->peak < b->peak : a->saved < b->saved;
}

/* Puts r among the ranges of p, outer before inner, by first unit; false if it overlaps one in part or is there. */
static bool insert(peak_cuts *p, fr_unit_range r) {
    int at = 0;
    for (int i = 0; i < p->plan.ranges; i++) {
        fr_unit_range o = p->range[i];
        bool apart = r.end <= o.first || o.end <= r.first;
        bool inside = r.first >= o.first && r.end <= o.end, around = o.first >= r.first && o.end <= r.end;
        if (!apart && inside == around) return false;
        if (o.first < r.first || (o.first == r.first && inside)) at = i + 1;
    }
    if (p->plan.ranges == PEAK_UNITS) return false;
    memmove(&p->range[at + 1], &p->range[at], (size_t)(p->plan.ranges - at) * sizeof *p->range);
    p->range[at] = r;
    p->plan.ranges++;
    return true;
}

static void erase(peak_cuts *p, fr_unit_range r) {
    int at = 0;
    while (p->range[at].first != r.first || p->range[at].end != r.end) at++;
    p->plan.ranges--;
    memmove(&p->range[at], &p->range[at + 1], (size_t)(p->plan.ranges - at) * sizeof *p->range);
}

/* Ranges that were a step on the way and lower nothing any more cost time only. */
static void prune(peak_cuts *p, const peak_setting *dry, const peak_case *c, size_t peak) {
    peak_result r;
    for (int i = 0; i < p->plan.ranges;) {
        fr_unit_range range = p->range[i];
        erase(p, range);
        peak_measure(dry, c, &r);
        p->tried++;
        if (r.peak <= peak) continue;
        insert(p, range);
        i++;
    }
}

bool peak_cuts_find(const peak_setting *at, const peak_case *c, peak_cuts *out) {
    peak_setting dry = *at;
    peak_case trial = *c;
    peak_result best, r;
    dry.device = FR_META;
    *out = (peak_cuts){.plan = {.option = out->option, .range = out->range, .first = out->first}};
    int units = out->plan.units = peak_units(at, out->first, PEAK_UNITS);
    if (units < 2 || units > PEAK_UNITS) return false;
    trial.how = PEAK_PLAN;
    trial.plan = &out->plan;
    peak_measure(&dry, &trial, &best);
    for (bool improved = true; improved;) {
        fr_unit_range choice = {0};
        improved = false;
        for (int first = 0; first < units; first++)
            for (int end = first + 1; end <= units; end++) {
                fr_unit_range range = {first, end};
                if (!insert(out, range)) continue;
                peak_measure(&dry, &trial, &r);
                erase(out, range);
                out->tried++;
                if (!better(&r, &best)) continue;
                best = r;
                choice = range;
                improved = true;
            }
        if (improved) insert(out, choice);
    }
    prune(out, &dry, &trial, best.peak);
    return true;
}
