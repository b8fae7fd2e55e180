/* flows.h - what torch.cuda.memory_stats counts, by pool of blocks. The allocator's lock is held. */
#ifndef FRI_MEMORY_FLOWS_H
#define FRI_MEMORY_FLOWS_H

#include "memory/allocator.h"

/* `small`: of which pool; it counts for all, too. */
void fri_flow_up(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount);
void fri_flow_down(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount);
/* A block that begins to live, and one that ends. */
void fri_flow_block(fri_allocator *a, const fri_block *b, bool lives);
void fri_flow_segment(fri_allocator *a, bool small, size_t bytes, bool taken);
/* A cached block of `size` bytes, a piece of its segment or not, now serves a request that leaves `rest` of it. */
void fri_flow_split(fri_allocator *a, const fri_block *b, bool was_piece, size_t rest);
/* A freed block of which so many bytes and pieces were cached before is cached as a whole. */
void fri_flow_cached(fri_allocator *a, const fri_block *b, size_t joined, size_t pieces);
void fri_flows_reset_peak(fri_allocator *a);
void fri_flows_print(const fr_memory_flows *t, fr_device d, FILE *out);

#endif
