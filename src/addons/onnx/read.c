/* read.c - the graph of an ONNX file, node by node. */
#include "addons/onnx/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 9, NEWEST = 22, MOST_INPUTS = 64 };

typedef Onnx__NodeProto node;

/* ---- attributes ------------------------------------------------------------------------------------------ */

const Onnx__AttributeProto *fri_onnx_attribute(const node *n, const char *name) {
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name != NULL && strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i];
    return NULL;
}

bool fri_onnx_in_words(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL && n > 0; at = strstr(at + 1, word))
        if (at > words && at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

/* An attribute has the same type in all nodes; attributes outside the lists are integers. */
fr_status fri_onnx_check_attributes(const node *n) {
    static const char
        lists[] = " axes dilations ends kernel_shape output_padding output_shape pads perm shape split "
                  "starts strides ",
        texts[] = " approximate auto_pad coordinate_transformation_mode keep_aspect_ratio_policy mode "
                  "nearest_mode ",
        reals[] = " alpha beta cubic_coeff_a epsilon extrapolation_value gamma high low max min momentum ratio ",
        others[] = " scales seed value value_float value_floats value_ints value_string value_strings ";
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        const char *name = a->name != NULL ? a->name : "";
        const bool list = fri_onnx_in_words(lists, name), text = fri_onnx_in_words(texts, name),
                   real = fri_onnx_in_words(reals, name);
        const bool right =
            list   ? a->n_ints > 0 || (a->has_type && a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)
            : text ? a->has_s != 0
            : real ? a->has_f != 0
                   : a->has_i || fri_onnx_in_words(others, name);
        if (!right)
            return fr_fail(FR_EFORMAT, "its attribute '%.100s' is no %s", name,
                           list   ? "list of integers"
                           : text ? "text"
                           : real ? "float"
                                  : "integer");
    }
    return FR_OK;
}

int64_t fri_onnx_attribute_int(const node *n, const char *name, int64_t otherwise) {
    const Onnx__AttributeProto *a = fri_onnx_attribute(n, name);
    return a != NULL && a->has_i ? a->i : otherwise;
}

double fri_onnx_decimal(float v) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)v);
    return strtod(text, NULL);
}

double fri_onnx_attribute_float(const node *n, const char *name, double otherwise) {
    const Onnx__AttributeProto *a = fri_onnx_attribute(n, name);
    return a != NULL && a->has_f ? fri_onnx_decimal(a->f) : otherwise;
}

const char *fri_onnx_attribute_text(const node *n, const char *name, const char *otherwise, char text[64]) {
    const Onnx__AttributeProto *a = fri_onnx_attribute(n, name);
    if (a != NULL && a->has_s)
        snprintf(text, 64, "%.*s", (int)(a->s.len < 63 ? a->s.len : 63), (const char *)a->s.data);
    else
        snprintf(text, 64, "%s", otherwise);
    return text;
}

fr_status fri_onnx_integers(fri_onnx_reader *r, const node *n, size_t at, const char *name, int64_t *out, int most,
                            int *count) {
    const Onnx__AttributeProto *a = name != NULL ? fri_onnx_attribute(n, name) : NULL;
    const fri_onnx_constant *c = NULL;
    *count = 0;
    if (a == NULL && fri_onnx_input(r, n, at) == NULL) return FR_OK;
    if (a == NULL) FRI_TRY(fri_onnx_constant_input(r, n, at, &c));
    const size_t have = a != NULL ? a->n_ints : (size_t)c->n;
    if (have > (size_t)most)
        return fr_fail(FR_EUNSUPPORTED, "%zu numbers of '%s'; frugal takes %d at most", have, name != NULL ? name : "",
                       most);
    for (size_t i = 0; i < have; i++) out[i] = a != NULL ? a->ints[i] : fri_onnx_int(c, (int64_t)i);
    *count = (int)have;
    return FR_OK;
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fri_onnx_value *)a)->name, ((const fri_onnx_value *)b)->name);
}

fri_onnx_value *fri_onnx_value_find(fri_onnx_reader *r, const char *name) {
    const fri_onnx_value key = {.name = name};
    if (name == NULL || name[0] == '\0' || r->values == 0) return NULL;
    return bsearch(&key, r->value, r->values, sizeof key, by_name);
}

fri_onnx_value *fri_onnx_input(fri_onnx_reader *r, const node *n, size_t i) {
    return i < n->n_input ? fri_onnx_value_find(r, n->input[i]) : NULL;
}

fri_onnx_value *fri_onnx_made(fri_onnx_reader *r, const node *n) {
    return n->n_output > 0 ? fri_onnx_value_find(r, n->output[0]) : NULL;
}

fr_status fri_onnx_fetch(fri_onnx_reading *l, const node *n, size_t i, unsigned takes) {
    fri_onnx_value *v = fri_onnx_input(l->r, n, i);
    if (v == NULL || v->x.id < 0)
        return fr_fail(FR_EUNSUPPORTED, "input %zu is %s; frugal needs an activation there", i,
                       v == NULL             ? "missing"
                       : v->constant != NULL ? "a constant"
                                             : "a result that frugal does not make");
    if ((takes & FRI_ONNX_PADS) == 0 && (v->pad[0] != 0 || v->pad[1] != 0))
        return fr_fail(FR_EUNSUPPORTED, "input %zu is padded; only Conv and AveragePool take in what Pad adds", i);
    if ((takes & FRI_ONNX_LAST) == 0 && v->last)
        return fr_fail(FR_EUNSUPPORTED, "input %zu has its channels last; frugal takes [N, C, H, W] there", i);
    l->in = v;
    l->x = v->x;
    l->last = v->last;
    l->rank = fri_onnx_rank(l->r, v->x);
    l->numel = 1;
    for (int k = 0; k < FR_MAX_RANK; k++) l->dim[k] = fri_onnx_dim(l->r, v->x, k);
    for (int k = 0; k < l->rank; k++) l->numel *= l->dim[k];
    l->channels = fr_net_dim(l->net, v->x, -1);
    if ((takes & FRI_ONNX_IMAGES) == 0 || l->rank == 4) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED, "its input has rank %d; images are needed", l->rank);
}

fr_status fri_onnx_constant_input(fri_onnx_reader *r, const node *n, size_t i, const fri_onnx_constant **out) {
    const fri_onnx_value *v = fri_onnx_input(r, n, i);
    if (v == NULL || v->constant == NULL)
        return fr_fail(FR_EUNSUPPORTED, "input %zu is %s; frugal needs a constant there", i,
                       v == NULL ? "missing" : "computed from the images");
    *out = v->constant;
    return FR_OK;
}

int fri_onnx_rank(const fri_onnx_reader *r, fr_value x) {
    int rank = 0;
    while (rank < FR_MAX_RANK && fr_net_dim(r->net, x, rank) > 0) rank++;
    return rank;
}

int64_t fri_onnx_dim(const fri_onnx_reader *r, fr_value x, int i) {
    static const int at[4] = {0, 3, 1, 2};
    return fr_net_dim(r->net, x, i < 4 && fri_onnx_rank(r, x) == 4 ? at[i] : i);
}

fr_status fri_onnx_put(fri_onnx_reading *l, fr_value y) {
    fri_onnx_value *v = fri_onnx_made(l->r, l->r->graph->node[l->end]);
    l->r->done[l->end] = true;
    if (fr_net_status(l->net) < 0) return fr_net_end(&l->r->net, &y, 0, &(fr_module *){NULL});
    if (v == NULL) return FR_OK;
    v->x = y;
    v->last = l->last;
    return FR_OK;
}

fr_status fri_onnx_put_constant(fri_onnx_reader *r, const node *n, fri_onnx_constant *c) {
    fri_onnx_value *v = fri_onnx_made(r, n);
    if (v != NULL) v->constant = c;
    return FR_OK;
}

int fri_onnx_next(fri_onnx_reader *r, int at, const char *op) {
    const fri_onnx_value *v = at >= 0 ? fri_onnx_made(r, r->graph->node[at]) : NULL;
    if (v == NULL || v->readers != 1 || v->reader <= at) return -1;
    return strcmp(r->graph->node[v->reader]->op_type, op) == 0 ? v->reader : -1;
}

int fri_onnx_chain(fri_onnx_reader *r, int at, const char *const *ops, int *part) {
    for (; *ops != NULL; ops++) *part++ = at = fri_onnx_next(r, at, *ops);
    return at;
}

bool fri_onnx_shared(const fri_onnx_reader *r, int at) {
    bool shared = false;
    for (int i = 0; i < (int)r->graph->n_node && !shared; i++)
        shared = i != at && r->name[at][0] != '\0' && strcmp(r->name[i], r->name[at]) == 0;
    return shared;
}

/* ---- the table of values --------------------------------------------------------------------------------- */

static fr_status add_value(fri_onnx_reader *r, const char *name) {
    if (name == NULL || name[0] == '\0') return FR_OK;
    fr_status s = FRI_ROOM(r->value, r->values, "ONNX values");
    if (s == FR_OK) r->value[r->values++] = (fri_onnx_value){.name = name, .x = {-1}, .reader = -1};
    return s;
}

static fr_status list_values(fri_onnx_reader *r) {
    const Onnx__GraphProto *g = r->graph;
    for (size_t i = 0; i < g->n_initializer; i++) FRI_TRY(add_value(r, g->initializer[i]->name));
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) FRI_TRY(add_value(r, g->node[i]->output[k]));
    if (r->values > 0) qsort(r->value, r->values, sizeof *r->value, by_name);
    const size_t made = r->values;
    for (size_t i = 0; i < g->n_input; i++) {
        const fri_onnx_value key = {.name = g->input[i]->name};
        const bool listed =
            key.name == NULL || (made > 0 && bsearch(&key, r->value, made, sizeof key, by_name) != NULL);
        if (!listed) FRI_TRY(add_value(r, key.name)); /* older files also list initializers as inputs */
    }
    if (r->values > 0) qsort(r->value, r->values, sizeof *r->value, by_name);
    for (size_t i = 1; i < r->values; i++)
        if (strcmp(r->value[i - 1].name, r->value[i].name) == 0)
            return fr_fail(FR_EFORMAT, "value '%.200s' is made twice", r->value[i].name);
    return FR_OK;
}

int fri_onnx_results(const fri_onnx_reader *r) {
    return r->opts.n_results > 0 ? r->opts.n_results : (int)r->graph->n_output;
}

const char *fri_onnx_result(const fri_onnx_reader *r, int i) {
    const char *name = r->opts.n_results > 0 ? r->opts.results[i] : r->graph->output[i]->name;
    return name != NULL ? name : "";
}

/* Counts the readers of each value; nodes that no result needs are done, and read nothing. */
static void count_readers(fri_onnx_reader *r) {
    const Onnx__GraphProto *g = r->graph;
    for (int i = 0; i < fri_onnx_results(r); i++) {
        fri_onnx_value *v = fri_onnx_value_find(r, fri_onnx_result(r, i));
        if (v != NULL) v->readers++;
    }
    for (size_t i = g->n_node; i-- > 0;) {
        r->done[i] = true;
        for (size_t k = 0; k < g->node[i]->n_output; k++) {
            const fri_onnx_value *v = fri_onnx_value_find(r, g->node[i]->output[k]);
            if (v != NULL && v->readers > 0) r->done[i] = false;
        }
        for (size_t k = 0; k < g->node[i]->n_input && !r->done[i]; k++) {
            fri_onnx_value *v = fri_onnx_input(r, g->node[i], k);
            if (v == NULL) continue;
            v->readers++;
            if (v->reader < 0) v->reader = (int)i;
        }
    }
}

static fr_status read_initializers(fri_onnx_reader *r) {
    for (size_t i = 0; i < r->graph->n_initializer; i++) {
        fri_onnx_value *v = fri_onnx_value_find(r, r->graph->initializer[i]->name);
        fri_onnx_constant *c = NULL;
        FRI_TRY(fri_onnx_tensor_read(r, r->graph->initializer[i], &c));
        if (v != NULL) v->constant = c;
    }
    return FR_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------------------- */

/* Do all readers take the channels to the front, as in files of TensorFlow? */
static bool channels_last(fri_onnx_reader *r, const Onnx__ValueInfoProto *in) {
    static const int64_t to_first[4] = {0, 3, 1, 2};
    bool last = false, other = false;
    for (size_t i = 0; i < r->graph->n_node; i++)
        for (size_t k = 0; k < r->graph->node[i]->n_input; k++) {
            const node *n = r->graph->node[i];
            if (n->input[k] == NULL || strcmp(n->input[k], in->name) != 0) continue;
            const Onnx__AttributeProto *a = strcmp(n->op_type, "Transpose") == 0 ? fri_onnx_attribute(n, "perm") : NULL;
            if (a != NULL && a->n_ints == 4 && memcmp(a->ints, to_first, sizeof to_first) == 0)
                last = true;
            else
                other = true;
        }
    return last && !other;
}

/* Dimensions in the file's order; an open batch is 1. */
static fr_status input_shape(const fri_onnx_reader *r, const Onnx__ValueInfoProto *v, bool last, int64_t dim[4],
                             int *rank) {
    const Onnx__TypeProto__Tensor *t =
        v->type != NULL && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? v->type->tensor_type : NULL;
    int64_t all = 1;
    const int64_t given[4] = {1, last ? r->opts.height : 0, last ? r->opts.width : r->opts.height,
                              last ? 0 : r->opts.width};
    if (t == NULL || !t->has_elem_type || t->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || t->shape == NULL)
        return fr_fail(FR_EUNSUPPORTED, "input '%.200s' is no f32 tensor of a known rank", v->name);
    *rank = (int)(t->shape->n_dim < 9 ? t->shape->n_dim : 9);
    if (*rank != 2 && *rank != 4)
        return fr_fail(FR_EUNSUPPORTED, "input '%.200s' has rank %d; images [N, C, H, W] or rows [N, F] are read",
                       v->name, *rank);
    for (int i = 0; i < *rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        const bool known = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value > 0;
        dim[i] = known ? d->dim_value : given[i];
        if (!known && dim[i] == 0)
            return fr_fail(FR_EINVAL, "dimension %d of input '%.200s' is open; give %s", i, v->name,
                           *rank == 4 && i != (last ? 3 : 1) ? "height and width" : "it a number when exporting");
        if (dim[i] > INT32_MAX || (all *= dim[i]) > INT32_MAX)
            return fr_fail(FR_EFORMAT, "dimension %d of input '%.200s' is %lld; %d elements are read at most", i,
                           v->name, (long long)dim[i], INT32_MAX);
    }
    return FR_OK;
}

static fr_status read_inputs(fri_onnx_reader *r) {
    int64_t dim[4];
    int rank = 0;
    for (size_t i = 0; i < r->graph->n_input; i++) {
        const Onnx__ValueInfoProto *in = r->graph->input[i];
        fri_onnx_value *v = fri_onnx_value_find(r, in->name);
        if (v == NULL || v->constant != NULL) continue;
        if (v->x.id >= 0) return fr_fail(FR_EFORMAT, "input '%.200s' is listed twice", in->name);
        if (++r->inputs > MOST_INPUTS)
            return fr_fail(FR_EUNSUPPORTED, "input '%.200s' is number %d; a network has %d at most", in->name,
                           r->inputs, MOST_INPUTS);
        v->last = channels_last(r, in);
        FRI_TRY(input_shape(r, in, v->last, dim, &rank));
        r->batch = dim[0];
        v->x = fr_net_input(r->net, FR_F32, rank,
                            rank != 4 ? (int64_t[]){dim[0], dim[1]}
                            : v->last ? (int64_t[]){dim[0], dim[1], dim[2], dim[3]}
                                      : (int64_t[]){dim[0], dim[2], dim[3], dim[1]});
        FRI_TRY(fr_net_status(r->net));
    }
    return FR_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------------------- */

static bool reads_constants(fri_onnx_reader *r, const node *n) {
    if (strcmp(n->op_type, "Shape") == 0 || strcmp(n->op_type, "Size") == 0) return true;
    for (size_t i = 0; i < n->n_input; i++) {
        const fri_onnx_value *v = fri_onnx_input(r, n, i);
        if (v == NULL ? n->input[i] != NULL && n->input[i][0] != '\0' : v->constant == NULL) return false;
    }
    return true;
}

static fr_status read_node(fri_onnx_reader *r, int i) {
    const node *n = r->graph->node[i];
    if (r->done[i]) return FR_OK;
    const bool random = strcmp(n->op_type, "RandomUniformLike") == 0; /* starts a layer, with a shape as only input */
    fr_status s = reads_constants(r, n) && !random ? fri_onnx_fold(r, n) : fri_onnx_layer(r, i);
    r->done[i] = true;
    if (s >= 0) return FR_OK;
    const bool named = n->name != NULL && n->name[0] != '\0';
    return fr_fail_prefix(s, "node %s'%.200s' (%.60s, %d of %zu): ", named ? "" : "of ",
                          named                                     ? n->name
                          : n->n_output > 0 && n->output[0] != NULL ? n->output[0]
                                                                    : "",
                          n->op_type, i + 1, r->graph->n_node);
}

fr_status fri_onnx_constants_before(fri_onnx_reader *r, int at, int end) {
    for (int i = at + 1; i < end; i++) {
        const node *n = r->graph->node[i];
        const fri_onnx_value *x = fri_onnx_input(r, n, 0);
        const bool made = strcmp(n->op_type, "Constant") == 0 || (x != NULL && (x->constant != NULL || x->x.id >= 0));
        if (!r->done[i] && made && reads_constants(r, n)) FRI_TRY(read_node(r, i));
    }
    return FR_OK;
}

static fr_status check_model(fri_onnx_reader *r) {
    const Onnx__ModelProto *m = r->model;
    r->graph = m->graph;
    if (m->graph == NULL || m->graph->n_node == 0) return fr_fail(FR_EFORMAT, "it has no graph, or one without nodes");
    if (m->graph->n_node > FRI_ONNX_MOST_NODES)
        return fr_fail(FR_EUNSUPPORTED, "it has %zu nodes; %d at most", m->graph->n_node, FRI_ONNX_MOST_NODES);
    if (m->graph->n_sparse_initializer > 0) return fr_fail(FR_EUNSUPPORTED, "it has sparse constants");
    for (size_t i = 0; i < m->graph->n_node; i++)
        if (m->graph->node[i]->op_type == NULL) return fr_fail(FR_EFORMAT, "node %zu has no type", i + 1);
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = m->opset_import[i];
        if ((o->domain == NULL || o->domain[0] == '\0' || strcmp(o->domain, "ai.onnx") == 0) && o->has_version)
            r->opset = o->version;
    }
    if (r->opset < OLDEST || r->opset > NEWEST)
        return fr_fail(FR_EUNSUPPORTED, "it is of opset %lld; %d to %d are read", (long long)r->opset, OLDEST, NEWEST);
    return FR_OK;
}

/* A result that is an input gets a layer: a network without layers is refused. */
static fr_status end_network(fri_onnx_reader *r, fr_module **m) {
    const int n = fri_onnx_results(r);
    FRI_OWNED(fri_free) fr_value *result = calloc((size_t)n + 1, sizeof *result);
    if (result == NULL) return fr_fail(FR_ENOMEM, "no host memory for %d results", n);
    for (int i = 0; i < n; i++) {
        const fri_onnx_value *v = fri_onnx_value_find(r, fri_onnx_result(r, i));
        if (v != NULL && v->last) return fr_fail(FR_EUNSUPPORTED, "result '%.200s' has its channels last", v->name);
        if (v == NULL || v->x.id < 0 || v->pad[0] != 0 || v->pad[1] != 0)
            return fr_fail(FR_EUNSUPPORTED, "result '%.200s' is made by no layer", fri_onnx_result(r, i));
        result[i] = v->x.id < r->inputs ? fr_net_identity(r->net, NULL, v->x) : v->x;
    }
    return fr_net_end(&r->net, result, n, m);
}

fr_status fri_onnx_build(fri_onnx_reader *r, fr_module **out) {
    FRI_OWNED(fr_module_release) fr_module *m = NULL;
    FRI_TRY(check_model(r));
    FRI_TRY(list_values(r));
    r->done = calloc(r->graph->n_node, sizeof *r->done);
    if (r->done == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu nodes", r->graph->n_node);
    count_readers(r);
    FRI_TRY(read_initializers(r));
    FRI_TRY(fri_onnx_name_nodes(r));
    r->net = fr_net_begin(r->opts.device);
    if (r->net == NULL) return fr_fail(FR_ENOMEM, "no host memory for a network");
    FRI_TRY(read_inputs(r));
    /* Constants first: a pattern of nodes looks ahead. */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < (int)r->graph->n_node; i++)
            if (pass == 1 || strcmp(r->graph->node[i]->op_type, "Constant") == 0) FRI_TRY(read_node(r, i));
    FRI_TRY(end_network(r, &m));
    FRI_TRY(fri_onnx_fill_all(r, m));
    fr_module_release(out);
    FRI_MOVE(out, m);
    return FR_OK;
}

void fri_onnx_reader_free(fri_onnx_reader *r) {
    fr_module *none = NULL;
    if (r->net != NULL) (void)fr_net_end(&r->net, &(fr_value){-1}, 0, &none);
    fr_module_release(&none);
    for (size_t i = 0; i < r->constants; i++) {
        free(r->constant[i]->own);
        free(r->constant[i]);
    }
    free(r->constant);
    free(r->value);
    free(r->name);
    free(r->again);
    free(r->done);
    free(r->fill);
    if (r->model != NULL) onnx__model_proto__free_unpacked(r->model, NULL);
    *r = (fri_onnx_reader){0};
}
