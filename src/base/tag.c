/* tag.c - the scope stack and the string table. */
#include "base/tag.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fr_category_name(fr_category c) {
    static const char *const names[FR_CATEGORY_COUNT] = {"parameter", "gradient",  "optimizer", "activation",
                                                         "temporary", "workspace", "input",     "other"};
    return (int)c >= 0 && (int)c < FR_CATEGORY_COUNT ? names[c] : "?";
}

const char *fr_phase_name(fr_phase p) {
    static const char *const names[FR_PHASE_COUNT] = {"none", "forward", "backward", "optimizer", "evaluation"};
    return (int)p >= 0 && (int)p < FR_PHASE_COUNT ? names[p] : "?";
}

fr_tag fri_tag_make(fr_category category, fr_dtype dtype, const fr_shape *shape) {
    return (fr_tag){.category = category,
                    .dtype = dtype,
                    .shape = *shape,
                    .op = fri_here.op,
                    .module = fri_here.module,
                    .phase = fri_here.phase};
}

const char *fri_scope_op_push(const char *static_name) {
    const char *was = fri_here.op;
    fri_here.op = static_name;
    return was;
}

void fri_scope_op_pop(const char *was) {
    fri_here.op = was;
}

fr_phase fr_phase_begin(fr_phase p) {
    fr_phase was = fri_here.phase;
    fri_here.phase = p;
    return was;
}

void fr_phase_end(fr_phase was) {
    fri_here.phase = was;
}

const char *fri_scope_module_push(const char *name) {
    char path[512];
    const char *was = fri_here.module;
    if (was[0] != '\0') {
        snprintf(path, sizeof path, "%s.%s", was, name);
        name = path;
    }
    fri_here.module = fri_intern(name);
    return was;
}

void fri_scope_module_pop(const char *was) {
    fri_here.module = was;
}

fri_scope fri_scope_begin(const char *op, const char *interned_path) {
    const fri_scope was = {fri_here.op, fri_here.module};
    fri_scope_end((fri_scope){op, interned_path});
    return was;
}

void fri_scope_end(fri_scope was) {
    fri_here.op = was.op;
    fri_here.module = was.module;
}

const char *fri_scope_op(void) {
    return fri_here.op;
}

const char *fri_scope_module(void) {
    return fri_here.module;
}

fr_phase fr_phase_get(void) {
    return fri_here.phase;
}

/* An open hash of chains: a few hundred module paths per process, looked up on every module call. */
enum { INTERN_BUCKETS = 1024 };

struct interned {
    struct interned *next;
    char text[];
};

static struct interned *buckets[INTERN_BUCKETS];
static pthread_mutex_t intern_lock = PTHREAD_MUTEX_INITIALIZER;

void fri_intern_lock(void) {
    pthread_mutex_lock(&intern_lock);
}

void fri_intern_unlock(void) {
    pthread_mutex_unlock(&intern_lock);
}

const char *fri_intern(const char *text) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    struct interned **head = &buckets[hash % INTERN_BUCKETS];
    pthread_mutex_lock(&intern_lock);
    struct interned *e = *head;
    while (e != NULL && strcmp(e->text, text) != 0) e = e->next;
    if (e == NULL && (e = malloc(sizeof *e + n + 1)) != NULL) {
        memcpy(e->text, text, n + 1);
        e->next = *head;
        *head = e;
    }
    pthread_mutex_unlock(&intern_lock);
    return e != NULL ? e->text : "";
}
