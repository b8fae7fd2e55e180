/* layers_channels.c - ONNX nodes with a constant operand, and nodes that pick, move or reshape channels. */
#include "addons/onnx/reader.h"

#include <string.h>

typedef Onnx__NodeProto node;
typedef fri_onnx_reading reading;

/* ---- sums and products with constants -------------------------------------------------------------------- */

/* Fetches the activation and the constant beside it: a single number, a number per channel, or, *each, a number per
 * element of an image. */
static fr_status operands(reading *l, size_t constant, const fri_onnx_constant **out, bool *each) {
    FRI_TRY(fri_onnx_fetch(l, l->n, 1 - constant, FRI_ONNX_LAST));
    FRI_TRY(fri_onnx_constant_input(l->r, l->n, constant, out));
    const fri_onnx_constant *c = *out;
    const int place = l->last || l->rank == 2 ? c->rank - 1 : c->rank - 3;
    const bool many = c->n == l->channels && place >= 0 && c->dim[place] == l->channels;
    *each = l->rank == 4 && !l->last && (c->rank == 3 || (c->rank == 4 && c->dim[0] == 1)) && c->n != 1 && !many;
    for (int i = 1; i < l->rank && *each; i++) *each = c->dim[c->rank - l->rank + i] == l->dim[i];
    if (c->dtype == FR_F32 && c->rank <= l->rank && (c->n == 1 || many || *each)) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED,
                   "a constant of rank %d, %lld numbers; frugal takes a single number, one per channel, %lld, or one "
                   "per element of an image, of rank %d at most",
                   c->rank, (long long)c->n, (long long)l->channels, l->rank);
}

/* Add, Sub, Mul, Div or PRelu by a constant. Numbers per element are numbers per feature of images as rows. A constant
 * divided by x is 1 for every x, times the constant, divided by x. */
fr_status fri_onnx_by_constant(reading *l, size_t constant) {
    const char type = l->n->op_type[0];
    const bool second = constant == 1, prelu = type == 'P', under = type == 'D' && !second;
    const char op = type == 'S' && !second ? 'A' : under ? 'M' : type;
    const fri_onnx_constant *c = NULL;
    fri_onnx_constant *own = NULL;
    bool each = false;
    FRI_TRY(operands(l, constant, &c, &each));
    fr_value y = l->x;
    if (under) y = fr_net_clamp(l->net, fri_onnx_part(l, "one"), y, 1, 1);
    if (type == 'S' && !second) y = fr_net_scale(l->net, fri_onnx_part(l, "negative"), y, -1);
    FRI_TRY(fri_onnx_constant_new(l->r, FR_F32, c->n, &own));
    for (int64_t i = 0; i < c->n; i++) {
        const double v = fri_onnx_float(c, i);
        ((float *)own->own)[i] = (float)(op == 'S' ? -v : op == 'D' ? 1 / v : v);
    }
    if (each) y = fr_net_flatten(l->net, fri_onnx_part(l, "rows"), y, 1);
    const char *called = under ? fri_onnx_part(l, "constant") : l->name;
    const bool scales = op == 'M' || op == 'D', one = c->n == 1 && !prelu;
    y = one        ? (scales ? fr_net_scale : fr_net_add_scalar)(l->net, called, y, fri_onnx_float(own, 0))
        : l->again ? fri_onnx_again(l, y)
        : prelu    ? fr_net_prelu(l->net, called, y, own->n, 0.25)
                   : (scales ? fr_net_layer_scale : fr_net_layer_shift)(l->net, called, y, scales);
    if (each) y = fr_net_unflatten(l->net, fri_onnx_part(l, "images"), y, l->dim[2], l->dim[3]);
    if (under) y = fr_net_div(l->net, l->name, y, l->x);
    FRI_TRY(fri_onnx_put(l, y));
    if (!prelu) own->rank = 3; /* as layer scales in torchvision */
    own->dim[1] = own->dim[2] = 1;
    return one || l->again ? FR_OK : fri_onnx_fill_later(l->r, called, prelu ? "weight" : "", own);
}

fr_status fri_onnx_prelu(reading *l) {
    return fri_onnx_by_constant(l, 1);
}

/* ---- picking --------------------------------------------------------------------------------------------- */

/* Channels start .. end - 1 of x, or x for all channels. */
static fr_value narrow(const reading *l, const char *name, fr_value x, int64_t start, int64_t end) {
    if (start == 0 && end == fr_net_dim(l->net, x, -1)) return x;
    return fr_net_narrow(l->net, name, x, start, end - start);
}

/* The place in memory's order of dimension `axis` of the file; -1: the batch, or none. */
static int place_of(const reading *l, int64_t axis) {
    static const int images[4] = {-1, 3, 1, 2}, rows[2] = {-1, 1}, last[4] = {-1, 1, 2, 3};
    if (axis < 0) axis += l->rank;
    if (axis < 0 || axis >= l->rank || (l->rank != 4 && l->rank != 2)) return -1;
    return l->rank == 2 ? rows[axis] : l->last ? last[axis] : images[axis];
}

fr_status fri_onnx_split(reading *l) {
    enum { MOST = 64 };
    int64_t size[MOST], begin = 0;
    int count = 0;
    FRI_TRY(fri_onnx_integers(l->r, l->n, 1, "split", size, MOST, &count));
    const int64_t axis = fri_onnx_attribute_int(l->n, "axis", 0);
    const int place = place_of(l, axis), parts = (int)l->n->n_output;
    if (place < 0 || place != l->rank - 1)
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal splits channels", (long long)axis);
    if (parts < 1 || parts > MOST || (count != 0 && count != parts))
        return fr_fail(FR_EUNSUPPORTED, "%d results, %d sizes; 1..%d of each", parts, count, MOST);
    const int64_t equal = (l->channels + parts - 1) / parts;
    for (int i = 0; i < parts; i++) {
        const int64_t left = l->channels - begin, part = count > 0 ? size[i] : equal < left ? equal : left;
        if (part < 1 || part > left)
            return fr_fail(FR_EFORMAT, "part %d takes %lld of the %lld channels that are left", i, (long long)part,
                           (long long)left);
        fri_onnx_value *y = fri_onnx_value_find(l->r, l->n->output[i]);
        if (y != NULL) y->x = narrow(l, fri_onnx_part(l, "%d", i), l->x, begin, begin + part);
        if (y != NULL) y->last = l->last;
        begin += part;
    }
    return fr_net_status(l->net) < 0 ? fri_onnx_put(l, l->x) : FR_OK;
}

/* Contiguous channels, and every step-th row or column. */
fr_status fri_onnx_slice(reading *l) {
    enum { MOST = 4 };
    static const char *const name[MOST] = {"starts", "ends", "axes", NULL};
    int64_t v[4][MOST];
    int n[4] = {0};
    for (size_t i = 0; i < 4; i++) FRI_TRY(fri_onnx_integers(l->r, l->n, i + 1, name[i], v[i], MOST, &n[i]));
    if (n[0] < 1 || n[0] != n[1] || (n[2] != 0 && n[2] != n[0]) || (n[3] != 0 && n[3] != n[0]))
        return fr_fail(FR_EFORMAT, "%d starts, %d ends, %d axes, %d steps", n[0], n[1], n[2], n[3]);
    fr_value now = l->x;
    for (int i = 0; i < n[0]; i++) {
        const int64_t start = v[0][i], end = v[1][i], a = n[2] > 0 ? v[2][i] : i, by = n[3] > 0 ? v[3][i] : 1;
        const int place = place_of(l, a);
        if (place < 0 || by < 1 || (place == l->rank - 1 && by != 1))
            return fr_fail(FR_EUNSUPPORTED,
                           "axis %lld, step %lld; frugal takes contiguous channels, and steps of height and width",
                           (long long)a, (long long)by);
        const int64_t size = fr_net_dim(l->net, now, place);
        const int64_t from = start < 0 ? start + size : start, to = end < 0 ? end + size : end;
        const int64_t b = from < 0 ? 0 : from, e = to > size ? size : to;
        if (b >= e)
            return fr_fail(FR_EUNSUPPORTED, "it takes nothing of the %lld of axis %lld", (long long)size, (long long)a);
        const char *called = n[0] == 1 ? l->name : fri_onnx_part(l, "%d", i);
        if (place == l->rank - 1)
            now = narrow(l, called, now, b, e);
        else if (b > 0 || e < size || by > 1)
            now = fr_net_slice(l->net, called, now, place, b, end < 0 ? end : end >= size ? INT64_MAX : e, by);
        FRI_TRY(fri_onnx_put(l, now));
    }
    return FR_OK;
}

/* A single channel with an Unsqueeze of the axis, or channels in runs. */
fr_status fri_onnx_gather(reading *l) {
    enum { MOST = 128 };
    const fri_onnx_constant *index = NULL;
    int64_t axis = fri_onnx_attribute_int(l->n, "axis", 0), back = -1;
    int count = 0, runs = 0;
    fr_value run[MOST];
    FRI_TRY(fri_onnx_constant_input(l->r, l->n, 1, &index));
    if (index->rank == 0) l->end = fri_onnx_next(l->r, l->at, "Unsqueeze");
    if (axis < 0) axis += l->rank;
    const bool single = l->end >= 0 && l->end != l->at;
    if (single) FRI_TRY(fri_onnx_integers(l->r, l->r->graph->node[l->end], 1, "axes", &back, 1, &count));
    if (index->n < 1 || index->rank > 1 || l->end < 0 || place_of(l, axis) != l->rank - 1 ||
        (single && (back < 0 ? back + l->rank : back) != axis))
        return fr_fail(FR_EUNSUPPORTED, "frugal gathers channels, and one with an Unsqueeze of its axis");
    for (int64_t i = 0, end = 0; i < index->n; i = end) {
        const int64_t first = fri_onnx_int(index, i), begin = first < 0 ? first + l->channels : first;
        if (begin < 0 || begin >= l->channels)
            return fr_fail(FR_EFORMAT, "index %lld of %lld channels", (long long)first, (long long)l->channels);
        for (end = i + 1; end < index->n && begin + end - i < l->channels; end++) {
            const int64_t next = fri_onnx_int(index, end);
            if ((next < 0 ? next + l->channels : next) != begin + end - i) break;
        }
        if (runs == MOST) return fr_fail(FR_EUNSUPPORTED, "more than %d runs of channels", MOST);
        const char *called = end - i == index->n ? l->name : fri_onnx_part(l, "%d", runs);
        run[runs++] = narrow(l, called, l->x, begin, begin + (end - i));
    }
    return fri_onnx_put(l, runs > 1 ? fr_net_concat(l->net, l->name, run, runs) : run[0]);
}

fr_value fri_onnx_depth(reading *l, int64_t factor, bool up, bool dcr) {
    const int64_t square = factor > 0 && factor < 1 << 15 ? factor * factor : 0;
    const char *order = fri_onnx_part(l, "order");
    fr_value x = l->x;
    if (up && dcr) x = fr_net_channel_shuffle(l->net, order, x, square);
    x = (up ? fr_net_pixel_shuffle : fr_net_pixel_unshuffle)(l->net, l->name, x, factor);
    return !up && dcr ? fr_net_channel_shuffle(l->net, order, x, l->channels) : x;
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
static fr_status shuffle(reading *l, int rank, const int64_t *to) {
    static const struct {
        int rank;
        int64_t perm[6];
    } kinds[] = {{3, {0, 2, 1}},          {5, {0, 2, 1, 3, 4}},    {4, {0, 2, 1, 3}},      {6, {0, 1, 4, 2, 5, 3}},
                 {6, {0, 1, 3, 5, 2, 4}}, {6, {0, 3, 4, 1, 5, 2}}, {6, {0, 3, 5, 1, 2, 4}}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    const int64_t c = l->dim[1], h = l->dim[2], w = l->dim[3];
    int64_t perm[6], turned[6], back[FRI_ONNX_RANK];
    int count = 0, back_rank = 0, kind = -1, part[2];
    const int end = fri_onnx_chain(l->r, l->at, (const char *[]){"Transpose", "Reshape", NULL}, part);
    if (end >= 0) FRI_TRY(fri_onnx_constants_before(l->r, l->at, end));
    if (end < 0 || l->last || (l->rank == 2 ? rank != 3 : l->rank != 4 || rank < 4 || rank > 6)) return FR_END;
    if (fri_onnx_integers(l->r, l->r->graph->node[part[0]], SIZE_MAX, "perm", perm, 6, &count) < 0 || count != rank)
        return FR_END;
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].rank == rank && memcmp(kinds[i].perm, perm, (size_t)rank * sizeof *perm) == 0) kind = i;
    for (int i = 0; i < rank && kind >= 0; i++) turned[i] = to[perm[i]];
    if (kind < 0 || to[0] != l->dim[0] ||
        !fri_onnx_new_shape(l->r, l->r->graph->node[end], rank, turned, back, &back_rank) || back_rank != l->rank)
        return FR_END;
    const bool dcr = kind >= 5, rises = kind == 3 || kind == 5;
    const int64_t factor = rises ? to[2] : to[rank - 1];
    const bool channels =
        kind <= 2 && to[1] * to[2] == c && back[1] == c && (l->rank == 2 || (back[2] == h && back[3] == w));
    const bool up =
        rises && to[2] == to[dcr ? 1 : 3] && to[4] == h && to[5] == w && back[2] == h * factor && back[3] == w * factor;
    const bool down = (kind == 4 || kind == 6) && to[1] == c && to[3] == to[5] && back[1] == c * factor * factor &&
                      back[2] == h / factor && back[3] == w / factor;
    if (!channels && !up && !down) return FR_END;
    l->r->done[part[0]] = true;
    l->end = end;
    return fri_onnx_put(l, channels ? fr_net_channel_shuffle(l->net, l->name, l->x, to[1])
                                    : fri_onnx_depth(l, factor, up, dcr));
}

/* Rows become images: C, H, W in the file, H, W, C in memory, or in the file, too, before a Transpose. */
static fr_status images_of_rows(reading *l, const int64_t *to) {
    const int turn = fri_onnx_next(l->r, l->at, "Transpose");
    const bool turned = turn >= 0 && fri_onnx_turns(l->r, turn, true);
    fr_value y = l->x;
    if (turned) l->end = turn;
    if (!turned && to[1] > 1 && to[2] * to[3] > 1)
        y = fr_net_channel_shuffle(l->net, fri_onnx_part(l, "order"), y, to[1]);
    return fri_onnx_put(l, fr_net_unflatten(l->net, l->name, y, to[turned ? 1 : 2], to[turned ? 2 : 3]));
}

/* Flattens to rows per image, makes images of rows, keeps the shape, or begins a shuffle. */
fr_status fri_onnx_reshape(reading *l) {
    int64_t to[FRI_ONNX_RANK], have[FR_MAX_RANK];
    int rank = 0;
    memcpy(have, l->dim, sizeof have);
    const bool point = l->rank == 4 && have[2] == 1 && have[3] == 1;
    const int64_t last[4] = {have[0], 1, 1, l->rank == 4 ? have[1] : 0};
    if (l->last && !point) return fri_onnx_fetch(l, l->n, 0, 0);
    if (l->last) memcpy(have, last, sizeof last);
    if (!fri_onnx_new_shape(l->r, l->n, l->rank, have, to, &rank))
        return fr_fail(FR_EUNSUPPORTED, "its shape is no constant, or of another number of elements");
    if (rank == l->rank && memcmp(to, have, (size_t)rank * sizeof *to) == 0) return fri_onnx_same(l);
    if (rank == 2 && l->rank == 4 && to[0] == l->r->batch && have[0] == l->r->batch) return fri_onnx_flat(l);
    if (rank == 4 && point && memcmp(to, last, sizeof last) == 0) {
        l->last = true;
        return fri_onnx_put(l, l->x);
    }
    if (rank == 4 && l->rank == 2 && to[0] == have[0]) return images_of_rows(l, to);
    fr_status s = rank == 3 && l->rank == 4 && !l->last ? fri_onnx_written_group_norm(l, to[1]) : FR_END;
    if (s == FR_END) s = shuffle(l, rank, to);
    if (s != FR_END) return s;
    return fr_fail(FR_EUNSUPPORTED,
                   "from rank %d to rank %d; frugal makes rows [N, C H W] of images, images of rows, and "
                   "shuffles by Reshape, Transpose, Reshape",
                   l->rank, rank);
}

/* Rows [N, C] become images [N, C, 1, 1]. */
fr_status fri_onnx_unsqueeze(reading *l) {
    const int second = fri_onnx_next(l->r, l->at, "Unsqueeze");
    int64_t axis[4] = {0};
    int count = 0, more = 0;
    FRI_TRY(fri_onnx_integers(l->r, l->n, 1, "axes", axis, 2, &count));
    if (count == 1 && second >= 0) {
        FRI_TRY(fri_onnx_integers(l->r, l->r->graph->node[second], 1, "axes", axis + 1, 1, &more));
        l->end = second;
    }
    const int64_t a = axis[0], b = axis[1];
    const bool back = (a == 2 && b == 3) || (a == 3 && b == 2) || (a == -2 && b == -1) || (a == -1 && b == -2) ||
                      (a == -1 && b == -1);
    if (l->rank != 2 || count + more != 2 || !back)
        return fr_fail(FR_EUNSUPPORTED, "frugal makes images [N, C, 1, 1] of rows, axes 2 and 3, and nothing else");
    return fri_onnx_put(l, fr_net_unflatten(l->net, l->name, l->x, 1, 1));
}
