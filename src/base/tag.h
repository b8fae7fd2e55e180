/* tag.h - what an allocation says about itself, and the scope stack that fills it in.
 *
 * Floors above push the op, the module path and the phase they are in; an allocation made below copies the top of
 * the stack. So the allocator knows "activation, f32 [64, 32, 32, 64], conv2d, features.0, forward" without knowing
 * what a tensor, an op or a module is. The stack is thread-local; strings are static or interned. */
#ifndef FRI_BASE_TAG_H
#define FRI_BASE_TAG_H

#include "base/shape.h"

/* A tag with the current scope. */
fr_tag fri_tag_make(fr_category category, fr_dtype dtype, const fr_shape *shape);

/* Each push returns the replaced value; pass the value to the matching pop. */
const char *fri_scope_op_push(const char *static_name);
void fri_scope_op_pop(const char *was);

/* Appends ".name" to the module path. The returned interned path is the old one. */
const char *fri_scope_module_push(const char *name);
void fri_scope_module_pop(const char *was);

typedef struct fri_scope {
    const char *op, *module;
} fri_scope;
/* Replaces the op and the whole path: backward re-enters the scope of the running node. */
fri_scope fri_scope_begin(const char *op, const char *interned_path);
void fri_scope_end(fri_scope was);

const char *fri_scope_op(void);
const char *fri_scope_module(void);

/* The interned copy of a string, alive until the process ends. "" if memory ran out. */
const char *fri_intern(const char *text);
/* Lock for fork alone: so no thread holds the table's lock during the copy of the process. */
void fri_intern_lock(void);
void fri_intern_unlock(void);

#endif
