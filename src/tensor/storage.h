/* storage.h - memory shared by tensors, and the two kinds of owners it has.
 *
 * `handles` counts tensors that a program can reach; `slots` counts saved slots of graph nodes. When the last handle
 * dies while slots remain, only backward can still need the bytes: that instant is the storage's settling, and the
 * autograd floor is told by the hook (Note [Settling] in src/autograd/settle.c). When both are 0 the block goes back to
 * the allocator. */
#ifndef FRI_TENSOR_STORAGE_H
#define FRI_TENSOR_STORAGE_H

#include "backend/backend.h"
#include "memory/allocator.h"

typedef struct fri_storage {
    int handles, slots;
    fri_block *block;
    const fri_backend *backend;
    uint64_t version;                  /* writes in place so far */
    const char *last_writer;           /* op of the last write, for messages */
    uint64_t birth;                    /* creation number in the process */
    bool settled;                      /* settled; handles made by backward do not settle again */
    void *savers;                      /* autograd: list of the storage's slots */
    void (*foreign_free)(void *owner); /* foreign memory (fri_storage_foreign); NULL: the allocator's */
    void *foreign_owner;
    void *producer; /* autograd: node with the storage as output, not owned; NULL outside any graph */
} fri_storage;

fr_status fri_storage_create(fr_device d, size_t bytes, const fr_tag *tag, fri_storage **out); /* one handle */

/* A storage on foreign host memory, in no allocator, event or report. Calls fn(owner) after the last use. Has a
 * handle. */
fr_status fri_storage_foreign(void *data, size_t bytes, const fr_tag *tag, void (*fn)(void *owner), void *owner,
                              fri_storage **out);

void fri_storage_retain_handle(fri_storage *s);
void fri_storage_release_handle(fri_storage *s);
void fri_storage_retain_slot(fri_storage *s);
void fri_storage_release_slot(fri_storage *s);

/* Called when the last handle dies and slots remain, with slots still counted; and when a storage dies with a
 * producer. */
typedef struct fri_storage_hooks {
    void (*settle)(fri_storage *s);
    void (*orphan)(fri_storage *s);
} fri_storage_hooks;
void fri_storage_set_hooks(fri_storage_hooks hooks);

uint64_t fri_storage_next_birth(void); /* the number the next storage will get */

static inline void *fri_storage_data(const fri_storage *s) {
    return s->block->data;
}

#endif
