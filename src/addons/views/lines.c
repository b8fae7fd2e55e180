/* lines.c - fr_track_lines: every allocation and free, charged to the source line that caused it.
 *
 * A subscriber of the event log: only tracked devices pay. At each event the stack is walked outwards twice: to the
 * innermost line of the program, and to the innermost line of the library above the floors of memory. Both lists
 * add up to the allocator's bytes. */
#include "addons/views/files.h"
#include "addons/views/source.h"

#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 256, SOURCE_TEXT = 160, PATH_TEXT = 4096 };

enum list { PROGRAM, LIBRARY, LISTS };

/* A source line, or an address without line, on a device. */
typedef struct place {
    fr_device device;
    const void *address; /* NULL: blocks from before the tracker */
    fri_source_line source;
    size_t allocated, freed; /* by the line */
    size_t live, at_peak;    /* of the line's allocations */
} place;

typedef struct known_address {
    const void *address; /* NULL: empty */
    fri_source_line source;
} known_address;

typedef struct live_block {
    fr_device device;
    uint64_t block;
    size_t bytes, place[LISTS];
} live_block;

typedef struct lines {
    FILE *out;
    fri_sources *sources;
    place *place[LISTS];
    size_t n[LISTS];
    live_block *block;
    size_t n_blocks;
    known_address *known; /* a hash table; capacity is a power of two, at most half full */
    size_t n_known, capacity;
    size_t live[FR_DEVICE_COUNT], peak[FR_DEVICE_COUNT];
    bool seen[FR_DEVICE_COUNT], no_memory;
} lines;

/* ---- where --------------------------------------------------------------------------------------------------- */

static known_address *slot_of(known_address *table, size_t capacity, const void *address) {
    size_t i = ((uintptr_t)address * 0x9e3779b97f4a7c15u >> 20) & (capacity - 1);
    while (table[i].address != NULL && table[i].address != address) i = (i + 1) & (capacity - 1);
    return &table[i];
}

static bool grow_table(lines *t) {
    size_t capacity = t->capacity > 0 ? 2 * t->capacity : 1024;
    known_address *table = calloc(capacity, sizeof *table);
    if (table == NULL) return false;
    for (size_t i = 0; i < t->capacity; i++)
        if (t->known[i].address != NULL) *slot_of(table, capacity, t->known[i].address) = t->known[i];
    free(t->known);
    t->known = table;
    t->capacity = capacity;
    return true;
}

static fri_source_line find_line(lines *t, const void *address) {
    if (2 * t->n_known >= t->capacity && !grow_table(t)) {
        t->no_memory = true;
        return (fri_source_line){0};
    }
    known_address *k = slot_of(t->known, t->capacity, address);
    if (k->address == NULL) {
        *k = (known_address){address, fri_sources_find(t->sources, address)};
        t->n_known++;
    }
    return k->source;
}

static bool same_place(const place *p, fr_device d, const void *address, const fri_source_line *s) {
    if (p->device != d || (p->address == NULL) != (address == NULL)) return false;
    if (p->source.file == NULL || s->file == NULL) return p->address == address;
    return p->source.line == s->line && strcmp(p->source.file, s->file) == 0;
}

/* SIZE_MAX: out of host memory. */
static size_t place_of(lines *t, enum list l, fr_device d, const void *address) {
    fri_source_line s = address != NULL ? find_line(t, address) : (fri_source_line){0};
    size_t i = 0;
    while (i < t->n[l] && !same_place(&t->place[l][i], d, address, &s)) i++;
    if (i < t->n[l]) return i;
    if (FRI_ROOM(t->place[l], t->n[l], "lines") < 0) {
        t->no_memory = true;
        return SIZE_MAX;
    }
    t->place[l][t->n[l]++] = (place){.device = d, .address = address, .source = s};
    return i;
}

/* The innermost frames of the two lists, from the file's frames outwards: a sanitizer's frames may come first. In a
 * static program without debug information, the program begins outside the outermost call of the library. */
static void walk_frames(lines *t, const void *at[LISTS]) {
    void *frame[FRAMES];
    int n = backtrace(frame, FRAMES), outermost = -1;
    bool inside = false;
    at[PROGRAM] = at[LIBRARY] = NULL;
    for (int i = 0; i < n && at[PROGRAM] == NULL; i++) {
        fri_source_line s = find_line(t, frame[i]);
        inside = inside || s.library;
        if (!inside) continue;
        if (!s.library) at[PROGRAM] = frame[i];
        if (s.library && !s.memory && at[LIBRARY] == NULL) at[LIBRARY] = frame[i];
        if (s.library && s.name != NULL && strncmp(s.name, "fr_", 3) == 0) outermost = i;
    }
    if (outermost >= 0 && outermost + 1 < n) {
        fri_source_line behind = find_line(t, frame[outermost + 1]);
        if (behind.library && behind.file == NULL) at[PROGRAM] = frame[outermost + 1];
    }
    if (at[PROGRAM] == NULL && n > 0) at[PROGRAM] = frame[n - 1];
    if (at[LIBRARY] == NULL) at[LIBRARY] = outermost >= 0 ? frame[outermost] : at[PROGRAM];
}

/* ---- how much ------------------------------------------------------------------------------------------------ */

static void note_peak(lines *t, fr_device d) {
    if (t->live[d] <= t->peak[d]) return;
    t->peak[d] = t->live[d];
    for (int l = 0; l < LISTS; l++)
        for (size_t i = 0; i < t->n[l]; i++)
            if (t->place[l][i].device == d) t->place[l][i].at_peak = t->place[l][i].live;
}

static void add_block(lines *t, fr_device d, uint64_t block, size_t bytes, const void *const address[LISTS]) {
    live_block b = {.device = d, .block = block, .bytes = bytes};
    for (int l = 0; l < LISTS; l++) b.place[l] = place_of(t, (enum list)l, d, address[l]);
    if (t->no_memory || FRI_ROOM(t->block, t->n_blocks, "lines") < 0) {
        t->no_memory = true;
        return;
    }
    t->block[t->n_blocks++] = b;
    for (int l = 0; l < LISTS; l++) {
        t->place[l][b.place[l]].allocated += bytes;
        t->place[l][b.place[l]].live += bytes;
    }
    t->live[d] += bytes;
    note_peak(t, d);
}

/* Blocks of a different pool are unknown. */
static void drop_block(lines *t, const fr_event *e, const void *const address[LISTS]) {
    size_t i = t->n_blocks;
    while (i > 0 && (t->block[i - 1].block != e->block || t->block[i - 1].device != e->device)) i--;
    if (i == 0) return;
    live_block b = t->block[i - 1];
    t->block[i - 1] = t->block[--t->n_blocks];
    for (int l = 0; l < LISTS; l++) {
        size_t by = place_of(t, (enum list)l, e->device, address[l]);
        if (by == SIZE_MAX) return;
        t->place[l][by].freed += b.bytes;
        t->place[l][b.place[l]].live -= b.bytes;
    }
    t->live[e->device] -= b.bytes;
}

/* Blocks from before the tracker have a separate line. */
static void take_earlier(void *ctx, const fr_event *block) {
    add_block(ctx, block->device, block->block, block->allocated, (const void *[LISTS]){NULL, NULL});
}

static void on_lines_event(void *ctx, const fr_event *e) {
    lines *t = ctx;
    const void *address[LISTS];
    if ((e->kind != FR_EVENT_ALLOC && e->kind != FR_EVENT_FREE) || t->no_memory) return;
    t->seen[e->device] = true;
    walk_frames(t, address);
    if (e->kind == FR_EVENT_ALLOC)
        add_block(t, e->device, e->block, e->allocated, address);
    else
        drop_block(t, e, address);
}

/* ---- the listing --------------------------------------------------------------------------------------------- */

static int largest_live_first(const void *a, const void *b) {
    const place *p = a, *q = b;
    if (p->at_peak != q->at_peak) return p->at_peak < q->at_peak ? 1 : -1;
    if (p->allocated != q->allocated) return p->allocated < q->allocated ? 1 : -1;
    return (p->freed < q->freed) - (p->freed > q->freed);
}

/* The line's text, if the file can be read. */
static void print_text(const fri_source_line *s, FILE *out) {
    char text[SOURCE_TEXT], path[PATH_TEXT];
    bool relative = s->file[0] != '/' && s->folder != NULL;
    snprintf(path, sizeof path, "%s%s%s", relative ? s->folder : "", relative ? "/" : "", s->file);
    FILE *f = fopen(path, "r");
    for (int line = 1; f != NULL && fgets(text, sizeof text, f) != NULL;) {
        size_t n = strcspn(text, "\n");
        bool whole = text[n] == '\n';
        text[n] = '\0';
        if (line == s->line) {
            fprintf(out, ": %s", text + strspn(text, " \t"));
            break;
        }
        line += whole;
    }
    if (f != NULL) fclose(f);
}

static void print_place(const place *p, FILE *out) {
    const fri_source_line *s = &p->source;
    fprintf(out, "%14zu %14zu %14zu %14zu %+14td  ", p->live, p->at_peak, p->allocated, p->freed,
            (ptrdiff_t)(p->allocated - p->freed));
    if (p->address == NULL) {
        fprintf(out, "(before)");
    } else if (s->file == NULL) {
        fprintf(out, "%p %s", p->address, s->name != NULL ? s->name : "");
    } else {
        const char *base = strrchr(s->file, '/');
        fprintf(out, "%s:%d %s", base != NULL ? base + 1 : s->file, s->line, s->name != NULL ? s->name : "");
        print_text(s, out);
    }
    fputc('\n', out);
}

static void print_list(const lines *t, enum list l, fr_device d, FILE *out) {
    place sum = {0};
    fprintf(out, "%14s %14s %14s %14s %14s  %s\n", "live", "at peak", "allocated", "freed", "change",
            l == PROGRAM ? "line of the program" : "line of the library");
    for (size_t i = 0; i < t->n[l]; i++) {
        const place *p = &t->place[l][i];
        if (p->device != d || p->allocated + p->freed == 0) continue;
        print_place(p, out);
        sum.live += p->live;
        sum.at_peak += p->at_peak;
        sum.allocated += p->allocated;
        sum.freed += p->freed;
    }
    fprintf(out, "%14zu %14zu %14zu %14zu %+14td  all\n", sum.live, sum.at_peak, sum.allocated, sum.freed,
            (ptrdiff_t)(sum.allocated - sum.freed));
}

static void lines_free(lines *t) {
    fri_sources_close(&t->sources);
    for (int l = 0; l < LISTS; l++) free(t->place[l]);
    free(t->block);
    free(t->known);
    free(t);
}

fr_status fr_track_lines_begin(FILE *out) {
    FRI_NOT_NULL(out);
    if (fr_event_context(on_lines_event) != NULL) return fr_fail(FR_EUSAGE, "lines: tracking runs already; end it");
    lines *t = calloc(1, sizeof *t);
    if (t == NULL) return fr_fail(FR_ENOMEM, "lines: out of host memory");
    t->out = out;
    fr_status s = fri_sources_open(&t->sources);
    if (s == FR_OK) fr_event_blocks(take_earlier, t);
    if (s == FR_OK) s = fr_event_subscribe(on_lines_event, t);
    if (s < 0) lines_free(t);
    return s;
}

fr_status fr_track_lines_end(void) {
    lines *t = fr_event_context(on_lines_event);
    if (t == NULL) return fr_fail(FR_EUSAGE, "lines: end without a begin");
    fr_event_unsubscribe(on_lines_event, t);
    fr_status s = t->no_memory ? fr_fail(FR_ENOMEM, "lines: out of host memory") : FR_OK;
    for (int l = 0; l < LISTS; l++)
        if (t->n[l] > 0) qsort(t->place[l], t->n[l], sizeof *t->place[l], largest_live_first);
    for (int d = 0; s == FR_OK && d < FR_DEVICE_COUNT; d++) {
        if (!t->seen[d]) continue;
        fprintf(t->out, "memory on %s by line, bytes allocated: peak %zu, live now %zu\n", fr_device_name((fr_device)d),
                t->peak[d], t->live[d]);
        for (int l = 0; l < LISTS; l++) print_list(t, (enum list)l, (fr_device)d, t->out);
    }
    if (s == FR_OK && ferror(t->out)) s = fr_fail(FR_EIO, "lines: the stream reports a write error");
    lines_free(t);
    return s;
}
