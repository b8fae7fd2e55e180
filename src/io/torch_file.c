/* torch_file.c - see torch_file.h. Numbers are input from strangers: each is compared with the bytes of the file. */
#include "io/torch_file.h"

#include "base/status.h"
#include "io/safetensors_format.h"
#include "io/torch_zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 1 << 20 };

typedef enum kind { MARK, NOTHING, FLAG, NUMBER, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR, FOREIGN } kind;

typedef struct value {
    kind kind;
    int64_t number; /* of a NUMBER; the first part in `part` of a TUPLE, and of a GLOBAL (module and name); a DICT's
                       * number, a STORAGE's type; a TENSOR's entry */
    const char
        *text; /* of a TEXT, a STORAGE's record; a description of FOREIGN, or NULL: made by the global `number` */
    size_t n;  /* bytes of the text, parts of the tuple */
} value;

/* The value of a key in a dict. */
typedef struct item {
    int64_t dict;
    value key, v;
} item;

/* Facts about a dict. */
typedef struct dict_facts {
    size_t items, tensors;
    size_t flags;    /* None, True and False */
    size_t versions; /* dicts under the name _metadata: versions of modules */
    bool odd;        /* has attributes of unknown meaning */
} dict_facts;

typedef struct machine {
    const fri_zip *zip;
    const unsigned char *at, *end;
    value *stack, *memo, *part;
    item *item;
    dict_facts *dict;
    size_t depth, memos, parts, items, dicts;
    fri_safetensors_entry *entry; /* shape, type and place of each TENSOR */
    size_t entries;
} machine;

static fr_status damaged(void) {
    return fr_fail(FR_EFORMAT, "its pickle is damaged");
}

/* Fails for a file beyond plain state dicts. */
#define FOREIGN_FILE(cure, format, ...) \
    fr_fail(FR_EUNSUPPORTED, "it is not a plain state dict of tensors: " format cure, __VA_ARGS__)

enum { NAME_BYTES = 200 };

/* Text of a value for an error sentence. */
static const char *described(const machine *m, const value *v, char out[NAME_BYTES]) {
    static const char *const names[] =
        {[MARK] = "nothing",  [NOTHING] = "None", [FLAG] = "True or False", [NUMBER] = "a number", [TEXT] = "text",
         [TUPLE] = "a tuple", [DICT] = "a dict",  [STORAGE] = "a storage",  [TENSOR] = "a tensor"};
    if (v->kind != FOREIGN && v->kind != GLOBAL) return names[v->kind];
    if (v->text != NULL) return v->text;
    const value *p = &m->part[v->number];
    snprintf(out, NAME_BYTES, "%s%.*s.%.*s", v->kind == FOREIGN ? "an object of " : "",
             (int)(p[0].n < 80 ? p[0].n : 80), p[0].text, (int)(p[1].n < 80 ? p[1].n : 80), p[1].text);
    return out;
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
    const int64_t v = (int64_t)fri_little_endian(b, bytes);
    return push(m, (value){NUMBER, bytes == 4 ? (int32_t)v : v, NULL, 0});
}

/* Pushes a value foreign to state dicts, refused where a tensor is expected. */
static fr_status push_other(machine *m, const char *description) {
    return push(m, (value){FOREIGN, 0, description, 0});
}

/* Pushes the number of 0 to 8 bytes with a sign; FOREIGN: a longer number. */
static fr_status push_long(machine *m, int length_bytes) {
    const unsigned char *b = take_bytes(m, (size_t)length_bytes);
    const size_t n = b != NULL ? fri_little_endian(b, length_bytes) : SIZE_MAX;
    if (b == NULL || (b = take_bytes(m, n)) == NULL) return damaged();
    if (n > 8) return push_other(m, "a number");
    uint64_t v = n > 0 && b[n - 1] >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | b[i];
    return push(m, (value){NUMBER, (int64_t)v, NULL, 0});
}

/* Pushes text or bytes that follow a count of length_bytes bytes. */
static fr_status push_run(machine *m, int length_bytes, bool text) {
    const unsigned char *b = take_bytes(m, (size_t)length_bytes);
    const size_t n = b != NULL ? fri_little_endian(b, length_bytes) : 0;
    if (b == NULL || (b = take_bytes(m, n)) == NULL) return damaged();
    return text ? push(m, (value){TEXT, 0, (const char *)b, n}) : push_other(m, "bytes");
}

static fr_status push_dict(machine *m) {
    FRI_TRY(FRI_ROOM(m->dict, m->dicts, "dicts of a pickle"));
    m->dict[m->dicts] = (dict_facts){0};
    return push(m, (value){DICT, (int64_t)m->dicts++, NULL, 0});
}

/* The number of stack values over the last mark. The mark leaves the stack. */
static fr_status to_mark(machine *m, size_t *n) {
    for (*n = 0; *n < m->depth; ++*n)
        if (m->stack[m->depth - 1 - *n].kind == MARK) {
            memmove(&m->stack[m->depth - 1 - *n], &m->stack[m->depth - *n], *n * sizeof *m->stack);
            m->depth--;
            return FR_OK;
        }
    return damaged();
}

/* The last n values become a tuple, or a global. */
static fr_status push_parts(machine *m, kind as, size_t n) {
    if (n > m->depth || m->parts > MOST_VALUES) return damaged();
    const value t = {as, (int64_t)m->parts, NULL, n};
    for (size_t i = 0; i < n; i++) {
        FRI_TRY(FRI_ROOM(m->part, m->parts, "values of a pickle"));
        m->part[m->parts++] = m->stack[m->depth - n + i];
    }
    m->depth -= n;
    return push(m, t);
}

static bool is(const value *v, const char *text) {
    return v->n == strlen(text) && memcmp(v->text, text, v->n) == 0;
}

/* The last n values become elements of the list, set or object before. */
static fr_status drop_elements(machine *m, size_t n) {
    if (n >= m->depth || m->stack[m->depth - 1 - n].kind != FOREIGN) return damaged();
    m->depth -= n;
    return FR_OK;
}

/* The last 2 n values become items of the dict before. */
static fr_status set_items(machine *m, size_t n) {
    if (n % 2 != 0 || n >= m->depth || m->items > MOST_VALUES) return damaged();
    const value *v = &m->stack[m->depth - n], dict = v[-1];
    if (dict.kind != DICT) return drop_elements(m, n);
    dict_facts *facts = &m->dict[dict.number];
    for (size_t i = 0; i < n; i += 2) {
        FRI_TRY(FRI_ROOM(m->item, m->items, "items of a pickle"));
        m->item[m->items++] = (item){dict.number, v[i], v[i + 1]};
        facts->tensors += v[i + 1].kind == TENSOR;
        facts->flags += v[i + 1].kind == FLAG || v[i + 1].kind == NOTHING;
        facts->versions += v[i + 1].kind == DICT && v[i].kind == TEXT && is(&v[i], "_metadata");
    }
    facts->items += n / 2;
    m->depth -= n;
    return FR_OK;
}

static bool is_global(const machine *m, const value *v, const char *module, const char *name) {
    return v->kind == GLOBAL && is(&m->part[v->number], module) && is(&m->part[v->number + 1], name);
}

/* The type of a storage's elements by the storage's class, -1 if unknown. */
static int storage_type(const machine *m, const value *v) {
    static const struct {
        const char *name;
        fr_dtype dtype;
    } types[] = {{"FloatStorage", FR_F32},  {"HalfStorage", FR_F16}, {"BFloat16Storage", FR_BF16},
                 {"DoubleStorage", FR_F64}, {"LongStorage", FR_I64}, {"IntStorage", FR_I32},
                 {"ShortStorage", FR_I16},  {"CharStorage", FR_I8},  {"ByteStorage", FR_U8},
                 {"BoolStorage", FR_BOOL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_global(m, v, "torch", types[i].name)) return types[i].dtype;
    return -1;
}

/* A global, two lines of text: module and name. */
static fr_status push_global_lines(machine *m) {
    for (int i = 0; i < 2; i++) {
        const unsigned char *line = m->at, *end = memchr(line, '\n', (size_t)(m->end - line));
        if (end == NULL) return damaged();
        FRI_TRY(push(m, (value){TEXT, 0, (const char *)line, (size_t)(end - line)}));
        m->at = end + 1;
    }
    return push_parts(m, GLOBAL, 2);
}

static fr_status push_global(machine *m) {
    for (size_t i = 1; i <= 2; i++)
        if (m->depth < i || m->stack[m->depth - i].kind != TEXT) return damaged();
    return push_parts(m, GLOBAL, 2);
}

/* ('storage', torch.FloatStorage, '0', 'cpu', 9408) names a record of the archive. */
static fr_status push_storage(machine *m) {
    value t = {0};
    FRI_TRY(pop(m, &t));
    if (t.kind != TUPLE || t.n != 5) return damaged();
    const value *p = &m->part[t.number];
    if (p[0].kind != TEXT || !is(&p[0], "storage") || p[1].kind != GLOBAL || p[2].kind != TEXT || p[3].kind != TEXT ||
        p[4].kind != NUMBER)
        return damaged();
    const int type = storage_type(m, &p[1]);
    if (type < 0) return push(m, (value){FOREIGN, p[1].number, NULL, 0});
    return push(m, (value){STORAGE, type, p[2].text, p[2].n});
}

static bool is_number_tuple(const machine *m, const value *t) {
    bool all = t->kind == TUPLE && t->n <= FR_MAX_RANK;
    for (size_t i = 0; all && i < t->n; i++) all = m->part[t->number + (int64_t)i].kind == NUMBER;
    return all;
}

static bool is_empty_dict(const machine *m, const value *v) {
    return v->kind == DICT && m->dict[v->number].items == 0 && !m->dict[v->number].odd;
}

/* True for attributes without numbers (True, False, None), as tensors of torch.nn.Buffer have. */
static bool are_flags(const machine *m, const value *v) {
    return v->kind == DICT && m->dict[v->number].items == m->dict[v->number].flags && !m->dict[v->number].odd;
}

static fr_status arguments(const char *of) {
    return FOREIGN_FILE(FRI_CURE, "its pickle calls %s with arguments that are not understood", of);
}

/* Adds the tensor of a storage, offset, size and stride. */
static fr_status add_tensor(machine *m, const value *p) {
    char name[280] = "data/";
    if (p[0].n > sizeof name - 6) return damaged();
    memcpy(name + 5, p[0].text, p[0].n);
    const fri_zip_record *r = fri_zip_find(m->zip, name, 5 + p[0].n);
    fri_safetensors_entry e = {.dtype = (fr_dtype)p[0].number, .shape = {.rank = (int)p[2].n}};
    const int64_t size = (int64_t)fr_dtype_size(e.dtype), offset = p[1].number;
    for (int i = 0; i < e.shape.rank; i++) e.shape.dim[i] = m->part[p[2].number + i].number;
    if (r == NULL || fri_shape_bytes("a tensor", &e.shape, e.dtype, &e.bytes) < 0) return damaged();
    int64_t stride = 1;
    for (int i = e.shape.rank - 1; i >= 0 && e.bytes > 0; i--) {
        if (e.shape.dim[i] != 1 && m->part[p[3].number + i].number != stride)
            return push_other(m, "a tensor that is not contiguous");
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

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, {"neg": True}]). */
static fr_status call_tensor(machine *m, const value *p, size_t n) {
    if (n < 6 || n > 7 || p[1].kind != NUMBER || !is_number_tuple(m, &p[2]) || !is_number_tuple(m, &p[3]) ||
        p[2].n != p[3].n || p[4].kind != FLAG || !is_empty_dict(m, &p[5]))
        return arguments("_rebuild_tensor_v2");
    if (n == 7 && p[6].kind != NOTHING && !is_empty_dict(m, &p[6]))
        return p[6].kind == DICT ? push_other(m, "a negated view (take v.resolve_neg())")
                                 : arguments("_rebuild_tensor_v2");
    if (p[0].kind == FOREIGN) return push(m, p[0]);
    return p[0].kind == STORAGE ? add_tensor(m, p) : damaged();
}

/* _rebuild_parameter(tensor, requires_grad, hooks[, attributes]). */
static fr_status call_parameter(machine *m, const value *p, size_t n) {
    if (n < 3 || n > 4 || (p[0].kind != TENSOR && p[0].kind != FOREIGN) || p[1].kind != FLAG ||
        !is_empty_dict(m, &p[2]))
        return arguments("_rebuild_parameter");
    if (n == 4 && !are_flags(m, &p[3])) return push_other(m, "a parameter with attributes");
    return push(m, p[0]);
}

/* _rebuild_from_type_v2(function, class, arguments, attributes): tensors with attributes, and subclasses. */
static fr_status call_typed(machine *m, const value *p, size_t n) {
    if (n != 4 || p[0].kind != GLOBAL || p[1].kind != GLOBAL || p[2].kind != TUPLE)
        return arguments("_rebuild_from_type_v2");
    if (!is_global(m, &p[1], "torch", "Tensor")) return push(m, (value){FOREIGN, p[1].number, NULL, 0});
    if (!is_global(m, &p[0], "torch._utils", "_rebuild_tensor_v2"))
        return push(m, (value){FOREIGN, p[0].number, NULL, 0});
    if (!are_flags(m, &p[3])) return push_other(m, "a tensor with attributes");
    return call_tensor(m, &m->part[p[2].number], p[2].n);
}

static fr_status call_dict(machine *m, const value *p, size_t n) {
    (void)p;
    return n == 0 ? push_dict(m) : arguments("OrderedDict");
}

/* defaultdict(class of missing values): no value of the file is missing, so the class does not matter. */
static fr_status call_default_dict(machine *m, const value *p, size_t n) {
    const bool fine = n == 0 || (n == 1 && (p[0].kind == GLOBAL || p[0].kind == NOTHING));
    return fine ? push_dict(m) : arguments("defaultdict");
}

/* Pushes the result of a called global, or of a class without a constructor. Unknown globals are never called. */
static fr_status call_global(machine *m, bool known) {
    static const struct {
        const char *module, *name;
        fr_status (*call)(machine *m, const value *p, size_t n);
    } calls[] = {{"collections", "OrderedDict", call_dict},
                 {"collections", "defaultdict", call_default_dict},
                 {"torch._utils", "_rebuild_tensor_v2", call_tensor},
                 {"torch._utils", "_rebuild_parameter", call_parameter},
                 {"torch._utils", "_rebuild_parameter_with_state", call_parameter},
                 {"torch._tensor", "_rebuild_from_type_v2", call_typed}};
    value args = {0}, f = {0};
    FRI_TRY(pop(m, &args));
    FRI_TRY(pop(m, &f));
    if (f.kind != GLOBAL || args.kind != TUPLE) return damaged();
    for (size_t i = 0; known && i < sizeof calls / sizeof *calls; i++)
        if (is_global(m, &f, calls[i].module, calls[i].name)) return calls[i].call(m, &m->part[args.number], args.n);
    return push(m, (value){FOREIGN, f.number, NULL, 0});
}

/* Attributes of the value before. A dict may have versions of modules, unused here. */
static fr_status set_attributes(machine *m) {
    value v = {0};
    FRI_TRY(pop(m, &v));
    const value *to = m->depth > 0 ? &m->stack[m->depth - 1] : NULL;
    if (to == NULL || (to->kind != DICT && to->kind != FOREIGN)) return damaged();
    if (to->kind == DICT && (v.kind != DICT || m->dict[v.number].versions != m->dict[v.number].items))
        m->dict[to->number].odd = true;
    return FR_OK;
}

static fr_status put_memo(machine *m, uint64_t i) {
    if (i >= MOST_VALUES || m->depth == 0) return damaged();
    for (; m->memos <= i; m->memos++) {
        FRI_TRY(FRI_ROOM(m->memo, m->memos, "values of a pickle"));
        m->memo[m->memos] = (value){MARK, 0, NULL, 0};
    }
    m->memo[i] = m->stack[m->depth - 1];
    return FR_OK;
}

static fr_status use_memo(machine *m, bool put, int bytes) {
    const unsigned char *b = take_bytes(m, (size_t)bytes);
    const uint64_t i = b != NULL ? fri_little_endian(b, bytes) : UINT64_MAX;
    if (put) return put_memo(m, i);
    return i < m->memos && m->memo[i].kind != MARK ? push(m, m->memo[i]) : damaged();
}

/* Executes an opcode that makes or fills a container. */
static fr_status run_container(machine *m, unsigned char op) {
    size_t n = 0;
    value v = {0};
    if (strchr("teu\x90\x91", op) != NULL) FRI_TRY(to_mark(m, &n));
    switch (op) {
    case ')': return push_parts(m, TUPLE, 0);
    case 't': return push_parts(m, TUPLE, n);
    case 0x85:
    case 0x86:
    case 0x87: return push_parts(m, TUPLE, (size_t)op - 0x84);
    case '}': return push_dict(m);
    case 'u': return set_items(m, n);
    case 's': return set_items(m, 2);
    case ']': return push_other(m, "a list");
    case 0x8f: return push_other(m, "a set");
    case 'a': return drop_elements(m, 1);
    case 'e':
    case 0x90: return drop_elements(m, n);
    case 0x91: m->depth -= n; return push_other(m, "a set");
    case 'b': return set_attributes(m);
    case 'R': return call_global(m, true);
    case 0x92: FRI_TRY(pop(m, &v)); return call_global(m, false);
    case 0x81: return call_global(m, false);
    default: break;
    }
    return FOREIGN_FILE(FRI_CURE, "its pickle has the opcode 0x%02x", op);
}

/* Executes an opcode. FR_END: the last of the pickle. */
static fr_status run_opcode(machine *m) {
    const unsigned char *op = take_bytes(m, 1), *b = NULL;
    if (op == NULL) return damaged();
    switch (*op) {
    case 0x80: return (b = take_bytes(m, 1)) != NULL && *b <= 5 ? FR_OK : damaged();
    case 0x95: /* the length of a frame */
        b = take_bytes(m, 8);
        return b != NULL && fri_little_endian(b, 8) <= (size_t)(m->end - m->at) ? FR_OK : damaged();
    case '.': return FR_END;
    case '(': return push(m, (value){MARK, 0, NULL, 0});
    case 'N': return push(m, (value){NOTHING, 0, NULL, 0});
    case 0x88: return push(m, (value){FLAG, 1, NULL, 0});
    case 0x89: return push(m, (value){FLAG, 0, NULL, 0});
    case 'K': return push_number(m, 1);
    case 'M': return push_number(m, 2);
    case 'J': return push_number(m, 4);
    case 'G': return take_bytes(m, 8) != NULL ? push_other(m, "a number") : damaged();
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    case 0x8c: return push_run(m, 1, true);
    case 'X': return push_run(m, 4, true);
    case 0x8d: return push_run(m, 8, true);
    case 'C': return push_run(m, 1, false);
    case 'B': return push_run(m, 4, false);
    case 0x8e:
    case 0x96: return push_run(m, 8, false);
    case 'c': return push_global_lines(m);
    case 0x93: return push_global(m);
    case 'q': return use_memo(m, true, 1);
    case 'r': return use_memo(m, true, 4);
    case 0x94: return put_memo(m, m->memos);
    case 'h': return use_memo(m, false, 1);
    case 'j': return use_memo(m, false, 4);
    case 'Q': return push_storage(m);
    default: return run_container(m, *op);
    }
}

/* Refuses a dict with items besides tensors; names the first, and the item with the tensors. */
static fr_status check_items(const machine *m, const value *dict) {
    char text[NAME_BYTES];
    const item *bad = NULL, *below = NULL;
    for (size_t i = 0; i < m->items; i++) {
        const item *t = &m->item[i];
        if (t->dict != dict->number) continue;
        if (t->key.kind != TEXT || t->key.n == 0 || memchr(t->key.text, 0, t->key.n) != NULL ||
            !fri_safetensors_utf8(t->key.text, t->key.n))
            return FOREIGN_FILE(FRI_CURE, "a key is %s", t->key.kind == TEXT ? "no name" : described(m, &t->key, text));
        if (t->v.kind == DICT && m->dict[t->v.number].tensors > 0 && below == NULL) below = t;
        if (t->v.kind != TENSOR && (bad == NULL || bad == below)) bad = t;
    }
    if (bad == NULL) return FR_OK;
    const int n = (int)(bad->key.n < 80 ? bad->key.n : 80), k = below != NULL ? (int)below->key.n : 0;
    const char *is_what = described(m, &bad->v, text);
    if (k == 0 || k > 80) return FOREIGN_FILE(FRI_CURE, "%.*s is %s", n, bad->key.text, is_what);
    return FOREIGN_FILE(FRI_CURE_OF("torch.load(FILE)['%.*s']"), "%.*s is %s; the tensors are below %.*s", n,
                        bad->key.text, is_what, k, below->key.text, k, below->key.text);
}

/* The items of the top dict. A NUL replaces the executed opcode after each name. */
static fr_status take_items(const machine *m, const value *dict, fri_torch_tensors *out) {
    char text[NAME_BYTES];
    if (dict->kind != DICT || m->dict[dict->number].odd)
        return FOREIGN_FILE(FRI_CURE, "its pickle holds %s",
                            dict->kind == DICT ? "a dict with attributes" : described(m, dict, text));
    FRI_TRY(check_items(m, dict));
    out->entry = calloc(m->items + 1, sizeof *out->entry);
    if (out->entry == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu names", m->items);
    for (size_t i = 0; i < m->items; i++) {
        const item *t = &m->item[i];
        if (t->dict != dict->number) continue;
        fri_safetensors_entry *e = &out->entry[out->n++];
        *e = m->entry[t->v.number];
        e->name = t->key.text;
        out->pickle[(const unsigned char *)e->name - out->pickle + (ptrdiff_t)t->key.n] = '\0';
    }
    return FR_OK;
}

static fr_status read_tensors(fri_zip *z, machine *m, fri_torch_tensors *out) {
    char text[8] = "";
    value top = {0};
    FRI_TRY(fri_zip_open(z));
    const fri_zip_record *r = fri_zip_find(z, "data.pkl", 8), *order = fri_zip_find(z, "byteorder", 9);
    if (r == NULL) return fr_fail(FR_EUNSUPPORTED, "a zip archive without data.pkl; torch.save writes one");
    if (order != NULL && order->bytes < sizeof text) FRI_TRY(z->read(z->ctx, text, order->bytes, order->at));
    if (order != NULL && strcmp(text, "big") == 0)
        return fr_fail(FR_EUNSUPPORTED, "its numbers are big-endian" FRI_CURE);
    if (order != NULL && strcmp(text, "little") != 0) /* missing in old files */
        return fr_fail(FR_EFORMAT, "its byteorder is '%s', neither little nor big: the file is damaged", text);
    FRI_TRY(fri_zip_read(z, r->at, r->bytes, &out->pickle));
    m->zip = z;
    m->at = out->pickle;
    m->end = out->pickle + r->bytes;
    fr_status s = FR_OK;
    while ((s = run_opcode(m)) == FR_OK) continue;
    if (s < 0) return s;
    FRI_TRY(pop(m, &top));
    return take_items(m, &top, out);
}

fr_status fri_torch_parse(fri_torch_read_fn *read, void *ctx, size_t bytes, fri_torch_tensors *out) {
    fri_zip z = {.read = read, .ctx = ctx, .bytes = bytes};
    machine m = {0};
    *out = (fri_torch_tensors){0};
    fr_status s = read_tensors(&z, &m, out);
    free(z.directory);
    free(z.record);
    free(m.stack);
    free(m.memo);
    free(m.part);
    free(m.item);
    free(m.entry);
    free(m.dict);
    if (s >= 0) return FR_OK;
    free(out->entry);
    free(out->pickle);
    *out = (fri_torch_tensors){0};
    return s;
}
