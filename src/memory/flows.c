/* flows.c - see flows.h, and fr_memory_flows in frugal/memory.h.
 *
 * The updates are those of c10/cuda/CUDACachingAllocator.cpp, in sequence, because totals depend on the updates. Blocks
 * are free at once, so PyTorch's "active" is its "allocated". */
#include "memory/flows.h"

#include "base/status.h"
#include "memory/report.h"
#include "memory/segment.h"

#include <inttypes.h>
#include <string.h>

static fr_memory_flow *flow_of(fri_allocator *a, fr_memory_flow_kind kind, int pool) {
    return &a->flows.flow[kind][pool];
}

void fri_flow_up(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount) {
    for (int k = 0; k < 2; k++) {
        fr_memory_flow *f = flow_of(a, kind, k == 0 ? FR_MEMORY_ALL : small ? FR_MEMORY_SMALL : FR_MEMORY_LARGE);
        f->now += amount;
        f->total += amount;
        if (f->now > f->peak) f->peak = f->now;
    }
}

void fri_flow_down(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount) {
    for (int k = 0; k < 2; k++) {
        fr_memory_flow *f = flow_of(a, kind, k == 0 ? FR_MEMORY_ALL : small ? FR_MEMORY_SMALL : FR_MEMORY_LARGE);
        f->now -= amount;
        f->freed += amount;
    }
}

static void change_flow(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount, bool up) {
    (up ? fri_flow_up : fri_flow_down)(a, kind, small, amount);
}

/* The arena's blocks belong to no pool and count by size. */
void fri_flow_block(fri_allocator *a, const fri_block *b, bool lives) {
    bool small = b->segment != NULL ? b->segment->small : b->size <= FRI_SMALL_BYTES;
    if (b->size == 0) return; /* unknown to PyTorch's allocator */
    change_flow(a, FR_FLOW_ALLOCATED, small, b->size, lives);
    change_flow(a, FR_FLOW_REQUESTED, small, b->requested, lives);
    change_flow(a, FR_FLOW_ALLOCATIONS, small, 1, lives);
    if (b->size >= a->settings.max_split) change_flow(a, FR_FLOW_OVERSIZE_ALLOCATIONS, small, 1, lives);
}

void fri_flow_segment(fri_allocator *a, bool small, size_t bytes, bool taken) {
    change_flow(a, FR_FLOW_RESERVED, small, bytes, taken);
    change_flow(a, FR_FLOW_SEGMENTS, small, 1, taken);
    if (bytes >= a->settings.max_split) change_flow(a, FR_FLOW_OVERSIZE_SEGMENTS, small, 1, taken);
}

void fri_flow_split(fri_allocator *a, const fri_block *b, bool was_piece, size_t rest) {
    bool small = b->segment->small;
    if (was_piece) fri_flow_down(a, FR_FLOW_INACTIVE_SPLIT, small, b->size);
    if (was_piece && rest == 0) fri_flow_down(a, FR_FLOW_INACTIVE_SPLITS, small, 1);
    if (was_piece || rest == 0) return;
    fri_flow_up(a, FR_FLOW_INACTIVE_SPLIT, small, rest);
    fri_flow_up(a, FR_FLOW_INACTIVE_SPLITS, small, 1);
}

void fri_flow_cached(fri_allocator *a, const fri_block *b, size_t joined, size_t pieces) {
    bool small = b->segment->small, piece = b->prev != NULL || b->next != NULL;
    size_t size = piece ? b->size : 0, count = piece ? 1 : 0;
    if (count > pieces) fri_flow_up(a, FR_FLOW_INACTIVE_SPLITS, small, count - pieces);
    if (count < pieces) fri_flow_down(a, FR_FLOW_INACTIVE_SPLITS, small, pieces - count);
    if (size > joined) fri_flow_up(a, FR_FLOW_INACTIVE_SPLIT, small, size - joined);
    if (size < joined) fri_flow_down(a, FR_FLOW_INACTIVE_SPLIT, small, joined - size);
}

/* ---- the table --------------------------------------------------------------------------------------------- */

/* Whole units, rounded down, by the size of the row's first line. */
static void print_cell(FILE *out, size_t value, size_t first, bool bytes) {
    static const char *const sizes[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"}, *const counts[] = {" ", "K", "M"};
    double scale = bytes ? 1024 : 1000, v = (double)first;
    int last = bytes ? 5 : 2, unit = 0;
    for (; unit < last && v >= (bytes ? 768 * 1024 : 750 * 1000); unit++) {
        v /= scale;
        value /= (size_t)scale;
    }
    fprintf(out, bytes ? " %6zu %s |" : " %7zu %s  |", value, bytes ? sizes[unit] : counts[unit]);
}

static void rows(const fr_memory_flows *t, fr_memory_flow_kind kind, const char *name, bool bytes, int n, FILE *out) {
    static const char *const pools[] = {"", "      from large pool", "      from small pool"};
    const fr_memory_flow *first = &t->flow[kind][FR_MEMORY_ALL];
    for (int p = 0; p < n; p++) {
        const fr_memory_flow *f = &t->flow[kind][p];
        fprintf(out, "| %-21s |", p == FR_MEMORY_ALL ? name : pools[p]);
        print_cell(out, f->now, first->now, bytes);
        print_cell(out, f->peak, first->peak, bytes);
        print_cell(out, f->total, first->total, bytes);
        print_cell(out, f->freed, first->freed, bytes);
        fputc('\n', out);
    }
}

static void print_rule(char c, FILE *out) {
    char line[76];
    memset(line, c, 75);
    line[75] = '\0';
    fprintf(out, "|%s|\n", line);
}

static const struct {
    fr_memory_flow_kind kind;
    const char *name;
    bool bytes;
    int rows;
} table[] = {
    {FR_FLOW_ALLOCATED, "Allocated memory", true, FR_MEMORY_POOLS},
    {FR_FLOW_ALLOCATED, "Active memory", true, FR_MEMORY_POOLS},
    {FR_FLOW_REQUESTED, "Requested memory", true, FR_MEMORY_POOLS},
    {FR_FLOW_RESERVED, "GPU reserved memory", true, FR_MEMORY_POOLS},
    {FR_FLOW_INACTIVE_SPLIT, "Non-releasable memory", true, FR_MEMORY_POOLS},
    {FR_FLOW_ALLOCATIONS, "Allocations", false, FR_MEMORY_POOLS},
    {FR_FLOW_ALLOCATIONS, "Active allocs", false, FR_MEMORY_POOLS},
    {FR_FLOW_SEGMENTS, "GPU reserved segments", false, FR_MEMORY_POOLS},
    {FR_FLOW_INACTIVE_SPLITS, "Non-releasable allocs", false, FR_MEMORY_POOLS},
    {FR_FLOW_OVERSIZE_ALLOCATIONS, "Oversize allocations", false, 1},
    {FR_FLOW_OVERSIZE_SEGMENTS, "Oversize GPU segments", false, 1},
};

void fri_flows_print(const fr_memory_flows *t, fr_device d, FILE *out) {
    print_rule('=', out);
    fprintf(out, "|                  frugal memory summary, device %-26s |\n", fr_device_name(d));
    print_rule('-', out);
    fprintf(out, "|            CUDA OOMs: %-12" PRIu64 " |        cudaMalloc retries: %-8" PRIu64 "  |\n", t->ooms,
            t->retries);
    print_rule('=', out);
    fputs("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n", out);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        print_rule('-', out);
        rows(t, table[i].kind, table[i].name, table[i].bytes, table[i].rows, out);
    }
    print_rule('=', out);
}

void fri_flows_reset_peak(fri_allocator *a) {
    for (int k = 0; k < FR_MEMORY_FLOWS; k++)
        for (int p = 0; p < FR_MEMORY_POOLS; p++) a->flows.flow[k][p].peak = a->flows.flow[k][p].now;
}

fr_status fri_memory_flows_get(fr_device d, fr_memory_flows *out) {
    FRI_NOT_NULL(out);
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    fri_allocator_lock(a);
    *out = a->flows;
    out->ooms = a->stats.ooms;
    out->retries = a->stats.retries;
    fri_allocator_unlock(a);
    return FR_OK;
}
