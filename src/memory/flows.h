/* flows.h - the counts of torch.cuda.memory_stats, by pool of blocks. The allocator's lock is held. */
#ifndef FRI_MEMORY_FLOWS_H
#define FRI_MEMORY_FLOWS_H

#include "memory/allocator.h"

/* `small`: the pool; also counts for all. */
void fri_flow_up(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount);
void fri_flow_down(fri_allocator *a, fr_memory_flow_kind kind, bool small, size_t amount);
/* Start and end of a block. */
void fri_flow_block(fri_allocator *a, const fri_block *b, bool lives);
void fri_flow_segment(fri_allocator *a, bool small, size_t bytes, bool taken);
/* A cached block of `size` bytes (piece: part of a segment) now serves a request and leaves `rest`. */
void fri_flow_split(fri_allocator *a, const fri_block *b, bool was_piece, size_t rest);
/* A freed block joins neighbours with the given cached bytes and pieces. */
void fri_flow_cached(fri_allocator *a, const fri_block *b, size_t joined, size_t pieces);
void fri_flows_reset_peak(fri_allocator *a);
void fri_flows_print(const fr_memory_flows *t, fr_device d, FILE *out);

#endif
