/* settle.c - decides what happens to saved bytes once only backward needs them.
 *
 * Note [Settling]
 * While a program holds a tensor, its saved slots share its storage and cost nothing. When the last handle is
 * released (a variable is overwritten, a scope ends), the storage settles:
 *   1. If every slot needs only a sign and encode is on: the single consumer takes over the mask if possible (a max
 *      pool marks its one-byte codes), otherwise a bit per element is kept.
 *   2. Else, if rebuild is on and the producer can cheaply recompute the value, every slot becomes "rebuild from the
 *      producer". With encode on, sign slots of other nodes become a bit per element. The producer's own sign slot (a
 *      relu's) waits until backward recomputes the value for any reader, and takes its signs from the result.
 *   3. Else the storage stays, or with offload on moves to a file until backward needs the value.
 * A storage may stay because one slot needs its values (a relu's output is the next convolution's input). When early
 * release drops the slot, the storage is examined again: if the remaining slots need signs, bits replace the storage,
 * so that the convolution's input is freed before its gradient is allocated. Decisions depend on references only, never
 * on data, so a dry run takes the same branches. A failed allocation for a code leaves the storage as before. */
#include "autograd/node.h"

#include "memory/event.h"

/* True if all slots of the storage need only signs. */
static bool all_signs(const fri_storage *s) {
    for (const fri_slot *slot = s->savers; slot != NULL; slot = slot->next)
        if (slot->kind != FRI_SLOT_TENSOR || !(slot->flags & FR_SAVE_SIGN) || slot->version != s->version) return false;
    return true;
}

static fri_mask_rule rule_of(unsigned flags) {
    return flags == FR_SAVE_MASK ? FRI_MASK_RELU : flags == FR_SAVE_RELU6 ? FRI_MASK_RELU6 : FRI_MASK_POSITIVE;
}

/* Replaces `value` in the slot by bits. */
static fr_status bits_of(fri_slot *slot, const fri_backend *b, const void *value) {
    FRI_OWNED(fr_tensor_release) fr_tensor *bits = NULL;
    fr_node *owner = slot->owner;
    int64_t n = fri_shape_numel(&slot->shape);
    fr_shape shape = FRI_SHAPE((n + 7) / 8);
    unsigned flags = slot->flags;
    FRI_TRY(fri_tensor_new(&shape, FR_U8, b->device, FR_MEM_TEMPORARY, &bits));
    FRI_TRY(FRI_KERNEL(b, slot->dtype, relu_encode, (FRI_EXEC, slot->dtype, n, rule_of(flags), value, fri_data(bits))));
    fri_slot_drop(slot);
    fri_slot_hold(slot, owner, bits, flags);
    slot->kind = FRI_SLOT_BITS;
    fri_autograd()->stats.encoded++;
    return FR_OK;
}

/* Replaces the storage in the slot by bits, in the scope of the slot's owner, to which reports attribute the bits. */
static fr_status encode_bits(fri_slot *slot) {
    const fri_scope was = fri_scope_begin(slot->owner->op->name, slot->owner->module);
    fri_event_mark(FR_EVENT_ASIDE_BEGIN);
    fr_status s = bits_of(slot, slot->storage->backend, (char *)fri_storage_data(slot->storage) + slot->offset);
    fri_event_mark(FR_EVENT_ASIDE_END);
    fri_scope_end(was);
    return s;
}

/* Lets the relu's only reader, a pool with unchanged output, apply the mask by marking its codes. The relu keeps
 * nothing. */
static bool try_absorb(fri_slot *slot) {
    fr_node *relu = slot->owner, *pool = relu->consumer;
    fr_tensor *y = NULL;
    if ((slot->flags & FR_SAVE_MASK) != FR_SAVE_MASK || relu->output != slot->storage) return false;
    if (relu->consumers != 1 || pool == NULL || pool->op->absorb_mask == NULL) return false;
    if (relu->is_shadow && relu->original_consumers != 1) return false;
    if (pool->output == NULL || pool->output->handles == 0 || pool->output->version != pool->output_version)
        return false;
    bool ok = fri_tensor_on_storage(pool->output, pool->output_offset, &pool->shape, pool->dtype, &y) == FR_OK &&
              pool->op->absorb_mask(pool, y) == FR_OK;
    fr_tensor_release(&y);
    if (!ok) return false;
    fri_slot_drop(slot);
    slot->kind = FRI_SLOT_PASS;
    fri_autograd()->stats.absorbed++;
    return true;
}

static void to_rebuild(fri_slot *slot, fr_node *source) {
    fri_slot was = *slot;
    fri_slot_drop(slot);
    *slot = (fri_slot){.kind = FRI_SLOT_REBUILD,
                       .flags = was.flags,
                       .owner = was.owner,
                       .shape = was.shape,
                       .dtype = was.dtype,
                       .source = source};
    if (source != slot->owner) fri_rebuild_use(source);
    fri_autograd()->stats.rebuilt++;
}

/* True if the slot becomes bits while the other slots are rebuilt from p. */
static bool becomes_bits(const fri_slot *slot, const fr_node *p) {
    return fri_switches()->encode && (slot->flags & FR_SAVE_SIGN) && slot->owner != p;
}

static bool may_rebuild(const fri_storage *s) {
    fr_node *p = s->producer;
    size_t freed = s->block->requested;
    if (p == NULL || p->output != s || p->output_version != s->version || p->executed) return false;
    for (const fri_slot *slot = s->savers; slot != NULL; slot = slot->next) {
        if (slot->offset != p->output_offset || slot->version != s->version || slot->dtype != p->dtype ||
            fri_shape_numel(&slot->shape) != fri_shape_numel(&p->shape))
            return false;
        if (p->op->rebuild_alone && slot >= slot->owner->slots + slot->owner->n_saves) return false;
        size_t bits = fri_round_bytes((size_t)(fri_shape_numel(&slot->shape) + 7) / 8);
        if (becomes_bits(slot, p)) freed = freed > bits ? freed - bits : 0;
    }
    return fri_rebuildable(p, freed);
}

/* Moves an unencoded storage to the offload file. Parameters, inputs and small results stay. */
static void send_away(fri_storage *s) {
    enum { WORTH_MOVING = 64 << 10 };
    if (s->block->tag.category != FR_MEM_ACTIVATION || s->block->requested < WORTH_MOVING) return;
    for (const fri_slot *slot = s->savers; slot != NULL; slot = slot->next)
        if (slot->kind != FRI_SLOT_TENSOR || slot->version != s->version) return;
    fri_offloaded *away = fri_offload_out(s);
    if (away == NULL) return;
    for (fri_slot *slot = s->savers, *next; slot != NULL; slot = next) {
        next = slot->next;
        fri_slot was = *slot;
        fri_slot_drop(slot);
        *slot = was;
        slot->kind = FRI_SLOT_AWAY;
        slot->storage = NULL;
        slot->previous = slot->next = NULL;
        slot->away = away;
        away->references++;
    }
    fri_offload_release(away);
    fri_autograd()->stats.offloaded++;
}

void fri_settle(fri_storage *s) {
    if (fri_switches()->encode && all_signs(s)) {
        for (fri_slot *slot = s->savers, *next; slot != NULL; slot = next) {
            next = slot->next;
            if (!try_absorb(slot) && encode_bits(slot) < 0) return;
        }
    } else if (may_rebuild(s)) {
        fr_node *p = s->producer;
        if (fri_rebuild_hold(p, 0) < 0) return;
        for (fri_slot *slot = s->savers, *next; slot != NULL; slot = next) {
            next = slot->next;
            if (!becomes_bits(slot, p) || encode_bits(slot) < 0) to_rebuild(slot, p);
        }
    } else if (fri_switches()->offload) {
        send_away(s);
    }
}

void fri_settle_signs(fri_storage *s) {
    if (!fri_switches()->encode || !s->settled || s->handles > 0 || s->savers == NULL || !all_signs(s)) return;
    for (fri_slot *slot = s->savers, *next; slot != NULL; slot = next) {
        next = slot->next;
        if (encode_bits(slot) < 0) return;
    }
}

static bool wants_own_sign(const fr_node *n, const fri_slot *slot) {
    return slot->kind == FRI_SLOT_REBUILD && slot->source == n && (slot->flags & FR_SAVE_SIGN);
}

void fri_settle_own_signs(fr_node *n, const fr_tensor *y) {
    if (!fri_switches()->encode) return;
    for (int i = 0; i < n->n_saves; i++) {
        fri_slot *slot = &n->slots[i];
        if (wants_own_sign(n, slot))
            (void)bits_of(slot, fri_backend_of(y), fri_data(y)); /* without memory: rebuilt later */
    }
}
