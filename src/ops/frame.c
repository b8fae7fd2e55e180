/* frame.c - see frame.h. */
#include "ops/frame.h"

#include "autograd/run.h"
#include "base/status.h"
#include "meta/meta.h"
#include "tensor/readback.h"

#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

const fri_backend *fri_target_of(const fr_kernel_call *c) {
    return c->device == FR_META ? fri_meta_target() : fri_backend_get(c->device);
}

static double bytes_of(const fr_tensor *t) {
    return t != NULL ? (double)fri_nbytes(t) : 0;
}

/* Reports the call to a plan's listener: all operands once, or as the kernel says. */
static fr_status report_work(const fr_kernel *k, const fr_kernel_call *c, int n) {
    const fri_kernel_more *more = k->fri_more;
    const fr_tensor *unit = c->t[k->unit];
    fri_kernel_call work = {.name = k->name, .dtype = c->dtype};
    if (!fri_meta_listening()) return FR_OK;
    work.flops = unit != NULL ? k->flops * (double)fri_numel(unit) : 0;
    work.bytes = k->moves * bytes_of(unit);
    for (int i = 0; i < n; i++) {
        if (k->moves == 0) work.bytes += bytes_of(c->t[i]);
        for (int j = 0; c->t[i] != NULL && j < c->t[i]->shape.rank && work.n < FRI_CALL_DIMS; j++)
            work.dim[work.n++] = c->t[i]->shape.dim[j];
    }
    if (more != NULL && more->cost != NULL) more->cost(c, &work);
    return fri_meta_call(work.name, work.dtype, work.flops, work.bytes, work.dim, work.n);
}

static const fr_tensor *first_of(fr_tensor *const *t, int n) {
    for (int i = 0; i < n; i++)
        if (t[i] != NULL) return t[i];
    return NULL;
}

fr_status fri_kernel_run(const fr_kernel *k, const void *options, size_t bytes, fr_dtype dtype, fr_tensor *const *t,
                         int n) {
    const fri_kernel_more *more = k->fri_more;
    const fr_tensor *like = first_of(t, n);
    fr_kernel_call c = {.t = t, .options = options, .dtype = dtype, .device = fri_device_of(like)};
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    int64_t prepared[FRI_OPTIONS / sizeof(int64_t)];
    if (more != NULL && more->prepare != NULL) {
        memcpy(prepared, options, bytes);
        more->prepare(&c, prepared);
        c.options = prepared;
    }
    if (k->workspace != NULL) FRI_TRY(k->workspace(&c, &c.workspace_bytes));
    FRI_TRY(fri_workspace_begin(like, c.workspace_bytes, &ws));
    if (c.device == FR_META) return report_work(k, &c, n);
    c.workspace = ws.exec.workspace;
    c.stream = ws.exec.stream;
    fri_kernel_begins(k->name);
    return fri_kernel_ended(k->name, fri_backend_of(like), k->run(&c));
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static fr_dtype real_of(fr_dtype t) {
    return t == FR_F64 ? FR_F64 : FR_F32;
}

static fr_status check_type(fri_frame *f, int i) {
    const fri_operand *o = &f->read->operand[i];
    const fr_tensor *t = f->c.in[i];
    const char *op = f->read->op.name, *is = fr_dtype_name(t->dtype), *first = f->read->operand[0].name;
    const bool typed = f->dtype != FR_BOOL;
    if (o->type == FRI_TYPE_ANY) return FR_OK;
    if (o->type == FRI_TYPE_I64)
        return t->dtype == FR_I64 ? FR_OK : fr_fail(FR_EDTYPE, "%s: %s is %s; i64 is needed", op, o->name, is);
    if (!fr_dtype_is_float(t->dtype))
        return fr_fail(FR_EDTYPE, "%s: %s is %s; a float type is needed", op, o->name, is);
    if (o->type == FRI_TYPE_FLOAT && !typed) f->dtype = t->dtype;
    if (o->type == FRI_TYPE_FLOAT && t->dtype != f->dtype)
        return fr_fail(FR_EDTYPE, "%s: %s is %s but %s is %s", op, first, fr_dtype_name(f->dtype), o->name, is);
    if (o->type == FRI_TYPE_REAL && t->dtype != real_of(f->dtype))
        return fr_fail(FR_EDTYPE, "%s: %s is %s; %s is needed for %s in %s", op, o->name, is,
                       fr_dtype_name(real_of(f->dtype)), first, fr_dtype_name(f->dtype));
    if (o->type == FRI_TYPE_BIAS && t->dtype != f->dtype && t->dtype != FR_F32)
        return fr_fail(FR_EDTYPE, "%s: %s is %s; %s or f32 is needed", op, o->name, is, fr_dtype_name(f->dtype));
    return FR_OK;
}

/* "[2, H, W, 3]": known sizes as numbers. */
static const char *needed_shape(const fri_frame *f, const fri_operand *o, char *text, size_t bytes) {
    size_t at = (size_t)snprintf(text, bytes, "[%s", o->leading ? "..." : "");
    for (int i = 0; i < o->rank; i++) {
        const int64_t size = f->size[o->letter[i]];
        const char *comma = i > 0 || o->leading ? ", " : "";
        at += (size_t)(size >= 0 ? snprintf(text + at, bytes - at, "%s%lld", comma, (long long)size)
                                 : snprintf(text + at, bytes - at, "%s%c", comma, 'A' + o->letter[i]));
    }
    snprintf(text + at, bytes - at, "]");
    return text;
}

static fr_status check_shape(fri_frame *f, int i) {
    const fri_operand *o = &f->read->operand[i];
    const fr_shape *s = &f->c.in[i]->shape;
    char is[FRI_SHAPE_TEXT], first[FRI_SHAPE_TEXT], needed[FRI_SHAPE_TEXT];
    const int lead = s->rank - o->rank;
    if (!o->shaped) return FR_OK;
    if (o->leading ? lead < 0 : lead != 0)
        return fr_fail(FR_ESHAPE, "%s: %s has shape %s; %s %d is needed: %s", f->read->op.name, o->name,
                       fri_shape_text(s, is), o->leading ? "at least rank" : "rank", o->rank,
                       needed_shape(f, o, needed, sizeof needed));
    fr_shape any = *s;
    any.rank = lead;
    bool fits = true;
    if (o->leading && f->any.rank >= 0) fits = fri_shape_equal(&any, &f->any);
    if (o->leading && f->any.rank < 0) f->any = any;
    for (int k = 0; k < o->rank; k++) {
        int64_t *size = &f->size[o->letter[k]];
        if (*size < 0) *size = s->dim[lead + k];
        fits = fits && *size == s->dim[lead + k];
    }
    if (fits) return FR_OK;
    return fr_fail(FR_ESHAPE, "%s: %s has shape %s; %s is needed, as %s has shape %s", f->read->op.name, o->name,
                   fri_shape_text(s, is), needed_shape(f, o, needed, sizeof needed), f->read->operand[0].name,
                   fri_shape_text(&f->c.in[0]->shape, first));
}

static fr_status check_present(const fri_reading *r, fr_tensor *const *in) {
    for (int i = 0; i < r->inputs; i++)
        if (in[i] == NULL && !r->operand[i].optional)
            return fr_fail(FR_EINVAL, "%s: %s is NULL", r->op.name, r->operand[i].name);
    return FR_OK;
}

fr_status fri_frame_begin(fri_frame *f, fr_described *op, fr_tensor *const *in, fr_tensor *const *y) {
    f->c.begun = f->inplace = false;
    f->c.n_in = 0;
    f->absent = f->kept = 0; /* member by member: clearing the whole struct takes 5 % of a small call */
    f->dtype = FR_BOOL;      /* not known */
    f->given = NULL;
    f->any.rank = -1;
    memset(f->size, 0xff, sizeof f->size); /* -1 */
    FRI_TRY(fri_read_description(op, &f->read));
    FRI_TRY(check_present(f->read, in));
    if (y == NULL) return fr_fail(FR_EINVAL, "%s: %s is NULL", op->op.name, f->read->operand[f->read->inputs].name);
    FRI_TRY(fri_call_begin(&f->c, &f->read->op, 0, in, f->read->inputs));
    for (int i = 0; i < f->read->inputs; i++) {
        if (f->c.in[i] == NULL) continue;
        FRI_TRY(check_type(f, i));
        FRI_TRY(check_shape(f, i));
    }
    return FR_OK;
}

void fri_frame_end(fri_frame *f) {
    fri_call_end(&f->c);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Node's memory of the call; the options follow. */
typedef struct params {
    fr_dtype dtype, type_of[FRI_OP_INPUTS];
    fr_shape shape_of[FRI_OP_INPUTS];
    int64_t limit; /* of an index */
    size_t bytes;
    int64_t options[];
} params;

const void *fri_frame_options(const fr_node *node) {
    return ((const params *)node->params)->options;
}

static fr_status new_result(const fri_frame *f, const fri_operand *o, fr_tensor **out, bool *wanted) {
    const fr_dtype type = o->type == FRI_TYPE_REAL  ? real_of(f->dtype)
                          : o->type == FRI_TYPE_I64 ? FR_I64
                          : o->type == FRI_TYPE_ANY ? f->code
                                                    : f->dtype;
    fr_shape s = {0};
    if (o->leading) s = f->any;
    for (int i = 0; i < o->rank; i++) s.dim[s.rank++] = f->size[o->letter[i]];
    if (wanted != NULL && f->read->of->costly) return fri_result_new(f->c.in, f->c.n_in, &s, type, wanted, out);
    return fri_tensor_new(&s, type, fri_device_of(f->c.in[0]), FR_MEM_TEMPORARY, out);
}

/* The op's result: x itself, by demand or permission, or a new tensor. */
static fr_status first_result(fri_frame *f, uint32_t saved, fr_tensor *const *y, fr_tensor **out, bool *wanted) {
    const fri_operand *o = &f->read->operand[f->read->inputs];
    if (f->inplace) {
        fri_bump_version(f->c.in[0]);
        *out = f->c.in[0];
        return FR_OK;
    }
    if (f->given != NULL) {
        *out = fr_tensor_retain(f->given);
        return FR_OK;
    }
    bool over = o->over >= 0 && !(saved >> o->over & 1);
    for (int i = 0; i < f->c.n_in; i++) over = over && (i == o->over || f->c.in[i] != f->c.in[o->over]);
    if (over) return fri_result_like(f->c.in[o->over], y, out);
    return new_result(f, o, out, wanted);
}

/* Bits of the operands for backward: for each wanted gradient, those of the first step that can make the
 * gradient. */
static uint32_t saved_operands(const fri_frame *f) {
    const fri_reading *r = f->read;
    uint32_t saved = f->kept, made = 0;
    bool differentiable = false;
    for (int i = 0; i < f->c.n_in; i++) differentiable |= f->c.in[i] != NULL && f->c.in[i]->requires_grad;
    if (!differentiable || !fr_grad_enabled()) return 0;
    for (int k = 0; k < FRI_BACKWARD_STEPS; k++) {
        const fri_reading_step *s = &r->backward[k];
        uint32_t makes = 0;
        bool wanted = false, can = true;
        for (int i = 0; i < s->n; i++) {
            const fri_word *w = &s->word[i];
            const fr_tensor *t = w->gradient ? f->c.in[w->at] : NULL;
            if (!w->gradient && w->at < FRI_OPERANDS && !w->optional) can = can && !(f->absent >> w->at & 1);
            if (t == NULL || !t->requires_grad || made >> w->at & 1) continue;
            makes |= 1u << w->at;
            wanted = wanted || !w->along;
        }
        if (!wanted || !can) continue;
        made |= makes;
        saved |= s->operands & ~(1u << FRI_WORD_DY);
    }
    return saved & ~f->absent;
}

/* Refuses an index out of range, whose position a kernel wrote, at once or by a readback. */
static fr_status check_bad(const fri_reading *r, int64_t limit, const fr_tensor *bad) {
    const char *what = r->of->bad != NULL ? r->of->bad : "the index at position";
    double at = -1;
    if (fri_device_of(bad) == FR_META) return FR_OK;
    if (fri_backend_of(bad)->streams != NULL) return fri_readback_check(bad, r->op.name, what, limit);
    const fr_status s = fr_tensor_item(bad, &at);
    if (s < 0 || at < 0) return s;
    return fr_fail(FR_EINVAL, "%s: %s %lld is outside 0..%lld", r->op.name, what, (long long)at, (long long)limit);
}

static bool is_bad(const fri_operand *o) {
    return strcmp(o->name, "bad") == 0;
}

/* Runs each forward step whose operands are there. */
static fr_status run_forward(const fri_reading *r, const params *p, fr_tensor *const *operand) {
    for (int k = 0; k < FRI_FORWARD_STEPS && r->forward[k].n > 0; k++) {
        const fri_reading_step *s = &r->forward[k];
        fr_tensor *t[FRI_WORDS];
        bool writes = false, can = true;
        for (int i = 0; i < s->n; i++) {
            const fri_word *w = &s->word[i];
            t[i] = w->at == FRI_WORD_NONE ? NULL : operand[w->at];
            writes = writes || (i >= s->reads && t[i] != NULL);
            can = can && (i >= s->reads || w->optional || t[i] != NULL);
        }
        if (writes && can) FRI_TRY(fri_kernel_run(r->of->forward[k].kernel, p->options, p->bytes, p->dtype, t, s->n));
    }
    return FR_OK;
}

static fr_status record_call(const fri_frame *f, const params *p, uint32_t saved, fr_tensor *const *operand) {
    const fri_reading *r = f->read;
    fr_save saves[FRI_OPERANDS] = {{0}};
    if (r->op.backward == NULL) return FR_OK;
    for (int i = 0; i < r->slots; i++)
        if (saved >> r->at_slot[i] & 1) saves[i].tensor = operand[r->at_slot[i]];
    if (r->of->backward[0].mask != 0) saves[0].flags = r->of->backward[0].mask;
    return fr_op_record(&r->op, p, sizeof *p + p->bytes, f->c.in, f->c.n_in, saves, r->slots, operand[r->inputs]);
}

static fr_status run_call(fri_frame *f, const params *p, fr_tensor *const *y, fr_tensor **operand) {
    const fri_reading *r = f->read;
    const uint32_t saved = saved_operands(f);
    bool wanted = true;
    FRI_TRY(first_result(f, saved, y, &operand[r->inputs], &wanted));
    for (int i = r->inputs + 1; i < r->n; i++)
        if (!(f->absent >> i & 1) && (saved >> i & 1 || !r->operand[i].optional))
            FRI_TRY(new_result(f, &r->operand[i], &operand[i], NULL));
    if (wanted && f->given == NULL) FRI_TRY(run_forward(r, p, operand));
    for (int i = r->inputs + 1; i < r->n; i++) {
        if (is_bad(&r->operand[i]) && operand[i] != NULL) FRI_TRY(check_bad(r, p->limit, operand[i]));
        if (!(saved >> i & 1)) fr_tensor_release(&operand[i]);
    }
    return record_call(f, p, saved, operand);
}

fr_status fri_frame_run(fri_frame *f, const void *options, size_t bytes, fr_tensor **y) {
    union {
        params head;
        char room[sizeof(params) + FRI_OPTIONS];
    } memory;
    fr_tensor *operand[FRI_OPERANDS] = {NULL};
    params *p = &memory.head;
    p->dtype = f->dtype;
    p->limit = FRI_SIZE(*f, 'v') - 1;
    p->bytes = bytes;
    if (bytes > FRI_OPTIONS)
        return fr_fail(FR_EINVAL, "%s: options of %zu bytes; %d at most", f->read->op.name, bytes, FRI_OPTIONS);
    for (int i = 0; i < f->c.n_in; i++) {
        operand[i] = f->c.in[i];
        if (operand[i] == NULL) continue;
        p->shape_of[i] = operand[i]->shape;
        p->type_of[i] = operand[i]->dtype;
    }
    if (bytes > 0) memcpy(p->options, options, bytes);
    const fr_status s = run_call(f, p, y, operand);
    if (f->inplace) operand[f->c.n_in] = NULL; /* borrowed */
    if (s == FR_OK && y != NULL) fri_tensor_put(&operand[f->c.n_in], y);
    for (int i = f->c.n_in; i < f->read->n; i++) fr_tensor_release(&operand[i]);
    return s;
}

fr_status fri_frame_call(fr_described *op, fr_tensor *const *in, const void *options, size_t bytes, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, op, in, y));
    return fri_frame_run(&f, options, bytes, y);
}

fr_status fri_frame_inplace(fr_described *op, fr_tensor *x, const void *options, size_t bytes) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, op, &x, &x));
    FRI_TRY(fri_check_inplace(&f.read->op, x));
    f.inplace = true;
    return fri_frame_run(&f, options, bytes, NULL);
}

fr_status fr_op_call(fr_described *op, fr_tensor *const *in, int n_in, const void *options, size_t bytes,
                     fr_tensor **y) {
    const fri_reading *r = NULL;
    FRI_NOT_NULL(op, in, y);
    if (bytes > 0) FRI_NOT_NULL(options);
    FRI_TRY(fri_read_description(op, &r));
    if (n_in != r->inputs)
        return fr_fail(FR_EINVAL, "%s: %d inputs; the description '%s' has %d", op->op.name, n_in, op->operands,
                       r->inputs);
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, op, in, y));
    if (op->sizes != NULL) FRI_TRY(op->sizes(options, f.size));
    return fri_frame_run(&f, options, bytes, y);
}

fr_status fri_frame_rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const fri_reading *r = (const fri_reading *)node->op;
    fr_tensor *operand[FRI_OPERANDS] = {NULL}, *out = NULL;
    const int over = r->operand[r->inputs].over;
    fr_status s = over >= 0 ? fri_gradient_like(in[over], &out)
                            : fri_tensor_new(&node->shape, node->dtype, node->device, FR_MEM_TEMPORARY, &out);
    for (int i = 0; i < r->inputs; i++) operand[i] = in[i];
    operand[r->inputs] = out;
    if (s == FR_OK) s = run_forward(r, node->params, operand);
    if (s == FR_OK) fri_tensor_put(&out, y);
    fr_tensor_release(&out);
    return s;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

fr_status fri_frame_gradient(const fr_node *node, int input, const fr_tensor *dy, fr_tensor **dx) {
    const params *p = node->params;
    return fri_tensor_new(&p->shape_of[input], p->type_of[input], fri_device_of(dy), FR_MEM_TEMPORARY, dx);
}

/* A step of a node's backward. */
typedef struct step_run {
    fr_node *node;
    const fri_reading *r;
    const fri_reading_step *s;
    const fr_step *step;
    uint32_t made;  /* inputs whose gradients earlier steps make */
    uint32_t later; /* operands that later steps read */
    fr_tensor *t[FRI_WORDS];
} step_run;

static bool is_wanted(const step_run *p, const fri_word *w) {
    return w->gradient && fr_node_wants(p->node, w->at) && !(p->made >> w->at & 1);
}

/* True if the step makes a wanted gradient from operands of the node. */
static bool step_runs(const step_run *p) {
    bool wanted = false, can = true;
    for (int i = 0; i < p->s->n; i++) {
        const fri_word *w = &p->s->word[i];
        wanted = wanted || (is_wanted(p, w) && !w->along);
        if (i < p->s->reads && w->at < FRI_OPERANDS && !w->optional)
            can = can && fri_slot_found(p->node, p->r->slot_of[w->at])->kind != FRI_SLOT_EMPTY;
    }
    return wanted && can;
}

/* Room for the gradient of word i: dy's, a saved operand's, or new. */
static fr_status make_gradient(step_run *p, int i, fr_tensor *dy) {
    const fri_word *w = &p->s->word[i];
    if (p->later >> FRI_WORD_DY & 1 || !w->over_dy) return fri_frame_gradient(p->node, w->at, dy, &p->t[i]);
    if (w->over_at < 0) return fri_gradient_like(dy, &p->t[i]);
    for (int k = 0; k < p->s->reads; k++)
        if (p->s->word[k].at == w->over_at)
            return fri_gradient_over(p->node, p->r->slot_of[w->over_at], p->t[k], dy, &p->t[i]);
    return fri_gradient_like(dy, &p->t[i]);
}

/* Fetches the step's inputs (dy is borrowed), then makes room for the results. */
static fr_status take_operands(step_run *p, fr_tensor *dy) {
    for (int i = 0; i < p->s->n; i++) {
        const fri_word *w = &p->s->word[i];
        bool wanted = is_wanted(p, w);
        if (w->joined && i > 0 && p->s->word[i - 1].joined) wanted = wanted || is_wanted(p, w - 1);
        if (w->joined && i + 1 < p->s->n && p->s->word[i + 1].joined) wanted = wanted || is_wanted(p, w + 1);
        if (w->at == FRI_WORD_NONE) continue;
        if (w->at == FRI_WORD_DY)
            p->t[i] = dy;
        else if (wanted)
            FRI_TRY(make_gradient(p, i, dy));
        else if (i < p->s->reads)
            FRI_TRY(fr_node_saved(p->node, p->r->slot_of[w->at], &p->t[i]));
        else if (!w->gradient) /* `bad` */
            FRI_TRY(fri_tensor_new(&(fr_shape){0}, FR_I64, fri_device_of(dy), FR_MEM_TEMPORARY, &p->t[i]));
    }
    return FR_OK;
}

static fr_status mask_step(step_run *p, fr_tensor **dy) {
    const params *v = p->node->params;
    double slope = 0; /* the option of an op with a slope */
    if (v->bytes >= sizeof slope) memcpy(&slope, v->options, sizeof slope);
    const int dx = p->s->n - 1;
    return fr_node_mask(p->node, p->r->slot_of[p->s->word[0].at], slope, dy, &p->t[dx]);
}

static fr_status kernel_step(step_run *p, fr_tensor **dy) {
    const params *v = p->node->params;
    FRI_TRY(take_operands(p, *dy));
    FRI_TRY(fri_kernel_run(p->step->kernel, v->options, v->bytes, v->dtype, p->t, p->s->n));
    for (int i = p->s->reads; i < p->s->n; i++)
        if (!p->s->word[i].gradient && p->t[i] != NULL) FRI_TRY(check_bad(p->r, v->limit, p->t[i]));
    return FR_OK;
}

static fr_status do_step(step_run *p, fr_tensor **dy) {
    if (p->step->mask != 0) return mask_step(p, dy);
    if (p->step->by != NULL) return p->step->by(p->node, p->step, *dy);
    if (p->step->kernel != NULL) return kernel_step(p, dy);
    FRI_MOVE(&p->t[p->s->n - 1], *dy);
    return FR_OK;
}

/* Gives up operands without a later reader, then hands the gradients over, in the order of the words. */
static fr_status finish_step(step_run *p, fr_tensor **dy, fr_status s) {
    for (int i = 0; i < p->s->reads; i++) {
        if (p->s->word[i].at == FRI_WORD_DY)
            p->t[i] = NULL;
        else
            fr_tensor_release(&p->t[i]);
    }
    for (int i = 0; i < p->r->slots; i++)
        if (!(p->later >> p->r->at_slot[i] & 1)) fr_node_release_saved(p->node, i);
    if (!(p->later >> FRI_WORD_DY & 1)) fr_tensor_release(dy);
    for (int i = p->s->reads; i < p->s->n; i++) {
        if (p->s->word[i].gradient && s == FR_OK) s = fr_node_grad(p->node, p->s->word[i].at, &p->t[i]);
        fr_tensor_release(&p->t[i]);
    }
    return s;
}

fr_status fri_frame_backward(fr_node *node, fr_tensor **dy) {
    const fri_reading *r = (const fri_reading *)node->op;
    step_run run[FRI_BACKWARD_STEPS];
    uint32_t made = 0, later = 0;
    int n = 0;
    for (int k = 0; k < FRI_BACKWARD_STEPS && r->backward[k].n > 0; k++) {
        step_run *p = &run[n];
        *p = (step_run){.node = node, .r = r, .s = &r->backward[k], .step = &r->of->backward[k], .made = made};
        if (!step_runs(p)) continue;
        for (int i = 0; i < p->s->n; i++)
            if (is_wanted(p, &p->s->word[i])) made |= 1u << p->s->word[i].at;
        n++;
    }
    for (int k = n - 1; k >= 0; k--) {
        run[k].later = later;
        later |= run[k].s->operands;
    }
    for (int k = 0; k < n; k++) FRI_TRY(finish_step(&run[k], dy, do_step(&run[k], dy)));
    return FR_OK;
}
