/* slot.c - saved slots: hold a storage, release it, and read back the value. */
#include "autograd/node.h"

#include "base/status.h"
#include "memory/event.h"

/* Changes a storage's category from temporary to activation while a slot holds the storage, and back. Parameters and
 * inputs keep their categories. */
static void move_category(fri_storage *s, fr_category from, fr_category to) {
    if (s->block->tag.category == from) fri_block_relabel(s->block, to);
}

void fri_slot_hold(fri_slot *slot, fr_node *owner, const fr_tensor *t, unsigned flags) {
    fri_storage *s = t->storage;
    *slot = (fri_slot){.kind = FRI_SLOT_TENSOR,
                       .flags = flags,
                       .owner = owner,
                       .storage = s,
                       .offset = t->offset,
                       .shape = t->shape,
                       .dtype = t->dtype,
                       .device = fri_device_of(t),
                       .version = s->version,
                       .next = s->savers};
    if (slot->next != NULL) slot->next->previous = slot;
    s->savers = slot;
    fri_storage_retain_slot(s);
    move_category(s, FR_MEM_TEMPORARY, FR_MEM_ACTIVATION);
}

static void detach_slot(fri_slot *slot) {
    fri_storage *s = slot->storage;
    if (slot->previous != NULL)
        slot->previous->next = slot->next;
    else
        s->savers = slot->next;
    if (slot->next != NULL) slot->next->previous = slot->previous;
    slot->storage = NULL;
    if (s->savers == NULL && s->handles > 0) move_category(s, FR_MEM_ACTIVATION, FR_MEM_TEMPORARY);
    fri_storage_release_slot(s);
}

static void leave_away(fri_slot *slot) {
    if (slot->ahead != NULL) (void)fri_offload_arrived(fri_backend_of(slot->ahead), slot->arrived);
    fr_tensor_release(&slot->ahead);
    fri_offload_release(slot->away);
}

void fri_slot_drop(fri_slot *slot) {
    fri_slot_kind kind = slot->kind;
    fr_node *source = slot->source;
    slot->kind = FRI_SLOT_EMPTY;
    slot->source = NULL;
    if (kind == FRI_SLOT_TENSOR || kind == FRI_SLOT_BITS)
        detach_slot(slot);
    else if (kind == FRI_SLOT_AWAY)
        leave_away(slot);
    else if (kind == FRI_SLOT_REBUILD && source != slot->owner)
        fri_rebuild_release(source);
}

static fr_status check_version(const fri_slot *slot) {
    if (slot->version == slot->storage->version) return FR_OK;
    const char *writer = slot->storage->last_writer;
    return fr_fail(FR_EUSAGE,
                   "%s: a tensor it saved for backward was modified in place afterwards by %s "
                   "(version %llu, expected %llu); use the out-of-place op or clone the tensor",
                   slot->owner->op->name, writer != NULL && writer[0] ? writer : "a direct write",
                   (unsigned long long)slot->storage->version, (unsigned long long)slot->version);
}

/* Fetches the whole storage as bytes, because slots may use different parts of it. */
static fr_status bring_back(fri_slot *slot) {
    FRI_OWNED(fr_tensor_release) fr_tensor *bytes = NULL;
    if (slot->ahead != NULL) return FR_OK;
    fr_shape shape = FRI_SHAPE((int64_t)slot->away->bytes);
    fri_event_mark(FR_EVENT_ASIDE_BEGIN);
    fr_status s = fri_tensor_new(&shape, FR_U8, slot->device, FR_MEM_TEMPORARY, &bytes);
    if (s == FR_OK) s = fri_offload_in(slot->away, fri_backend_of(bytes), fri_data(bytes), &slot->arrived);
    if (s == FR_OK) FRI_MOVE(&slot->ahead, bytes);
    fr_tensor_release(&bytes);
    fri_event_mark(FR_EVENT_ASIDE_END);
    return s;
}

fr_status fri_slot_fetch(fri_slot *slot) {
    if (slot->kind != FRI_SLOT_AWAY || !fr_device_is_asynchronous(slot->device)) return FR_OK;
    fr_status s = bring_back(slot);
    return s == FR_ENOMEM ? FR_OK : s;
}

static fr_status value_away(fri_slot *slot, fr_tensor **value) {
    FRI_TRY(bring_back(slot));
    FRI_MOVE(value, slot->ahead);
    return fri_offload_arrived(fri_backend_of(*value), slot->arrived);
}

static fr_status rebuilt_value(const fri_slot *slot, fr_tensor **value) {
    const bool own = slot->source == slot->owner;
    const bool last = !own && fri_backward_runs(slot->owner); /* the slot is released after this use */
    return fri_rebuild_value(slot->source, slot->source->rebuild.users - last, value);
}

fr_status fri_slot_value(fri_slot *slot, fr_tensor **out) {
    FRI_OWNED(fr_tensor_release) fr_tensor *value = NULL; /* made for this read */
    switch (slot->kind) {
    case FRI_SLOT_TENSOR: FRI_TRY(check_version(slot)); break;
    case FRI_SLOT_REBUILD: FRI_TRY(rebuilt_value(slot, &value)); break;
    case FRI_SLOT_AWAY: FRI_TRY(value_away(slot, &value)); break;
    default:
        return fr_fail(FR_EINTERNAL, "%s: saved tensor is in state %d, which holds no value", slot->owner->op->name,
                       (int)slot->kind);
    }
    return fri_tensor_on_storage(value != NULL ? value->storage : slot->storage,
                                 slot->offset + (value != NULL ? value->offset : 0), &slot->shape, slot->dtype, out);
}

fri_slot *fri_slot_found(fr_node *n, int index) {
    fri_slot *slot = &n->slots[index];
    for (; slot->kind == FRI_SLOT_INDEX && n->shadow != NULL; n = n->shadow) slot = &n->shadow->slots[index];
    return slot;
}

fr_status fr_node_saved(fr_node *node, int index, fr_tensor **out) {
    FRI_NOT_NULL(node, out);
    fri_slot *slot = fri_slot_found(node, index);
    if (slot->kind == FRI_SLOT_EMPTY) {
        fr_tensor_release(out);
        return FR_OK;
    }
    return fri_slot_value(slot, out);
}

void fr_node_release_saved(fr_node *node, int index) {
    if (node == NULL) return;
    if (!fri_switches()->early_release) return;
    fri_slot *slot = fri_slot_found(node, index);
    if (slot->kind == FRI_SLOT_EMPTY) return;
    if (fri_rebuild_wanted(slot->owner)) return; /* nodes elsewhere rebuild from this node and need its inputs */
    if (slot->kind != FRI_SLOT_TENSOR) {
        fri_slot_drop(slot);
        return;
    }
    fri_storage *s = slot->storage;
    fri_storage_retain_slot(s); /* keeps the storage until fri_settle_signs has examined it */
    fri_slot_drop(slot);
    fri_settle_signs(s);
    fri_storage_release_slot(s);
}

bool fri_slot_yields(fr_node *n, int index, const fr_tensor *x) {
    const fri_slot *slot = fri_slot_found(n, index);
    const fri_storage *s = x->storage;
    if (slot->kind == FRI_SLOT_TENSOR && slot->storage == s && s->slots == 1 && s->handles == 1)
        fr_node_release_saved(n, index);
    return fr_tensor_reusable(x);
}

/* ---- masks ------------------------------------------------------------------------------------------------- */

static fr_status mask_by_bits(const fri_slot *slot, double slope, const fr_tensor *dy, const fr_tensor *last,
                              fr_tensor *dx) {
    const uint8_t *bits = slot->storage->block->data;
    return last != NULL ? FRI_PASS(dy, add_mask, bits, fri_data(dy), fri_data(last), fri_data(dx))
                        : FRI_PASS(dy, relu_backward_bits, slope, bits, fri_data(dy), fri_data(dx));
}

static fr_status mask_by_value(const fri_slot *slot, const fr_tensor *y, double slope, const fr_tensor *dy,
                               fr_tensor *dx) {
    if (slot->flags == FR_SAVE_MASK) return FRI_PASS(dy, relu_backward, fri_data(y), fri_data(dy), fri_data(dx));
    if (slot->flags == FR_SAVE_RELU6) return FRI_PASS(dy, relu6_backward, fri_data(y), fri_data(dy), fri_data(dx));
    return FRI_PASS(dy, leaky_relu_backward, slope, fri_data(y), fri_data(dy), fri_data(dx));
}

fr_status fr_node_mask(fr_node *node, int index, double slope, fr_tensor **dy, fr_tensor **dx) {
    FRI_NOT_NULL(node, dy, dx);
    FRI_OWNED(fr_tensor_release) fr_tensor *value = NULL, *result = NULL;
    fri_slot *slot = fri_slot_found(node, index);
    if (slot->kind == FRI_SLOT_PASS) {
        fri_tensor_put(dy, dx);
        return FR_OK;
    }
    if (slot->kind != FRI_SLOT_BITS) FRI_TRY(fri_slot_value(slot, &value));
    if (node->last != NULL ? fri_tensor_sole(*dy) : fr_tensor_reusable(*dy))
        result = fr_tensor_retain(*dy);
    else
        FRI_TRY(fri_tensor_new(&(*dy)->shape, (*dy)->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &result));
    if (value != NULL) {
        FRI_TRY(mask_by_value(slot, value, slope, *dy, result));
    } else {
        FRI_TRY(mask_by_bits(slot, slope, *dy, node->last, result));
        fr_tensor_release(&node->last);
    }
    fr_tensor_release(dy);
    fri_tensor_put(&result, dx);
    fr_tensor_release(&value);
    fr_node_release_saved(node, index);
    return FR_OK;
}
