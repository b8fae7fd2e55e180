/* freelist.c - see freelist.h. */
#include "memory/freelist.h"

#include "memory/segment.h"

#include <stdlib.h>
#include <string.h>

static bool block_before(const fri_block *a, const fri_block *b) {
    if (a->size != b->size) return a->size < b->size;
    if (a->segment->number != b->segment->number) return a->segment->number < b->segment->number;
    return a->offset < b->offset;
}

bool fri_freelist_reserve(fri_freelist *l, size_t count) {
    if (count <= l->capacity) return true;
    size_t capacity = l->capacity < 64 ? 64 : 2 * l->capacity;
    if (capacity < count) capacity = count;
    fri_block **items = realloc(l->items, capacity * sizeof(*items));
    if (items == NULL) return false;
    l->items = items;
    l->capacity = capacity;
    return true;
}

/* The first index with a block not before b. */
static size_t lower_bound(const fri_freelist *l, const fri_block *b) {
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (block_before(l->items[middle], b))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void fri_freelist_insert(fri_freelist *l, fri_block *b) {
    size_t at = lower_bound(l, b);
    memmove(l->items + at + 1, l->items + at, (l->count - at) * sizeof(*l->items));
    l->items[at] = b;
    l->count++;
}

void fri_freelist_remove(fri_freelist *l, fri_block *b) {
    size_t at = lower_bound(l, b);
    memmove(l->items + at, l->items + at + 1, (l->count - at - 1) * sizeof(*l->items));
    l->count--;
}

fri_block *fri_freelist_take(fri_freelist *l, size_t size) {
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (l->items[middle]->size < size)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == l->count) return NULL;
    fri_block *b = l->items[low];
    fri_freelist_remove(l, b);
    return b;
}
