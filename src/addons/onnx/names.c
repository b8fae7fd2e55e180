/* names.c - what the layers of an ONNX graph are called.
 *
 * Three sources, the first that has something: the initializer of the weights ("layer1.0.conv1.weight" makes
 * layer1.0.conv1); the node's path of modules, as PyTorch's exporter writes it ("/layer1/layer1.0/relu/Relu" makes
 * layer1.0.relu); the node's name or type. Layers with parameters choose first, for names of a state dict. No name is a
 * prefix of a second name: a module is either a layer or a scope. */
#include "addons/onnx/reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Onnx__NodeProto node;

const char *fri_onnx_part(const fri_onnx_reading *l, const char *format, ...) {
    char *name = l->r->part[l->r->parts++ % 2];
    const int n = snprintf(name, sizeof *l->r->part, "%s_", l->name);
    va_list a;
    va_start(a, format);
    (void)vsnprintf(name + n, sizeof *l->r->part - (size_t)n, format, a);
    va_end(a);
    return name;
}

/* The named constant of a Mul over channels; NULL: none. */
static const char *scale_of(fri_onnx_reader *r, const node *n) {
    for (size_t i = 0; i < n->n_input && strcmp(n->op_type, "Mul") == 0; i++) {
        const fri_onnx_value *v = fri_onnx_input(r, n, i);
        if (v != NULL && v->constant != NULL && v->constant->rank == 3 && strpbrk(v->name, "/:") == NULL)
            return v->name;
    }
    return NULL;
}

static bool has_parameters(const node *n) {
    static const char *const type[] =
        {"Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu", "BatchNormalization", "LayerNormalization"};
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (strcmp(n->op_type, type[i]) == 0) return true;
    return false;
}

/* Letters, digits, _ and - stay; dots stay between such characters. */
static void clean(char *name) {
    char *to = name;
    for (const char *c = name; *c != '\0'; c++) {
        const bool word = isalnum((unsigned char)*c) || *c == '_' || *c == '-';
        if (*c != '.')
            *to++ = word ? *c : '_';
        else if (to > name && to[-1] != '.')
            *to++ = '.';
    }
    while (to > name && to[-1] == '.') to--;
    *to = '\0';
}

/* "a.b" of an initializer "a.b.weight". */
static bool from_ending(const char *weight, const char *ending, char out[FRI_ONNX_NAME]) {
    const size_t n = strlen(weight), e = strlen(ending);
    if (n <= e || n - e >= FRI_ONNX_NAME / 2 || strcmp(weight + n - e, ending) != 0 || strpbrk(weight, "/:") != NULL)
        return false;
    snprintf(out, FRI_ONNX_NAME, "%.*s", (int)(n - e), weight);
    clean(out);
    return out[0] != '\0';
}

static bool from_weight(const char *weight, char out[FRI_ONNX_NAME]) {
    return from_ending(weight, ".weight", out);
}

/* "/layer1/layer1.0/relu/Relu": a part that continues the part before replaces both. */
static bool from_path(const char *path, char out[FRI_ONNX_NAME]) {
    char last[FRI_ONNX_NAME] = "";
    size_t length = 0;
    if (path[0] != '/') return false;
    for (const char *part = path + 1, *end; (end = strchr(part, '/')) != NULL; part = end + 1) {
        const size_t n = (size_t)(end - part), before = strlen(last);
        if (n == 0 || length + n + 1 >= FRI_ONNX_NAME / 2) return false;
        const bool goes_on = before > 0 && n > before && strncmp(part, last, before) == 0 && part[before] == '.';
        if (goes_on) length -= before;
        if (!goes_on && length > 0) out[length++] = '.';
        memcpy(out + length, part, n);
        length += n;
        memcpy(last, part, n);
        last[n] = '\0';
    }
    out[length] = '\0';
    clean(out);
    return out[0] != '\0';
}

static void lower(const char *op, char out[FRI_ONNX_NAME]) {
    size_t n = 0;
    for (; op[n] != '\0' && n < 40; n++) out[n] = (char)tolower((unsigned char)op[n]);
    out[n] = '\0';
    clean(out);
    if (out[0] == '\0') memcpy(out, "layer", sizeof "layer");
}

static bool taken(const fri_onnx_reader *r, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < r->graph->n_node; i++) {
        const char *other = r->name[i];
        const size_t m = strlen(other), shorter = m < n ? m : n;
        if (m > 0 && strncmp(other, name, shorter) == 0 && (m == n || (m < n ? name : other)[shorter] == '.'))
            return true;
    }
    return false;
}

/* `wish`; or a free name below; or, if taken by a layer, with a number appended on the top level. */
static void choose(const fri_onnx_reader *r, const char *wish, const char *op, char out[FRI_ONNX_NAME]) {
    char type[FRI_ONNX_NAME], with[FRI_ONNX_NAME];
    lower(op, type);
    snprintf(with, sizeof with, "%.120s.%.40s", wish, type);
    snprintf(out, FRI_ONNX_NAME, "%s", wish);
    if (taken(r, out)) snprintf(out, FRI_ONNX_NAME, "%s", with);
    for (char *dot = with; (dot = strchr(dot, '.')) != NULL;) *dot = '_';
    for (int k = 1; taken(r, out); k++) snprintf(out, FRI_ONNX_NAME, "%.170s_%d", with, k);
}

/* An earlier node with equal parameters: the layer to run again. */
static int same_parameters(const fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    for (int i = 0; i < at; i++) {
        const node *o = r->graph->node[i];
        bool same = strcmp(o->op_type, n->op_type) == 0 && o->n_input == n->n_input && n->n_input > 1;
        for (size_t k = 1; same && k < n->n_input; k++) same = strcmp(o->input[k], n->input[k]) == 0;
        if (same) return i;
    }
    return -1;
}

/* A layer has a single set of options. */
static bool same_options(const node *a, const node *b) {
    bool same = a->n_attribute == b->n_attribute;
    for (size_t i = 0; same && i < a->n_attribute; i++) {
        const Onnx__AttributeProto *p = a->attribute[i];
        const Onnx__AttributeProto *q = fri_onnx_attribute(b, p->name != NULL ? p->name : "");
        same = q != NULL && p->i == q->i && p->f == q->f && p->s.len == q->s.len && p->n_ints == q->n_ints;
        for (size_t k = 0; same && k < p->n_ints; k++) same = p->ints[k] == q->ints[k];
    }
    return same;
}

/* Name of a node from the parameters: from the weight, from the bias if an exporter merged equal weights, or from the
 * bias added after a MatMul. */
static bool from_parameters(fri_onnx_reader *r, int i, char wish[FRI_ONNX_NAME]) {
    const node *n = r->graph->node[i];
    const int add = strcmp(n->op_type, "MatMul") == 0 ? fri_onnx_next(r, i, "Add") : -1;
    const char *scale = scale_of(r, n);
    if (scale != NULL && strlen(scale) < FRI_ONNX_NAME / 2) {
        snprintf(wish, FRI_ONNX_NAME, "%s", scale);
        clean(wish);
        return wish[0] != '\0';
    }
    if (n->n_input > 1 && from_weight(n->input[1], wish) && !taken(r, wish)) return true;
    for (size_t k = 0; add >= 0 && k < r->graph->node[add]->n_input; k++)
        if (from_ending(r->graph->node[add]->input[k], ".bias", wish) && !taken(r, wish)) return true;
    if (n->n_input > 2 && from_ending(n->input[2], ".bias", wish) && !taken(r, wish)) return true;
    return n->n_input > 1 && from_weight(n->input[1], wish);
}

static void name_node(fri_onnx_reader *r, int i, bool parameters) {
    const node *n = r->graph->node[i];
    const char *given = n->name != NULL ? n->name : "";
    char wish[FRI_ONNX_NAME] = "";
    if (strcmp(n->op_type, "Transpose") == 0 || strcmp(n->op_type, "Constant") == 0) return; /* no layer */
    if (strncmp(given, "node_", 5) == 0) given += 5;
    if (!(parameters && from_parameters(r, i, wish)) && !from_path(given, wish)) {
        snprintf(wish, sizeof wish, "%.100s", given[0] != '/' ? given : "");
        clean(wish);
    }
    if (wish[0] == '\0') lower(n->op_type, wish);
    char out[FRI_ONNX_NAME];
    choose(r, wish, n->op_type, out);
    memcpy(r->name[i], out, sizeof out);
}

fr_status fri_onnx_name_nodes(fri_onnx_reader *r) {
    const size_t n = r->graph->n_node;
    r->name = calloc(n, sizeof *r->name);
    r->again = calloc(n, sizeof *r->again);
    if (r->name == NULL || r->again == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu names", n);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < (int)n; i++) {
            const bool parameters = has_parameters(r->graph->node[i]) || scale_of(r, r->graph->node[i]) != NULL;
            char wish[FRI_ONNX_NAME];
            if (parameters != (pass == 0)) continue;
            /* Weights with a state dict's name are a shared tensor; weights made by the exporter are only equal. */
            const int earlier =
                parameters && r->graph->node[i]->n_input > 1 && from_weight(r->graph->node[i]->input[1], wish)
                    ? same_parameters(r, i)
                    : -1;
            if (earlier >= 0 && !same_options(r->graph->node[i], r->graph->node[earlier]))
                return fr_fail(FR_EUNSUPPORTED, "nodes %d and %d share '%.200s' under other options", earlier + 1,
                               i + 1, r->graph->node[i]->input[1]);
            if (earlier >= 0) {
                memcpy(r->name[i], r->name[earlier], sizeof *r->name);
                r->again[i] = true;
            } else {
                name_node(r, i, parameters);
            }
        }
    return FR_OK;
}
