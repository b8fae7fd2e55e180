/* dnnl_cache.c - a growing hash table with chaining.
 *
 * A training step has some hundred distinct keys and looks them up in every call; a lookup is one hash of 160 bytes
 * and usually one comparison. Entries are never removed, because users hold pointers to the values, and the
 * referenced machine code belongs to the library anyway. */
#include "cpu/dnnl_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/dnnl_module.h"

enum { BUCKETS = 1024 }; /* a power of two */

typedef struct entry {
    struct entry *next;
    fri_dnnl_key key;
    void *value;
} entry;

static entry *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash(const fri_dnnl_key *key) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sizeof key->word / sizeof key->word[0]; i++) {
        h = (h ^ (uint64_t)key->word[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

fr_status fri_dnnl_cache_get(const fri_dnnl_key *key, fri_dnnl_make_fn *make, const void *args, void **value) {
    fr_status s = FR_OK;
    entry *found = NULL;
    pthread_mutex_lock(&lock);
    entry **bucket = &buckets[hash(key) & (BUCKETS - 1)];
    for (found = *bucket; found != NULL; found = found->next)
        if (memcmp(&found->key, key, sizeof *key) == 0) break;
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found == NULL) {
            s = fri_dnnl_here.fail(FR_ENOMEM, "oneDNN cache: no memory for an entry of %zu bytes", sizeof *found);
        } else if ((s = make(key, args, &found->value)) < 0) {
            free(found);
        } else {
            found->key = *key;
            found->next = *bucket;
            *bucket = found;
        }
    }
    if (s >= 0) *value = found->value;
    pthread_mutex_unlock(&lock);
    return s;
}
