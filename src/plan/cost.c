/* cost.c - see cost.h. */
#include "plan/cost.h"

#include "backend/backend.h"
#include "base/atomic_file.h"
#include "base/cache.h"
#include "base/number.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 384, PATH_BYTES = 1024, KINDS = 96, FILE_MAX = 4 << 20 /* bytes, some 40,000 kernels */ };

typedef struct entry {
    char *key; /* "conv2d_forward f32 64 ..." */
    double seconds, flops, bytes;
} entry;

/* Correction of estimates for a kernel and element type. */
typedef struct kind {
    char name[48];
    double measured, estimated;
} kind;

struct fri_cost {
    fr_device target;
    char environment[192], path[PATH_BYTES];
    entry *entries; /* open addressing; key NULL: free */
    size_t count, capacity;
    kind kinds[KINDS];
    int n_kinds;
    kind all[2]; /* bound by traffic, bound by arithmetic: for kernels without any measurement */
    int64_t hits, misses;
};

static void key_of(const fri_kernel_call *k, char text[KEY_BYTES]) {
    int at = snprintf(text, KEY_BYTES, "%s %s", k->name, fr_dtype_name(k->dtype));
    for (int i = 0; i < k->n && at > 0 && at < KEY_BYTES; i++)
        at += snprintf(text + at, (size_t)(KEY_BYTES - at), " %" PRId64, k->dim[i]);
}

/* ---- estimates --------------------------------------------------------------------------------------------- */

/* Rates of a plain machine: a core with AVX-512, two memory channels; a data-center GPU; PCIe and a file in the page
 * cache. The rates balance arithmetic against traffic until the first measurement. */
static double estimate_time(fr_device target, double flops, double bytes, const char *key, bool *arithmetic_bound) {
    bool gpu = target == FR_CUDA, half = strstr(key, "f16 ") != NULL; /* bf16 too */
    double per_second = gpu ? (half ? 400e12 : 40e12) : 40e9 * fr_threads_get();
    double moved = gpu ? 3e12 : 12e9, launch = gpu ? 4e-6 : 2e-6;
    if (strncmp(key, "transfer ", 9) == 0) moved = gpu ? 20e9 : 2e9;
    double arithmetic = flops / per_second, traffic = bytes / moved;
    *arithmetic_bound = arithmetic > traffic;
    return launch + (arithmetic > traffic ? arithmetic : traffic);
}

/* The kernel and element type of a key: the first two words. */
static kind *kind_of(fri_cost *c, const char *key, bool create) {
    const char *end = strchr(key, ' ');
    end = end != NULL ? strchr(end + 1, ' ') : NULL;
    size_t n = end != NULL ? (size_t)(end - key) : strlen(key);
    for (int i = 0; i < c->n_kinds; i++)
        if (strncmp(c->kinds[i].name, key, n) == 0 && c->kinds[i].name[n] == '\0') return &c->kinds[i];
    if (!create || c->n_kinds == KINDS || n >= sizeof c->kinds->name) return NULL;
    kind *k = &c->kinds[c->n_kinds++];
    *k = (kind){0};
    memcpy(k->name, key, n);
    return k;
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static entry *find_entry(const fri_cost *c, const char *key) {
    if (c->capacity == 0) return NULL;
    for (size_t i = fri_hash(FRI_HASH, key, strlen(key)) % c->capacity;; i = (i + 1) % c->capacity)
        if (c->entries[i].key == NULL || strcmp(c->entries[i].key, key) == 0) return &c->entries[i];
}

static fr_status grow_table(fri_cost *c) {
    entry *old = c->entries;
    size_t n = c->capacity;
    size_t capacity = n > 0 ? 2 * n : 256;
    entry *entries = calloc(capacity, sizeof *entries);
    if (entries == NULL) return fr_fail(FR_ENOMEM, "cost: out of host memory");
    c->entries = entries;
    c->capacity = capacity;
    for (size_t i = 0; i < n; i++)
        if (old[i].key != NULL) *find_entry(c, old[i].key) = old[i];
    free(old);
    return FR_OK;
}

static fr_status put_entry(fri_cost *c, const char *key, const entry *new) {
    if (2 * (c->count + 1) > c->capacity) {
        FRI_TRY(grow_table(c));
    }
    entry *e = find_entry(c, key);
    bool arithmetic;
    double estimated = estimate_time(c->target, new->flops, new->bytes, key, &arithmetic);
    kind *k = kind_of(c, key, true), *all = &c->all[arithmetic];
    if (e->key == NULL) {
        char *copy = strdup(key);
        if (copy == NULL) return fr_fail(FR_ENOMEM, "cost: out of host memory");
        *e = *new;
        e->key = copy;
        c->count++;
        if (k != NULL) {
            k->measured += new->seconds;
            k->estimated += estimated;
        }
        all->measured += new->seconds;
        all->estimated += estimated;
    } else if (new->seconds < e->seconds) {
        if (k != NULL) k->measured += new->seconds - e->seconds;
        all->measured += new->seconds - e->seconds;
        e->seconds = new->seconds;
    }
    return FR_OK;
}

double fri_cost_seconds(fri_cost *c, const fri_kernel_call *call) {
    char key[KEY_BYTES];
    key_of(call, key);
    const entry *e = find_entry(c, key);
    if (e != NULL && e->key != NULL) {
        c->hits++;
        return e->seconds;
    }
    c->misses++;
    bool arithmetic;
    double estimated = estimate_time(c->target, call->flops, call->bytes, key, &arithmetic);
    const kind *k = kind_of(c, key, false);
    if (k == NULL || !(k->estimated > 0)) k = &c->all[arithmetic];
    return k->estimated > 0 ? estimated * k->measured / k->estimated : estimated;
}

fr_status fri_cost_add(fri_cost *c, const fri_kernel_call *call, double seconds) {
    char key[KEY_BYTES];
    key_of(call, key);
    return put_entry(c, key, &(entry){.seconds = seconds, .flops = call->flops, .bytes = call->bytes});
}

void fri_cost_coverage(const fri_cost *c, int64_t *measured, int64_t *estimated) {
    *measured = c->hits;
    *estimated = c->misses;
}

size_t fri_cost_count(const fri_cost *c) {
    return c->count;
}

const char *fri_cost_path(const fri_cost *c) {
    return c->path;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static const char header[] = "frugal kernel times 1";

/* "0.00123 2.4e9 1.1e8 conv2d_forward f32 64 224 ...": seconds, operations, bytes, key. Lines of a different form are
 * skipped. */
static fr_status read_line(fri_cost *c, const char *line) {
    entry e = {0};
    int at = 0;
    if (sscanf(line, "%lf %lf %lf %n", &e.seconds, &e.flops, &e.bytes, &at) != 3 || at == 0 ||
        strchr(line + at, ' ') == NULL || !(e.seconds > 0) || !isfinite(e.seconds) || !isfinite(e.flops) ||
        !isfinite(e.bytes))
        return FR_OK;
    return put_entry(c, line + at, &e);
}

static fr_status load_costs(fri_cost *c) {
    char line[KEY_BYTES + 128];
    fr_status s = FR_OK;
    FILE *f = NULL;
    uint64_t bytes = 0;
    if (c->path[0] == '\0' || fri_input_stream(c->path, &f, &bytes) < 0) return FR_OK;
    if (bytes > FILE_MAX) {
        fclose(f);
        return FR_OK;
    }
    for (int n = 0; s == FR_OK && fgets(line, sizeof line, f) != NULL; n++) {
        line[strcspn(line, "\n")] = '\0';
        if (n == 0 && strcmp(line, header) != 0) break;
        if (n == 1 && strcmp(line, c->environment) != 0) break;
        if (n > 1) s = read_line(c, line);
    }
    fclose(f);
    return s;
}

fr_status fri_cost_open(fr_device target, fri_cost **out) {
    const fri_backend *b = fri_backend_get(target);
    char library[128] = "";
    FRI_OWNED(fri_cost_release) fri_cost *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "cost: out of host memory");
    c->target = target;
    if (b != NULL && b->describe != NULL) b->describe(library, sizeof library);
    snprintf(c->environment, sizeof c->environment, "%s, %s", fr_device_name(target), library);
    (void)fri_cache_path("times", c->environment, c->path, sizeof c->path);
    FRI_TRY(load_costs(c));
    fri_cost_release(out);
    FRI_MOVE(out, c);
    return FR_OK;
}

void fri_cost_release(fri_cost **p) {
    fri_cost *c = *p;
    *p = NULL;
    if (c == NULL) return;
    for (size_t i = 0; i < c->capacity; i++) free(c->entries[i].key);
    free(c->entries);
    free(c);
}

fr_status fri_cost_save(const fri_cost *c) {
    FRI_OWNED(fr_atomic_abandon) fr_atomic_file file = FR_ATOMIC_FILE_CLOSED;
    fr_status s = FR_OK;
    if (c->path[0] == '\0')
        return fr_fail(FR_EIO, "cost: kernel times need an absolute path in XDG_CACHE_HOME or HOME");
    fri_cache_make_folders(c->path);
    FR_TRY(s, fr_atomic_open(c->path, 0600, &file));
    FR_TRY(s, fr_atomic_stream(&file));
    fprintf(file.stream, "%s\n%s\n", header, c->environment);
    for (size_t i = 0; i < c->capacity; i++) {
        const entry *e = &c->entries[i];
        if (e->key != NULL) fr_fprintf(file.stream, "%.9g %.17g %.17g %s\n", e->seconds, e->flops, e->bytes, e->key);
    }
    FR_TRY(s, fr_atomic_commit(&file));
done:
    return s < 0 ? fr_fail_prefix(s, "cost: %s: ", c->path) : s;
}
