/* words.c - see words.h. */
#include "ops/words.h"

#include "base/status.h"
#include "ops/frame.h"

#include <stdlib.h>
#include <string.h>

static fr_status refuse(const fri_reading *r, const char *text, const char *why) {
    return fr_fail(FR_EINVAL, "%s: the description '%s' %s", r->of->op.name, text, why);
}

static const char *skip_spaces(const char *p) {
    while (*p == ' ') p++;
    return p;
}

static size_t name_length(const char *p) {
    return strspn(p, "abcdefghijklmnopqrstuvwxyz_0123456789");
}

/* Operand with the name of `length` characters, or -1. */
static int find_operand(const fri_reading *r, const char *name, size_t length) {
    for (int i = 0; i < r->n; i++)
        if (strlen(r->operand[i].name) == length && strncmp(r->operand[i].name, name, length) == 0) return i;
    return -1;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static fr_status read_type(fri_reading *r, const char **at, fri_operand *o) {
    static const char *const word[] =
        {[FRI_TYPE_REAL] = "real", [FRI_TYPE_BIAS] = "bias", [FRI_TYPE_I64] = "i64", [FRI_TYPE_ANY] = "any"};
    if (**at != ':') return FR_OK;
    const size_t length = name_length(++*at);
    for (int t = FRI_TYPE_REAL; t <= FRI_TYPE_ANY; t++) {
        if (strlen(word[t]) != length || strncmp(word[t], *at, length) != 0) continue;
        o->type = (fri_operand_type)t;
        *at += length;
        return FR_OK;
    }
    return refuse(r, r->of->operands, "has a type that is none of real, bias, i64, any");
}

static fr_status read_shape(fri_reading *r, const char **at, fri_operand *o) {
    if (**at != '[') return FR_OK;
    o->shaped = true;
    for (++*at; **at != ']'; ++*at) {
        if (**at == '*' && o->rank == 0 && !o->leading)
            o->leading = true;
        else if (**at >= 'a' && **at <= 'z' && o->rank + o->leading < FR_MAX_RANK)
            o->letter[o->rank++] = (int8_t)(**at - 'a');
        else if (**at != ',')
            return refuse(r, r->of->operands, "has brackets with something else than letters and a first *");
    }
    ++*at;
    return FR_OK;
}

static fr_status read_operand(fri_reading *r, const char **at) {
    const size_t length = name_length(*at);
    if (length == 0 || length >= sizeof r->operand->name || r->n == FRI_OPERANDS)
        return refuse(r, r->of->operands, "has a name of 0 or more than 15 characters, or too many operands");
    fri_operand *o = &r->operand[r->n];
    *o = (fri_operand){.over = -1};
    memcpy(o->name, *at, length);
    *at += length;
    FRI_TRY(read_type(r, at, o));
    FRI_TRY(read_shape(r, at, o));
    o->optional = **at == '?';
    *at += o->optional;
    if (**at == '=') {
        const size_t over = name_length(++*at);
        if ((o->over = find_operand(r, *at, over)) < 0) return refuse(r, r->of->operands, "has = before no operand");
        *at += over;
    }
    r->n++;
    return FR_OK;
}

static fr_status read_operands(fri_reading *r) {
    const char *at = skip_spaces(r->of->operands);
    for (; *at != '\0'; at = skip_spaces(at)) {
        if (*at != '>') {
            FRI_TRY(read_operand(r, &at));
            continue;
        }
        r->inputs = r->n;
        at++;
    }
    if (r->inputs < 1 || r->inputs > FRI_OP_INPUTS || r->inputs == r->n)
        return refuse(r, r->of->operands, "needs 1 to 4 inputs, a >, and a result");
    return FR_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* `d` and the name of an operand: its gradient. */
static int find_gradient(const fri_reading *r, const char *name, size_t length) {
    return length > 1 && *name == 'd' ? find_operand(r, name + 1, length - 1) : -1;
}

/* Marks after a word's name: ? and =dy|x. */
static fr_status read_tail(fri_reading *r, const char *text, const char **at, fri_word *w) {
    w->optional |= **at == '?';
    *at += **at == '?';
    while (**at == '=' || **at == '|') {
        const size_t length = name_length(++*at);
        const int operand = find_operand(r, *at, length);
        w->over_dy |= operand < 0;
        if (operand >= 0) w->over_at = (int8_t)operand;
        if (operand < 0 && find_gradient(r, *at, length) != r->inputs)
            return refuse(r, text, "has = before no operand");
        *at += length;
    }
    return FR_OK;
}

static fr_status read_word(fri_reading *r, const char *text, const char **at, bool backward, bool writes, fri_word *w) {
    *w = (fri_word){.along = **at == '+', .over_at = -1};
    *at += w->along;
    if (**at == '.') {
        w->at = FRI_WORD_NONE;
        w->optional = true;
        ++*at;
        return FR_OK;
    }
    const size_t length = name_length(*at);
    const int operand = find_operand(r, *at, length), of = find_gradient(r, *at, length);
    if (operand >= 0) {
        w->at = (int8_t)operand;
    } else if (backward && !writes && of == r->inputs) {
        w->at = FRI_WORD_DY;
    } else if (backward && writes && of >= 0 && of < r->inputs) {
        w->at = (int8_t)of;
        w->gradient = true;
    } else {
        return refuse(r, text, "has a word that names no operand");
    }
    *at += length;
    return read_tail(r, text, at, w);
}

static fr_status read_step(fri_reading *r, const char *text, bool backward, fri_reading_step *s) {
    const char *at = skip_spaces(text);
    bool writes = false, joins = false;
    for (; *at != '\0'; at = skip_spaces(at)) {
        if (*at == '>') {
            s->reads = s->n;
            writes = true;
            at++;
            continue;
        }
        if (s->n == FRI_WORDS) return refuse(r, text, "has too many words");
        fri_word *w = &s->word[s->n++];
        FRI_TRY(read_word(r, text, &at, backward, writes, w));
        w->joined = joins;
        joins = *at == '&';
        w->joined |= joins;
        at += joins;
        if (!writes && w->at != FRI_WORD_NONE) s->operands |= 1u << w->at;
    }
    return writes && s->n > s->reads ? FR_OK : refuse(r, text, "has no > or writes nothing");
}

static void choose_slots(fri_reading *r, uint32_t keeps) {
    uint32_t read = keeps;
    for (int k = 0; k < FRI_BACKWARD_STEPS; k++) read |= r->backward[k].operands;
    for (int i = 0; i < r->n; i++) {
        r->slot_of[i] = read >> i & 1 ? (int8_t)r->slots : -1;
        if (read >> i & 1) r->at_slot[r->slots++] = (int8_t)i;
    }
}

static fr_status read_all(fri_reading *r) {
    const fr_described *d = r->of;
    uint32_t keeps = 0;
    if (d->op.name == NULL || d->operands == NULL)
        return fr_fail(FR_EINVAL, "an op's description has no name or no operands");
    FRI_TRY(read_operands(r));
    for (int k = 0; k < FRI_FORWARD_STEPS && d->forward[k].words != NULL; k++)
        FRI_TRY(read_step(r, d->forward[k].words, false, &r->forward[k]));
    for (int k = 0; k < FRI_BACKWARD_STEPS && d->backward[k].words != NULL; k++)
        FRI_TRY(read_step(r, d->backward[k].words, true, &r->backward[k]));
    if (r->forward[0].n == 0) return refuse(r, d->operands, "has no forward step");
    if (d->keeps != NULL) {
        const int kept = find_operand(r, d->keeps, strlen(d->keeps));
        if (kept < 0) return refuse(r, d->keeps, "names no operand");
        keeps = 1u << kept;
    }
    choose_slots(r, keeps);
    r->op = d->op;
    if (r->backward[0].n > 0 && r->op.backward == NULL) r->op.backward = fri_frame_backward;
    if (d->rebuilds) r->op.rebuild = fri_frame_rebuild;
    if (d->rebuilds) r->op.rebuild_inputs = (1u << r->inputs) - 1;
    return FR_OK;
}

fr_status fri_read_description(fr_described *d, const fri_reading **out) {
    *out = __atomic_load_n(&d->reading, __ATOMIC_ACQUIRE);
    if (*out != NULL) return FR_OK;
    fri_reading *r = calloc(1, sizeof *r);
    if (r == NULL) return fr_fail(FR_ENOMEM, "%s: out of host memory", d->op.name);
    r->of = d;
    const fr_status s = read_all(r);
    void *none = NULL;
    if (s == FR_OK && __atomic_compare_exchange_n(&d->reading, &none, r, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        *out = r;
        return FR_OK;
    }
    free(r); /* refused, or another thread was first */
    *out = none;
    return s;
}
