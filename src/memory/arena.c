/* arena.c - follows a placement, and learns a new placement after a departure. */
#include "memory/arena.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Limits of learning: a program whose steps never repeat stays on the caching allocator. */
enum { VARIANTS_MAX = 8 };
static const size_t NOTES_MAX = 1 << 20;

/* A variant of a section, in order of allocation. */
typedef struct variant {
    int section;
    fri_place *plan;
    size_t n;
    bool learned; /* owns plan */
} variant;

struct fri_arena {
    size_t extent;
    fri_place *plan;
    variant *variants; /* the first n_sections are the plan's */
    int n_variants, n_sections;
    int *current; /* per section: the first variant to try */
    int section;  /* n_sections: none */
    size_t next;  /* position in the variant */
    bool departed;
    fri_place *live; /* sorted by offset */
    size_t n_live;

    /* Note [Learning] */
    fri_lifetime *notes; /* of the section; begin and end count allocations and frees */
    size_t n_notes, clock, alive;
    uint32_t generation; /* of the section's notes */
    bool lost;           /* a note is missing */
};

fr_status fri_arena_create(const fri_lifetime *l, size_t n, const size_t *first, const size_t *end, int n_sections,
                           size_t extent, fri_arena **out) {
    fri_arena *a = calloc(1, sizeof *a);
    if (a == NULL) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    a->plan = malloc((n + 1) * sizeof(*a->plan));
    a->variants = calloc((size_t)n_sections + 1, sizeof(*a->variants));
    a->current = malloc(((size_t)n_sections + 1) * sizeof(*a->current));
    if (a->plan == NULL || a->variants == NULL || a->current == NULL) {
        fri_arena_destroy(&a);
        return fr_fail(FR_ENOMEM, "arena: out of host memory");
    }
    for (size_t i = 0; i < n; i++) a->plan[i] = (fri_place){l[i].offset, l[i].bytes};
    for (int i = 0; i < n_sections; i++) {
        a->variants[i] = (variant){.section = i, .plan = a->plan + first[i], .n = end[i] - first[i]};
        a->current[i] = i;
    }
    a->n_variants = a->n_sections = a->section = n_sections;
    a->departed = true;
    a->extent = extent;
    *out = a;
    return FR_OK;
}

void fri_arena_destroy(fri_arena **p) {
    fri_arena *a = *p;
    *p = NULL;
    if (a == NULL) return;
    for (int i = 0; i < a->n_variants; i++)
        if (a->variants[i].learned) free(a->variants[i].plan);
    free(a->plan);
    free(a->variants);
    free(a->current);
    free(a->live);
    free(a->notes);
    free(a);
}

size_t fri_arena_extent(const fri_arena *a) {
    return a->extent;
}

bool fri_arena_departed(const fri_arena *a) {
    return a->departed;
}

/* ---- learning ---------------------------------------------------------------------------------------------- */

/* Blocks that end above the arena move to the extension and are placed anew there. */
static fr_status place_extension(const fri_arena *a, fri_lifetime *l, size_t n, size_t *extension) {
    size_t spilled = 0;
    FRI_OWNED(fri_free) fri_lifetime *out = malloc((n + 1) * sizeof(*out));
    if (out == NULL) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    for (size_t i = 0; i < n; i++)
        if (l[i].offset + l[i].bytes > a->extent) out[spilled++] = l[i];
    FRI_TRY(fri_arena_place_beside(out, spilled, NULL, 0, 0, extension));
    for (size_t i = 0, k = 0; i < n; i++)
        if (l[i].offset + l[i].bytes > a->extent) l[i].offset = a->extent + out[k++].offset;
    return FR_OK;
}

static int variants_of(const fri_arena *a, int section) {
    int n = 0;
    for (int i = 0; i < a->n_variants; i++) n += a->variants[i].section == section;
    return n;
}

static bool worth_learning(const fri_arena *a) {
    return a->departed && a->section < a->n_sections && !a->lost && a->n_notes > 0 && a->alive == 0 &&
           variants_of(a, a->section) < VARIANTS_MAX;
}

static void learn_variant(fri_arena *a, fri_arena_extend_fn *extend, void *ctx) {
    size_t extent = 0, extension = 0, n = a->n_notes;
    const fri_place *top = a->n_live > 0 ? &a->live[a->n_live - 1] : NULL;
    if (top != NULL && top->offset >= a->extent) return; /* the extension cannot move */
    variant *variants = realloc(a->variants, ((size_t)a->n_variants + 1) * sizeof(*variants));
    fri_place *plan = malloc(n * sizeof(*plan));
    if (variants != NULL) a->variants = variants;
    if (variants == NULL || plan == NULL ||
        fri_arena_place_beside(a->notes, n, a->live, a->n_live, a->extent, &extent) < 0 ||
        (extent > a->extent && place_extension(a, a->notes, n, &extension) < 0) || !extend(ctx, extension)) {
        free(plan);
        return;
    }
    for (size_t i = 0; i < n; i++) plan[i] = (fri_place){a->notes[i].offset, a->notes[i].bytes};
    a->variants[a->n_variants] = (variant){.section = a->section, .plan = plan, .n = n, .learned = true};
    a->current[a->section] = a->n_variants++;
}

void fri_arena_section(fri_arena *a, int section, fri_arena_extend_fn *extend, void *ctx) {
    if (worth_learning(a)) learn_variant(a, extend, ctx);
    bool known = section >= 0 && section < a->n_sections;
    a->section = known ? section : a->n_sections;
    a->departed = !known;
    a->next = a->n_notes = a->clock = a->alive = 0;
    a->generation++;
    a->lost = false;
}

static uint64_t take_note(fri_arena *a, size_t bytes) {
    if (a->section == a->n_sections || a->lost) return 0;
    if (a->n_notes == NOTES_MAX || FRI_ROOM(a->notes, a->n_notes, "arena") < 0) {
        a->lost = true;
        return 0;
    }
    a->notes[a->n_notes++] = (fri_lifetime){.begin = a->clock++, .end = SIZE_MAX, .bytes = bytes};
    a->alive++;
    return (uint64_t)a->generation << 32 | a->n_notes;
}

void fri_arena_gone(fri_arena *a, uint64_t note) {
    if (note >> 32 != a->generation || (note & UINT32_MAX) == 0) return;
    a->notes[(note & UINT32_MAX) - 1].end = a->clock++;
    a->alive--;
}

/* ---- following --------------------------------------------------------------------------------------------- */

/* First live place that ends after `offset`. */
static size_t live_at(const fri_arena *a, size_t offset) {
    size_t low = 0, high = a->n_live;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->live[middle].offset + a->live[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* True if the allocation equals the next of v, and the place is free. */
static bool matches_next(const fri_arena *a, const variant *v, size_t bytes, size_t *at) {
    if (a->next >= v->n || v->plan[a->next].bytes != bytes) return false;
    const fri_place *p = &v->plan[a->next];
    *at = live_at(a, p->offset);
    return *at == a->n_live || a->live[*at].offset >= p->offset + bytes;
}

/* True if v began with the section's allocations. */
static bool began_so(const fri_arena *a, const variant *v) {
    if (v->section != a->section || v->n <= a->next) return false;
    for (size_t i = 0; i < a->next; i++)
        if (v->plan[i].bytes != a->notes[i].bytes) return false;
    return true;
}

static const variant *variant_for(fri_arena *a, size_t bytes, size_t *at) {
    const variant *v = &a->variants[a->current[a->section]];
    if (matches_next(a, v, bytes, at)) return v;
    for (int i = a->n_variants - 1; i >= 0 && !a->lost; i--)
        if (began_so(a, &a->variants[i]) && matches_next(a, &a->variants[i], bytes, at)) {
            a->current[a->section] = i;
            return &a->variants[i];
        }
    return NULL;
}

bool fri_arena_take(fri_arena *a, size_t bytes, size_t *offset, uint64_t *note) {
    size_t at = 0;
    const variant *v = a->departed ? NULL : variant_for(a, bytes, &at);
    *note = take_note(a, bytes);
    if (v == NULL || FRI_ROOM(a->live, a->n_live, "arena") < 0) {
        a->departed = true;
        return false;
    }
    memmove(a->live + at + 1, a->live + at, (a->n_live - at) * sizeof(*a->live));
    a->live[at] = v->plan[a->next];
    a->n_live++;
    *offset = v->plan[a->next].offset;
    a->next++;
    return true;
}

void fri_arena_give(fri_arena *a, size_t offset) {
    size_t at = live_at(a, offset);
    if (at == a->n_live || a->live[at].offset != offset) return;
    memmove(a->live + at, a->live + at + 1, (a->n_live - at - 1) * sizeof(*a->live));
    a->n_live--;
}
