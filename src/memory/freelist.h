/* freelist.h - cached blocks of one pool, ordered by (size, segment number, offset).
 *
 * Never by address: all runs of a program, and dry runs without memory, make equal choices. A sorted array with binary
 * search: a training step caches a few hundred blocks, and moving pointers is cheaper than a tree. */
#ifndef FRI_MEMORY_FREELIST_H
#define FRI_MEMORY_FREELIST_H

#include "memory/allocator.h"

typedef struct fri_freelist {
    fri_block **items;
    size_t count, capacity;
} fri_freelist;

/* Reserves memory for a further block, so the next insert cannot fail. */
bool fri_freelist_reserve(fri_freelist *l, size_t count);
void fri_freelist_insert(fri_freelist *l, fri_block *b);
void fri_freelist_remove(fri_freelist *l, fri_block *b);
fri_block *fri_freelist_take(fri_freelist *l, size_t size); /* removes the smallest block >= size; NULL: none */

#endif
