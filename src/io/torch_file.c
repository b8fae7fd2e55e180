/* torch_file.c - see torch_file.h. Numbers are input from strangers: each is compared with the bytes of the file. */
#include "io/torch_file.h"

#include "base/status.h"
#include "io/safetensors_format.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 26, MOST_VALUES = 1 << 20, END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30 };

/* The end of sentences about files for Python. */
#define CONVERT                                                                                          \
    "; in Python, safetensors.torch.save_file({k: v.contiguous() for k, v in STATE_DICT.items()}, NEW) " \
    "makes safetensors of the tensors"

static uint64_t little_endian(const unsigned char *at, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | at[i];
    return v;
}

/* ---- the archive ----------------------------------------------------------------------------------------- */

typedef struct record {
    const char *name; /* without the archive's folder; not ended by a NUL */
    size_t name_bytes, at, bytes;
} record;

typedef struct archive {
    fri_torch_read_fn *read;
    void *ctx;
    size_t bytes;
    unsigned char *directory;
    record *record;
    size_t records;
} archive;

/* Reads into a new block; the caller frees *out. */
static fr_status read_block(const archive *z, size_t at, size_t n, unsigned char **out) {
    if (n > MOST_BYTES) return fr_fail(FR_EFORMAT, "a list of %zu bytes; at most %d are read", n, MOST_BYTES);
    *out = malloc(n + 1);
    if (*out == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu bytes", n);
    return z->read(z->ctx, *out, n, at);
}

static int by_record_name(const void *a, const void *b) {
    const record *x = a, *y = b;
    const int order = memcmp(x->name, y->name, x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes);
    return order != 0 ? order : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

static const record *find_record(const archive *z, const char *name, size_t bytes) {
    const record key = {.name = name, .name_bytes = bytes};
    return z->records > 0 ? bsearch(&key, z->record, z->records, sizeof key, by_record_name) : NULL;
}

/* Reads the entry of the directory at *at, and moves *at to the following entry. */
static fr_status read_record(archive *z, size_t size, size_t *at) {
    const unsigned char *e = z->directory + *at;
    unsigned char local[LOCAL_BYTES];
    if (size - *at < CENTRAL_BYTES || memcmp(e, "PK\1\2", 4) != 0)
        return fr_fail(FR_EFORMAT, "entry %zu of the zip's directory is damaged", z->records);
    const size_t name = little_endian(e + 28, 2), more = name + little_endian(e + 30, 2) + little_endian(e + 32, 2);
    const uint64_t packed = little_endian(e + 20, 4), bytes = little_endian(e + 24, 4), from = little_endian(e + 42, 4);
    if (size - *at - CENTRAL_BYTES < more || z->bytes < LOCAL_BYTES || from > z->bytes - LOCAL_BYTES)
        return fr_fail(FR_EFORMAT, "entry %zu of the zip's directory reaches beyond the file", z->records);
    if (little_endian(e + 10, 2) != 0 || packed != bytes)
        return fr_fail(FR_EUNSUPPORTED, "its zip archive is compressed" CONVERT);
    FRI_TRY(z->read(z->ctx, local, sizeof local, from));
    const uint64_t begin = from + LOCAL_BYTES + little_endian(local + 26, 2) + little_endian(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || begin > z->bytes || bytes > z->bytes - begin)
        return fr_fail(FR_EFORMAT, "record %zu of the zip reaches beyond the file", z->records);
    const char *text = (const char *)e + CENTRAL_BYTES, *slash = memchr(text, '/', name);
    const size_t skipped = slash != NULL ? (size_t)(slash + 1 - text) : 0;
    z->record[z->records++] = (record){text + skipped, name - skipped, (size_t)begin, (size_t)bytes};
    *at += CENTRAL_BYTES + more;
    return FR_OK;
}

static fr_status read_archive(archive *z) {
    unsigned char end[END_BYTES];
    size_t at = 0;
    if (z->bytes < sizeof end) return fr_fail(FR_EFORMAT, "has %zu bytes, too few for a zip archive", z->bytes);
    FRI_TRY(z->read(z->ctx, end, sizeof end, z->bytes - sizeof end));
    const size_t n = little_endian(end + 10, 2), size = little_endian(end + 12, 4), from = little_endian(end + 16, 4);
    if (memcmp(end, "PK\5\6", 4) != 0)
        return fr_fail(FR_EFORMAT, "a zip archive without its end: the file is damaged or incomplete");
    if (n == 0xffff || from == 0xffffffff)
        return fr_fail(FR_EUNSUPPORTED, "a zip archive of 4 GiB or of 65535 records" CONVERT);
    if (from > z->bytes || size > z->bytes - from) return fr_fail(FR_EFORMAT, "its zip directory is outside the file");
    FRI_TRY(read_block(z, from, size, &z->directory));
    z->record = calloc(n + 1, sizeof *z->record);
    if (z->record == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu records", n);
    for (size_t i = 0; i < n; i++) FRI_TRY(read_record(z, size, &at));
    qsort(z->record, z->records, sizeof *z->record, by_record_name);
    return FR_OK;
}

/* ---- the pickle ------------------------------------------------------------------------------------------ */

typedef enum kind { MARK, NOTHING, NUMBER, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR } kind;

typedef struct value {
    kind kind;
    int64_t
        number; /* of a NUMBER; a TUPLE's first part in `part`, a DICT's number, a STORAGE's type; a TENSOR's entry */
    const char *text; /* of a TEXT, a GLOBAL's name, a STORAGE's record */
    size_t n;         /* bytes of the text, parts of the tuple */
} value;

/* The value of a key in a dict. */
typedef struct item {
    int64_t dict;
    value key, v;
} item;

typedef struct machine {
    const archive *zip;
    const unsigned char *at, *end;
    value *stack, *memo, *part;
    item *item;
    size_t depth, memos, parts, items;
    int64_t dicts;
    fri_safetensors_entry *entry; /* shape, type and place of each TENSOR */
    size_t entries;
} machine;

static fr_status damaged(void) {
    return fr_fail(FR_EFORMAT, "its pickle is damaged");
}

static fr_status foreign(const char *what, const char *text, size_t n) {
    return fr_fail(FR_EUNSUPPORTED, "it is not a plain state dict of tensors: its pickle has %s%.*s" CONVERT, what,
                   (int)(n < 80 ? n : 80), text);
}

static fr_status push(machine *m, value v) {
    if (m->depth >= MOST_VALUES) return damaged();
    FRI_TRY(FRI_ROOM(m->stack, m->depth, "values of a pickle"));
    m->stack[m->depth++] = v;
    return FR_OK;
}

static fr_status pop(machine *m, value *v) {
    if (m->depth == 0) return damaged();
    *v = m->stack[--m->depth];
    return FR_OK;
}

/* The next n bytes; NULL: fewer are left. */
static const unsigned char *take_bytes(machine *m, size_t n) {
    const unsigned char *at = m->at;
    if ((size_t)(m->end - at) < n) return NULL;
    m->at += n;
    return at;
}

static fr_status push_number(machine *m, int bytes) {
    const unsigned char *b = take_bytes(m, (size_t)bytes);
    if (b == NULL) return damaged();
    const int64_t v = (int64_t)little_endian(b, bytes);
    return push(m, (value){NUMBER, bytes == 4 ? (int32_t)v : v, NULL, 0});
}

/* The number of stack values over the last mark, which leaves the stack. */
static fr_status to_mark(machine *m, size_t *n) {
    for (*n = 0; *n < m->depth; ++*n)
        if (m->stack[m->depth - 1 - *n].kind == MARK) {
            memmove(&m->stack[m->depth - 1 - *n], &m->stack[m->depth - *n], *n * sizeof *m->stack);
            m->depth--;
            return FR_OK;
        }
    return damaged();
}

/* The last n values become a tuple. */
static fr_status push_tuple(machine *m, size_t n) {
    if (n > m->depth || m->parts > MOST_VALUES) return damaged();
    const value t = {TUPLE, (int64_t)m->parts, NULL, n};
    for (size_t i = 0; i < n; i++) {
        FRI_TRY(FRI_ROOM(m->part, m->parts, "values of a pickle"));
        m->part[m->parts++] = m->stack[m->depth - n + i];
    }
    m->depth -= n;
    return push(m, t);
}

/* The last 2 n values become items of the dict before. */
static fr_status set_items(machine *m, size_t n) {
    if (n % 2 != 0 || n >= m->depth || m->items > MOST_VALUES) return damaged();
    const value *v = &m->stack[m->depth - n], dict = v[-1];
    if (dict.kind != DICT) return damaged();
    for (size_t i = 0; i < n; i += 2) {
        FRI_TRY(FRI_ROOM(m->item, m->items, "items of a pickle"));
        m->item[m->items++] = (item){dict.number, v[i], v[i + 1]};
    }
    m->depth -= n;
    return FR_OK;
}

static bool is(const value *v, const char *text) {
    return v->n == strlen(text) && memcmp(v->text, text, v->n) == 0;
}

/* The type of a storage's elements by the storage's class; -1: another global. */
static int storage_type(const value *v) {
    static const struct {
        const char *name;
        fr_dtype dtype;
    } types[] = {{"torch\nFloatStorage", FR_F32},  {"torch\nHalfStorage", FR_F16}, {"torch\nBFloat16Storage", FR_BF16},
                 {"torch\nDoubleStorage", FR_F64}, {"torch\nLongStorage", FR_I64}, {"torch\nIntStorage", FR_I32},
                 {"torch\nShortStorage", FR_I16},  {"torch\nCharStorage", FR_I8},  {"torch\nByteStorage", FR_U8},
                 {"torch\nBoolStorage", FR_BOOL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(v, types[i].name)) return types[i].dtype;
    return -1;
}

static const char ordered_dict[] = "collections\nOrderedDict", tensor_maker[] = "torch._utils\n_rebuild_tensor_v2";

/* A global, two lines of text: module and name. */
static fr_status push_global(machine *m) {
    const unsigned char *line = memchr(m->at, '\n', (size_t)(m->end - m->at));
    const unsigned char *last = line != NULL ? memchr(line + 1, '\n', (size_t)(m->end - line - 1)) : NULL;
    if (last == NULL) return damaged();
    const value v = {GLOBAL, 0, (const char *)m->at, (size_t)(last - m->at)};
    if (!is(&v, ordered_dict) && !is(&v, tensor_maker) && storage_type(&v) < 0) return foreign("", v.text, v.n);
    m->at = last + 1;
    return push(m, v);
}

/* ('storage', torch.FloatStorage, '0', 'cpu', 9408) names a record of the archive. */
static fr_status push_storage(machine *m) {
    value t = {0};
    FRI_TRY(pop(m, &t));
    if (t.kind != TUPLE || t.n != 5) return damaged();
    const value *p = &m->part[t.number];
    if (p[0].kind != TEXT || !is(&p[0], "storage") || p[1].kind != GLOBAL || p[2].kind != TEXT) return damaged();
    const int type = storage_type(&p[1]);
    return type >= 0 ? push(m, (value){STORAGE, type, p[2].text, p[2].n}) : damaged();
}

static bool is_number_tuple(const machine *m, const value *t) {
    bool all = t->kind == TUPLE && t->n <= FR_MAX_RANK;
    for (size_t i = 0; all && i < t->n; i++) all = m->part[t->number + (int64_t)i].kind == NUMBER;
    return all;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks). */
static fr_status push_tensor(machine *m, const value *args) {
    const value *p = &m->part[args->number];
    char name[280] = "data/";
    if (args->n < 6 || p[0].kind != STORAGE || p[1].kind != NUMBER || !is_number_tuple(m, &p[2]) ||
        !is_number_tuple(m, &p[3]) || p[2].n != p[3].n || p[0].n > sizeof name - 6)
        return damaged();
    memcpy(name + 5, p[0].text, p[0].n);
    const record *r = find_record(m->zip, name, 5 + p[0].n);
    fri_safetensors_entry e = {.dtype = (fr_dtype)p[0].number, .shape = {.rank = (int)p[2].n}};
    const int64_t size = (int64_t)fr_dtype_size(e.dtype), offset = p[1].number;
    for (int i = 0; i < e.shape.rank; i++) e.shape.dim[i] = m->part[p[2].number + i].number;
    if (r == NULL || fri_shape_bytes("a tensor", &e.shape, e.dtype, &e.bytes) < 0) return damaged();
    int64_t stride = 1;
    for (int i = e.shape.rank - 1; i >= 0 && e.bytes > 0; i--) {
        if (e.shape.dim[i] != 1 && m->part[p[3].number + i].number != stride)
            return fr_fail(FR_EUNSUPPORTED, "a tensor in it is not contiguous" CONVERT);
        stride *= e.shape.dim[i];
    }
    if (offset < 0 || offset > INT64_MAX / 16 || (uint64_t)(offset * size) > r->bytes ||
        e.bytes > r->bytes - (size_t)(offset * size))
        return fr_fail(FR_EFORMAT, "a tensor of %zu bytes at %lld reaches beyond its record of %zu bytes", e.bytes,
                       (long long)(offset <= INT64_MAX / 16 ? offset * size : offset), r->bytes);
    e.at = r->at + (size_t)(offset * size);
    FRI_TRY(FRI_ROOM(m->entry, m->entries, "tensors"));
    m->entry[m->entries++] = e;
    return push(m, (value){TENSOR, (int64_t)m->entries - 1, NULL, 0});
}

static fr_status call_global(machine *m) {
    value args = {0}, f = {0};
    FRI_TRY(pop(m, &args));
    FRI_TRY(pop(m, &f));
    if (f.kind != GLOBAL || args.kind != TUPLE) return damaged();
    if (is(&f, tensor_maker)) return push_tensor(m, &args);
    if (!is(&f, ordered_dict) || args.n != 0) return damaged();
    return push(m, (value){DICT, m->dicts++, NULL, 0});
}

static fr_status use_memo(machine *m, bool put, int bytes) {
    const unsigned char *b = take_bytes(m, (size_t)bytes);
    const uint64_t i = b != NULL ? little_endian(b, bytes) : UINT64_MAX;
    if (i >= MOST_VALUES || (put ? m->depth == 0 : i >= m->memos)) return damaged();
    if (!put) return push(m, m->memo[i]);
    for (; m->memos <= i; m->memos++) {
        FRI_TRY(FRI_ROOM(m->memo, m->memos, "values of a pickle"));
        m->memo[m->memos] = (value){NOTHING, 0, NULL, 0};
    }
    m->memo[i] = m->stack[m->depth - 1];
    return FR_OK;
}

static fr_status push_text(machine *m) {
    const unsigned char *b = take_bytes(m, 4), *text = b != NULL ? take_bytes(m, (size_t)little_endian(b, 4)) : NULL;
    return text != NULL ? push(m, (value){TEXT, 0, (const char *)text, (size_t)little_endian(b, 4)}) : damaged();
}

/* Executes an opcode. FR_END: the last of the pickle. */
static fr_status run_opcode(machine *m) {
    const unsigned char *op = take_bytes(m, 1);
    size_t n = 0;
    value v = {0};
    if (op == NULL) return damaged();
    switch (*op) {
    case 0x80: return take_bytes(m, 1) != NULL ? FR_OK : damaged();
    case '.': return FR_END;
    case '(': return push(m, (value){MARK, 0, NULL, 0});
    case ')': return push_tuple(m, 0);
    case '}': return push(m, (value){DICT, m->dicts++, NULL, 0});
    case 'N': return push(m, (value){NOTHING, 0, NULL, 0});
    case 0x88: return push(m, (value){NUMBER, 1, NULL, 0});
    case 0x89: return push(m, (value){NUMBER, 0, NULL, 0});
    case 'K': return push_number(m, 1);
    case 'M': return push_number(m, 2);
    case 'J': return push_number(m, 4);
    case 0x8a: return (op = take_bytes(m, 1)) != NULL && *op <= 8 ? push_number(m, *op) : damaged();
    case 'X': return push_text(m);
    case 'c': return push_global(m);
    case 'q': return use_memo(m, true, 1);
    case 'r': return use_memo(m, true, 4);
    case 'h': return use_memo(m, false, 1);
    case 'j': return use_memo(m, false, 4);
    case 't': FRI_TRY(to_mark(m, &n)); return push_tuple(m, n);
    case 0x85:
    case 0x86:
    case 0x87: return push_tuple(m, (size_t)*op - 0x84);
    case 'u': FRI_TRY(to_mark(m, &n)); return set_items(m, n);
    case 's': return set_items(m, 2);
    case 'Q': return push_storage(m);
    case 'R': return call_global(m);
    case 'b': return pop(m, &v); /* attributes of the dict, as _metadata */
    default: break;
    }
    char text[8];
    snprintf(text, sizeof text, "0x%02x", *op);
    return foreign("the opcode ", text, strlen(text));
}

/* The items of the top dict. */
static fr_status take_items(const machine *m, const value *dict, fri_torch_tensors *out) {
    size_t bytes = 1;
    for (size_t i = 0; i < m->items; i++) bytes += m->item[i].key.kind == TEXT ? m->item[i].key.n + 1 : 0;
    if (dict->kind != DICT) return foreign("no dict at its top", "", 0);
    out->entry = calloc(m->items + 1, sizeof *out->entry);
    out->text = malloc(bytes);
    if (out->entry == NULL || out->text == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu names", m->items);
    char *text = out->text;
    for (size_t i = 0; i < m->items; i++) {
        const item *t = &m->item[i];
        if (t->dict != dict->number) continue;
        if (t->key.kind != TEXT || t->key.n == 0 || memchr(t->key.text, 0, t->key.n) != NULL ||
            !fri_safetensors_utf8(t->key.text, t->key.n))
            return foreign("a key that is no name", "", 0);
        if (t->v.kind != TENSOR) return foreign("an item that is no tensor: ", t->key.text, t->key.n);
        fri_safetensors_entry *e = &out->entry[out->n++];
        *e = m->entry[t->v.number];
        e->name = text;
        memcpy(text, t->key.text, t->key.n);
        text[t->key.n] = '\0';
        text += t->key.n + 1;
    }
    return FR_OK;
}

static fr_status read_tensors(archive *z, machine *m, unsigned char **pickle, fri_torch_tensors *out) {
    value top = {0};
    FRI_TRY(read_archive(z));
    const record *r = find_record(z, "data.pkl", 8), *order = find_record(z, "byteorder", 9);
    if (r == NULL) return fr_fail(FR_EUNSUPPORTED, "a zip archive without data.pkl; torch.save writes one");
    if (order != NULL && order->bytes != strlen("little"))
        return fr_fail(FR_EUNSUPPORTED, "its numbers are big-endian" CONVERT);
    FRI_TRY(read_block(z, r->at, r->bytes, pickle));
    m->zip = z;
    m->at = *pickle;
    m->end = *pickle + r->bytes;
    fr_status s = FR_OK;
    while ((s = run_opcode(m)) == FR_OK) continue;
    if (s < 0) return s;
    FRI_TRY(pop(m, &top));
    return take_items(m, &top, out);
}

fr_status fri_torch_parse(fri_torch_read_fn *read, void *ctx, size_t bytes, fri_torch_tensors *out) {
    archive z = {.read = read, .ctx = ctx, .bytes = bytes};
    machine m = {0};
    unsigned char *pickle = NULL;
    *out = (fri_torch_tensors){0};
    fr_status s = read_tensors(&z, &m, &pickle, out);
    free(pickle);
    free(z.directory);
    free(z.record);
    free(m.stack);
    free(m.memo);
    free(m.part);
    free(m.item);
    free(m.entry);
    if (s >= 0) return FR_OK;
    free(out->entry);
    free(out->text);
    *out = (fri_torch_tensors){0};
    return s;
}
