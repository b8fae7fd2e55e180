/* storage.c - see storage.h. */
#include "tensor/storage.h"

#include "tensor/tensor.h"

#include <stdatomic.h>
#include <stdlib.h>

static fri_storage_hooks hooks;
static _Atomic uint64_t next_birth = 1; /* of the process: a storage may be handed to another thread */

void fri_storage_set_hooks(fri_storage_hooks h) {
    hooks = h;
}

uint64_t fri_storage_next_birth(void) {
    return atomic_load_explicit(&next_birth, memory_order_relaxed);
}

fr_status fri_storage_create(fr_device d, size_t bytes, const fr_tag *tag, fri_storage **out) {
    fri_allocator *a = NULL;
    FRI_TRY(fri_allocator_get(d, &a));
    FRI_OWNED(fri_free) fri_storage *s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "storage: out of host memory");
    FRI_TRY(fri_block_alloc(a, bytes, tag, &s->block));
    s->handles = 1;
    s->backend = fri_backend_get(d);
    s->birth = atomic_fetch_add_explicit(&next_birth, 1, memory_order_relaxed);
    FRI_MOVE(out, s);
    return FR_OK;
}

fr_status fri_storage_foreign(void *data, size_t bytes, const fr_tag *tag, void (*fn)(void *owner), void *owner,
                              fri_storage **out) {
    fri_storage *s = calloc(1, sizeof *s);
    if (s != NULL) s->block = calloc(1, sizeof *s->block);
    if (s == NULL || s->block == NULL) {
        free(s);
        return fr_fail(FR_ENOMEM, "storage: out of host memory");
    }
    *s->block = (fri_block){.data = data, .requested = bytes, .size = bytes, .tag = *tag};
    s->handles = 1;
    s->backend = fri_backend_get(FR_CPU);
    s->birth = atomic_fetch_add_explicit(&next_birth, 1, memory_order_relaxed);
    s->foreign_free = fn;
    s->foreign_owner = owner;
    *out = s;
    return FR_OK;
}

static void storage_destroy(fri_storage *s) {
    if (s->producer != NULL && hooks.orphan != NULL) hooks.orphan(s);
    if (s->foreign_free != NULL) {
        s->foreign_free(s->foreign_owner);
        free(s->block);
    } else {
        fri_block_free(&s->block);
    }
    free(s);
}

void fri_storage_retain_handle(fri_storage *s) {
    s->handles++;
}

void fri_storage_release_handle(fri_storage *s) {
    if (--s->handles > 0) return;
    if (s->slots == 0) {
        storage_destroy(s);
        return;
    }
    if (s->settled) return;
    s->settled = true;
    /* The hook may release slots; the extra slot keeps s alive until the return. */
    s->slots++;
    if (hooks.settle != NULL) hooks.settle(s);
    fri_storage_release_slot(s);
}

void fri_storage_retain_slot(fri_storage *s) {
    s->slots++;
}

void fri_storage_release_slot(fri_storage *s) {
    if (--s->slots == 0 && s->handles == 0) storage_destroy(s);
}
