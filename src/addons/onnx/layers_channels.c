/* layers_channels.c - ONNX nodes with a constant operand, and nodes that pick, move or reshape channels. */
#include "addons/onnx/reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef Onnx__NodeProto node;

/* ---- sums and products with constants -------------------------------------------------------------------- */

/* Constants beside an activation: a single number, a number per channel, or a number per element of an image. */
typedef struct operand {
    fri_onnx_value *x;
    const fri_onnx_constant *c;
    bool one, each; /* a single number; a number per element */
} operand;

static fr_status operand_get(fri_onnx_reader *r, const node *n, size_t constant, operand *o) {
    FRI_TRY(fri_onnx_activation(r, n, 1 - constant, FRI_ONNX_LAST, &o->x));
    FRI_TRY(fri_onnx_constant_input(r, n, constant, &o->c));
    const fri_onnx_constant *c = o->c;
    const fr_value x = o->x->x;
    const int rank = fri_onnx_rank(r, x), place = o->x->last || rank == 2 ? c->rank - 1 : c->rank - 3;
    const int64_t channels = fr_net_dim(r->net, x, -1);
    bool each = rank == 4 && !o->x->last && (c->rank == 3 || (c->rank == 4 && c->dim[0] == 1));
    for (int i = 1; i < rank && each; i++) each = c->dim[c->rank - rank + i] == fri_onnx_dim(r, x, i);
    o->one = c->n == 1;
    const bool many = c->n == channels && place >= 0 && c->dim[place] == channels;
    o->each = each && !o->one && !many;
    if (c->dtype == FR_F32 && c->rank <= rank && (o->one || many || o->each)) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED,
                   "a constant of rank %d, %lld numbers; frugal takes a single number, one per channel, %lld, or one "
                   "per element of an image, of rank %d at most",
                   c->rank, (long long)c->n, (long long)channels, rank);
}

/* Add, Sub, Mul, Div or PRelu by a constant. Numbers per element are numbers per feature of images as rows. A constant
 * divided by x is 1 for every x, times the constant, divided by x. */
fr_status fri_onnx_by_constant(fri_onnx_reader *r, int at, size_t constant) {
    const node *n = r->graph->node[at];
    const bool second = constant == 1, prelu = n->op_type[0] == 'P', under = n->op_type[0] == 'D' && !second;
    const char op = n->op_type[0] == 'S' && !second ? 'A' : under ? 'M' : n->op_type[0];
    operand o;
    char name[FRI_ONNX_NAME + 16], part[FRI_ONNX_NAME + 16];
    fri_onnx_constant *own = NULL;
    FRI_TRY(operand_get(r, n, constant, &o));
    fr_value y = o.x->x;
    if (under) y = fr_net_clamp(r->net, fri_onnx_part(r, at, "one", name), y, 1, 1);
    if (n->op_type[0] == 'S' && !second) y = fr_net_scale(r->net, fri_onnx_part(r, at, "negative", name), y, -1);
    const char *called = under ? fri_onnx_part(r, at, "constant", part) : r->name[at];
    FRI_TRY(fri_onnx_constant_new(r, FR_F32, o.c->n, &own));
    for (int64_t i = 0; i < o.c->n; i++) {
        const double v = fri_onnx_float(o.c, i);
        ((float *)own->own)[i] = (float)(op == 'S' ? -v : op == 'D' ? 1 / v : v);
    }
    if (o.each) y = fr_net_flatten(r->net, fri_onnx_part(r, at, "rows", name), y, 1);
    const bool scales = op == 'M' || op == 'D', one = o.one && !prelu;
    if (one)
        y = (scales ? fr_net_scale : fr_net_add_scalar)(r->net, called, y, fri_onnx_float(own, 0));
    else if (r->again[at])
        fr_net_again(r->net, called, &y, 1, &y, 1);
    else
        y = prelu ? fr_net_prelu(r->net, called, y, own->n, 0.25)
                  : (scales ? fr_net_layer_scale : fr_net_layer_shift)(r->net, called, y, scales);
    if (o.each)
        y = fr_net_unflatten(r->net, fri_onnx_part(r, at, "images", name), y, fr_net_dim(r->net, o.x->x, 1),
                             fr_net_dim(r->net, o.x->x, 2));
    if (under) y = fr_net_div(r->net, r->name[at], y, o.x->x);
    FRI_TRY(fri_onnx_put_like(r, n, y, o.x));
    if (!prelu) own->rank = 3; /* as layer scales in torchvision */
    own->dim[1] = own->dim[2] = 1;
    return one || r->again[at] ? FR_OK : fri_onnx_fill_later(r, called, prelu ? "weight" : "", own);
}

fr_status fri_onnx_prelu(fri_onnx_reader *r, int at) {
    return fri_onnx_by_constant(r, at, 1);
}

/* ---- picking --------------------------------------------------------------------------------------------- */

/* Channels start .. end - 1, or x if these are all. */
static fr_value narrow(fri_onnx_reader *r, const char *name, const fri_onnx_value *x, int64_t start, int64_t end) {
    if (start == 0 && end == fr_net_dim(r->net, x->x, -1)) return x->x;
    return fr_net_narrow(r->net, name, x->x, start, end - start);
}

/* The place in memory's order of dimension `axis` of the file; -1: the batch, or none. */
static int place_of(const fri_onnx_reader *r, const fri_onnx_value *x, int64_t axis) {
    static const int images[4] = {-1, 3, 1, 2}, rows[2] = {-1, 1}, last[4] = {-1, 1, 2, 3};
    const int rank = fri_onnx_rank(r, x->x);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || (rank != 4 && rank != 2)) return -1;
    return rank == 2 ? rows[axis] : x->last ? last[axis] : images[axis];
}

fr_status fri_onnx_split(fri_onnx_reader *r, int at) {
    enum { MOST = 64 };
    const node *n = r->graph->node[at];
    int64_t size[MOST], begin = 0;
    int count = 0;
    char name[FRI_ONNX_NAME + 16], number[16];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    FRI_TRY(fri_onnx_integers(r, n, 1, "split", size, MOST, &count));
    const int64_t axis = fri_onnx_attribute_int(n, "axis", 0), channels = fr_net_dim(r->net, x->x, -1);
    const int place = place_of(r, x, axis), parts = (int)n->n_output;
    if (place < 0 || place != fri_onnx_rank(r, x->x) - 1)
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal splits channels", (long long)axis);
    if (parts < 1 || parts > MOST || (count != 0 && count != parts))
        return fr_fail(FR_EUNSUPPORTED, "%d results, %d sizes; 1..%d of each", parts, count, MOST);
    const int64_t equal = (channels + parts - 1) / parts;
    for (int i = 0; i < parts; i++) {
        const int64_t left = channels - begin, part = count > 0 ? size[i] : equal < left ? equal : left;
        if (part < 1 || part > left)
            return fr_fail(FR_EFORMAT, "part %d takes %lld of the %lld channels that are left", i, (long long)part,
                           (long long)left);
        const int64_t end = begin + part;
        fri_onnx_value *y = fri_onnx_value_find(r, n->output[i]);
        snprintf(number, sizeof number, "%d", i);
        if (y != NULL) y->x = narrow(r, fri_onnx_part(r, at, number, name), x, begin, end);
        if (y != NULL) y->last = x->last;
        begin = end;
    }
    return fr_net_status(r->net) < 0 ? fri_onnx_put(r, n, x->x) : FR_OK;
}

/* Contiguous channels, and every step-th row or column. */
fr_status fri_onnx_slice(fri_onnx_reader *r, int at) {
    enum { MOST = 4 };
    const node *n = r->graph->node[at];
    int64_t start[MOST], end[MOST], axis[MOST], step[MOST];
    int starts = 0, ends = 0, axes = 0, steps = 0;
    char name[FRI_ONNX_NAME + 16], number[16];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    FRI_TRY(fri_onnx_integers(r, n, 1, "starts", start, MOST, &starts));
    FRI_TRY(fri_onnx_integers(r, n, 2, "ends", end, MOST, &ends));
    FRI_TRY(fri_onnx_integers(r, n, 3, "axes", axis, MOST, &axes));
    FRI_TRY(fri_onnx_integers(r, n, 4, NULL, step, MOST, &steps));
    if (starts < 1 || starts != ends || (axes != 0 && axes != starts) || (steps != 0 && steps != starts))
        return fr_fail(FR_EFORMAT, "%d starts, %d ends, %d axes, %d steps", starts, ends, axes, steps);
    fri_onnx_value now = *x;
    for (int i = 0; i < starts; i++) {
        const int64_t a = axes > 0 ? axis[i] : i, by = steps > 0 ? step[i] : 1;
        const int place = place_of(r, x, a), rank = fri_onnx_rank(r, x->x);
        if (place < 0 || by < 1 || (place == rank - 1 && by != 1))
            return fr_fail(FR_EUNSUPPORTED,
                           "axis %lld, step %lld; frugal takes contiguous channels, and steps of height and width",
                           (long long)a, (long long)by);
        const int64_t size = fr_net_dim(r->net, now.x, place);
        const int64_t from = start[i] < 0 ? start[i] + size : start[i], to = end[i] < 0 ? end[i] + size : end[i];
        const int64_t b = from < 0 ? 0 : from, e = to > size ? size : to;
        if (b >= e)
            return fr_fail(FR_EUNSUPPORTED, "it takes nothing of the %lld of axis %lld", (long long)size, (long long)a);
        snprintf(number, sizeof number, "%d", i);
        const char *called = starts == 1 ? r->name[at] : fri_onnx_part(r, at, number, name);
        if (place == rank - 1)
            now.x = narrow(r, called, &now, b, e);
        else if (b > 0 || e < size || by > 1)
            now.x = fr_net_slice(r->net, called, now.x, place, b,
                                 end[i] < 0 || end[i] >= size ? (end[i] < 0 ? end[i] : INT64_MAX) : e, by);
        FRI_TRY(fri_onnx_put(r, n, now.x));
    }
    return fri_onnx_put_like(r, n, now.x, x);
}

/* A single channel with an Unsqueeze of the axis, or channels in runs. */
fr_status fri_onnx_gather(fri_onnx_reader *r, int at) {
    enum { MOST = 128 };
    const node *n = r->graph->node[at];
    const fri_onnx_constant *index = NULL;
    fri_onnx_value *x = NULL;
    int64_t axis = fri_onnx_attribute_int(n, "axis", 0), back = -1;
    int count = 0, runs = 0;
    char name[FRI_ONNX_NAME + 16], number[16];
    fr_value run[MOST];
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    FRI_TRY(fri_onnx_constant_input(r, n, 1, &index));
    const int rank = fri_onnx_rank(r, x->x), next = index->rank == 0 ? fri_onnx_next(r, at, "Unsqueeze") : at;
    if (axis < 0) axis += rank;
    if (next >= 0 && next != at) FRI_TRY(fri_onnx_integers(r, r->graph->node[next], 1, "axes", &back, 1, &count));
    const int64_t channels = fr_net_dim(r->net, x->x, -1);
    if (index->n < 1 || index->rank > 1 || next < 0 || place_of(r, x, axis) != rank - 1 ||
        (next != at && (back < 0 ? back + rank : back) != axis))
        return fr_fail(FR_EUNSUPPORTED, "frugal gathers channels, and one with an Unsqueeze of its axis");
    for (int64_t i = 0, end = 0; i < index->n; i = end) {
        const int64_t first = fri_onnx_int(index, i), begin = first < 0 ? first + channels : first;
        if (begin < 0 || begin >= channels)
            return fr_fail(FR_EFORMAT, "index %lld of %lld channels", (long long)first, (long long)channels);
        for (end = i + 1; end < index->n && begin + end - i < channels; end++) {
            const int64_t next_ = fri_onnx_int(index, end);
            if ((next_ < 0 ? next_ + channels : next_) != begin + end - i) break;
        }
        if (runs == MOST) return fr_fail(FR_EUNSUPPORTED, "more than %d runs of channels", MOST);
        snprintf(number, sizeof number, "%d", runs);
        run[runs++] = narrow(r, end - i == index->n ? r->name[at] : fri_onnx_part(r, at, number, name), x, begin,
                             begin + (end - i));
    }
    r->done[next] = next != at || r->done[next];
    const fr_value y = runs > 1 ? fr_net_concat(r->net, r->name[at], run, runs) : run[0];
    return fri_onnx_put_like(r, r->graph->node[next], y, x);
}

fr_value fri_onnx_depth(fri_onnx_reader *r, int at, fr_value x, int64_t factor, bool up, bool dcr) {
    const int64_t channels = fr_net_dim(r->net, x, -1), square = factor > 0 && factor < 1 << 15 ? factor * factor : 0;
    char name[FRI_ONNX_NAME + 16];
    const char *order = fri_onnx_part(r, at, "order", name);
    if (up && dcr) x = fr_net_channel_shuffle(r->net, order, x, square);
    x = (up ? fr_net_pixel_shuffle : fr_net_pixel_unshuffle)(r->net, r->name[at], x, factor);
    return !up && dcr ? fr_net_channel_shuffle(r->net, order, x, channels) : x;
}

/* ---- moving ---------------------------------------------------------------------------------------------- */

bool fri_onnx_new_shape(fri_onnx_reader *r, const node *n, int rank, const int64_t *have, int64_t *to, int *to_rank) {
    int64_t all = 1, known = 1;
    int open = -1;
    if (fri_onnx_integers(r, n, 1, "shape", to, FRI_ONNX_RANK, to_rank) < 0 || *to_rank < 1) return false;
    for (int i = 0; i < rank; i++) all *= have[i];
    for (int i = 0; i < *to_rank; i++) {
        if (to[i] == 0 && i < rank) to[i] = have[i];
        if (to[i] == -1 && open < 0)
            open = i;
        else if (to[i] < 1 || __builtin_mul_overflow(known, to[i], &known) || known > all)
            return false;
    }
    if (open >= 0) to[open] = all / known;
    return known * (open >= 0 ? to[open] : 1) == all;
}

/* Reshape, Transpose, Reshape: PyTorch's channel shuffle, also of rows, and pixel shuffle both ways. FR_END: no such
 * nodes at the Reshape. */
static fr_status shuffle(fri_onnx_reader *r, int at, const fri_onnx_value *x, int rank, const int64_t *to) {
    static const struct {
        int rank;
        int64_t perm[6];
    } kinds[] = {{3, {0, 2, 1}},          {5, {0, 2, 1, 3, 4}},    {4, {0, 2, 1, 3}},      {6, {0, 1, 4, 2, 5, 3}},
                 {6, {0, 1, 3, 5, 2, 4}}, {6, {0, 3, 4, 1, 5, 2}}, {6, {0, 3, 5, 1, 2, 4}}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    const int turn = fri_onnx_next(r, at, "Transpose"), end = turn >= 0 ? fri_onnx_next(r, turn, "Reshape") : -1;
    const int64_t c = fri_onnx_dim(r, x->x, 1), h = fri_onnx_dim(r, x->x, 2), w = fri_onnx_dim(r, x->x, 3);
    int64_t perm[6], turned[6], back[FRI_ONNX_RANK];
    int count = 0, back_rank = 0, kind = -1;
    if (end >= 0) FRI_TRY(fri_onnx_constants_before(r, at, end));
    const int old = fri_onnx_rank(r, x->x);
    if (end < 0 || x->last || (old == 2 ? rank != 3 : old != 4 || rank < 4 || rank > 6)) return FR_END;
    if (fri_onnx_integers(r, r->graph->node[turn], SIZE_MAX, "perm", perm, 6, &count) < 0 || count != rank)
        return FR_END;
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].rank == rank && memcmp(kinds[i].perm, perm, (size_t)rank * sizeof *perm) == 0) kind = i;
    for (int i = 0; i < rank && kind >= 0; i++) turned[i] = to[perm[i]];
    if (kind < 0 || to[0] != fri_onnx_dim(r, x->x, 0) ||
        !fri_onnx_new_shape(r, r->graph->node[end], rank, turned, back, &back_rank) || back_rank != old)
        return FR_END;
    const bool dcr = kind >= 5, rises = kind == 3 || kind == 5;
    const int64_t factor = rises ? to[2] : to[rank - 1];
    const bool channels =
        kind <= 2 && to[1] * to[2] == c && back[1] == c && (old == 2 || (back[2] == h && back[3] == w));
    const bool up =
        rises && to[2] == to[dcr ? 1 : 3] && to[4] == h && to[5] == w && back[2] == h * factor && back[3] == w * factor;
    const bool down = (kind == 4 || kind == 6) && to[1] == c && to[3] == to[5] && back[1] == c * factor * factor &&
                      back[2] == h / factor && back[3] == w / factor;
    if (!channels && !up && !down) return FR_END;
    r->done[turn] = r->done[end] = true;
    return fri_onnx_put(r, r->graph->node[end],
                        channels ? fr_net_channel_shuffle(r->net, r->name[at], x->x, to[1])
                                 : fri_onnx_depth(r, at, x->x, factor, up, dcr));
}

/* Flattens to rows per image, makes images of rows, keeps the shape, or begins a shuffle. */
fr_status fri_onnx_reshape(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    int64_t to[FRI_ONNX_RANK], have[FRI_ONNX_RANK];
    int rank = 0;
    char name[FRI_ONNX_NAME + 16];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    const int old = fri_onnx_rank(r, x->x);
    for (int i = 0; i < old; i++) have[i] = fri_onnx_dim(r, x->x, i);
    const bool point = old == 4 && have[2] == 1 && have[3] == 1;
    const int64_t last[4] = {have[0], 1, 1, old == 4 ? have[1] : 0};
    if (x->last && !point) return fri_onnx_activation(r, n, 0, 0, &x);
    if (x->last) memcpy(have, last, sizeof last);
    if (!fri_onnx_new_shape(r, n, old, have, to, &rank))
        return fr_fail(FR_EUNSUPPORTED, "its shape is no constant, or of another number of elements");
    if (rank == old && memcmp(to, have, (size_t)rank * sizeof *to) == 0) return fri_onnx_same(r, at);
    if (rank == 2 && old == 4 && to[0] == r->batch && have[0] == r->batch) return fri_onnx_flat(r, at, x);
    if (rank == 4 && point && memcmp(to, last, sizeof last) == 0)
        return fri_onnx_put_like(r, n, x->x, &(fri_onnx_value){.last = true});
    if (rank == 4 && old == 2 && to[0] == have[0]) {
        const int turn = fri_onnx_next(r, at, "Transpose");
        fr_value rows = x->x; /* C, H, W in the file, H, W, C in images, or in the file, too, before a Transpose */
        if (turn >= 0 && fri_onnx_turns(r, turn, true)) {
            r->done[turn] = true;
            return fri_onnx_put(r, r->graph->node[turn], fr_net_unflatten(r->net, r->name[at], rows, to[1], to[2]));
        }
        if (to[1] > 1 && to[2] * to[3] > 1)
            rows = fr_net_channel_shuffle(r->net, fri_onnx_part(r, at, "order", name), rows, to[1]);
        return fri_onnx_put(r, n, fr_net_unflatten(r->net, r->name[at], rows, to[2], to[3]));
    }
    fr_status s = rank == 3 && old == 4 && !x->last ? fri_onnx_written_group_norm(r, at, x, to[1]) : FR_END;
    if (s == FR_END) s = shuffle(r, at, x, rank, to);
    if (s != FR_END) return s;
    return fr_fail(FR_EUNSUPPORTED,
                   "from rank %d to rank %d; frugal makes rows [N, C H W] of images, images of rows, and "
                   "shuffles by Reshape, Transpose, Reshape",
                   old, rank);
}

/* Rows [N, C] become images [N, C, 1, 1]. */
fr_status fri_onnx_unsqueeze(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const int second = fri_onnx_next(r, at, "Unsqueeze");
    int64_t axis[4] = {0};
    int count = 0, end = at, more = 0;
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, 0, &x));
    FRI_TRY(fri_onnx_integers(r, n, 1, "axes", axis, 2, &count));
    if (count == 1 && second >= 0) {
        FRI_TRY(fri_onnx_integers(r, r->graph->node[second], 1, "axes", axis + 1, 1, &more));
        end = second;
    }
    const int64_t a = axis[0], b = axis[1];
    const bool back = (a == 2 && b == 3) || (a == 3 && b == 2) || (a == -2 && b == -1) || (a == -1 && b == -2) ||
                      (a == -1 && b == -1);
    if (fri_onnx_rank(r, x->x) != 2 || count + more != 2 || !back)
        return fr_fail(FR_EUNSUPPORTED, "frugal makes images [N, C, 1, 1] of rows, axes 2 and 3, and nothing else");
    r->done[end] = end != at || r->done[end];
    return fri_onnx_put(r, r->graph->node[end], fr_net_unflatten(r->net, r->name[at], x->x, 1, 1));
}
