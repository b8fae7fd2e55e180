/* nets.c - see nets.h. */
#include "autograd/nets.h"

#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "memory/allocator.h"
#include "meta/meta.h"
#include "support/golden.h"
#include "tensor/tensor.h"

enum { BATCH = 4, HEIGHT = 24, WIDTH = 16, CLASSES = 5, MAX_FEATURES = 8 };

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static fr_status parameter(net *n, int rank, const int64_t *shape, double mean, double std) {
    fr_tensor **p = &n->parameters[n->n_parameters];
    fr_status s = fr_tensor_normal(rank, shape, mean, std, FR_F32, n->device, p);
    if (s < 0) return s;
    n->n_parameters++;
    fr_tensor_category_set(*p, FR_MEM_PARAMETER);
    return fr_tensor_set_requires_grad(*p, true);
}

static fr_status conv_parameter(net *n, int64_t k, int64_t size, int64_t c) {
    return parameter(n, 4, (int64_t[]){k, size, size, c}, 0, 0.3);
}

static fr_status norm_parameters(net *n, int64_t c) {
    fr_status s = FR_OK;
    FR_TRY(s, parameter(n, 1, &c, 1, 0.2));
    FR_TRY(s, parameter(n, 1, &c, 0, 0.2));
    for (int i = 0; i < 2; i++) {
        fr_tensor **b = &n->buffers[n->n_buffers];
        FR_TRY(s, fr_tensor_full(1, &c, i, FR_F32, n->device, b));
        n->n_buffers++;
        fr_tensor_category_set(*b, FR_MEM_PARAMETER);
    }
done:
    return s;
}

/* ---- layers: the i-th call of a kind takes its parameters from a fixed place ------------------------------------- */

static fr_status conv(net *n, int p, int64_t padding, fr_tensor **x) {
    return fr_conv2d(*x, n->parameters[p], NULL, FR_CONV2D_OPTS(.padding = padding), x);
}

static fr_status norm(net *n, int p, int b, fr_tensor **x) {
    return fr_batchnorm2d(*x, n->parameters[p], n->parameters[p + 1], n->buffers[b], n->buffers[b + 1], NULL, x);
}

/* ---- units: each can be a checkpoint ------------------------------------------------------------------------- */

typedef fr_status unit_fn(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out);

struct call {
    net *n;
    unit_fn *fn;
};

static fr_status enter(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const struct call *c = ctx;
    return c->fn(c->n, in, n_in, out, n_out);
}

static fr_status run(net *n, unit_fn *fn, bool cut, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    if (!cut) return fn(n, in, n_in, out, n_out);
    struct call *c = malloc(sizeof *c);
    *c = (struct call){n, fn};
    return fr_checkpoint(enter, c, free, in, n_in, out, n_out);
}

static fr_status unit(net *n, unit_fn *fn, fr_tensor *const *in, int n_in, fr_tensor **out) {
    return run(n, fn, n->cuts & CUT_EACH, in, n_in, out, 1);
}

static void release(fr_tensor **t, int n) {
    for (int i = 0; i < n; i++) fr_tensor_release(&t[i]);
}

/* ---- dense net --------------------------------------------------------------------------------------------------- */

/* Parameters: 0 stem; layers of the first block at 1, 4, 7 (gamma, beta, w); transition at 10; second block at 13, 16;
 * head: norm at 19, linear weight and bias at 21. Buffers two by two in the same order. */
static fr_status dense_create(net *n) {
    int64_t c = 8;
    fr_status s = FR_OK;
    FR_TRY(s, conv_parameter(n, 8, 3, 3));
    for (int i = 0; i < 3; i++, c += 4) {
        FR_TRY(s, norm_parameters(n, c));
        FR_TRY(s, conv_parameter(n, 4, 3, c));
    }
    FR_TRY(s, norm_parameters(n, c));
    FR_TRY(s, conv_parameter(n, 10, 1, c));
    c = 10;
    for (int i = 0; i < 2; i++, c += 4) {
        FR_TRY(s, norm_parameters(n, c));
        FR_TRY(s, conv_parameter(n, 4, 3, c));
    }
    FR_TRY(s, norm_parameters(n, c));
    FR_TRY(s, parameter(n, 2, (int64_t[]){CLASSES, c}, 0, 0.3));
    FR_TRY(s, parameter(n, 1, (int64_t[]){CLASSES}, 0, 0.3));
done:
    return s;
}

static fr_status stem(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    return fr_conv2d(in[0], n->parameters[0], NULL, FR_CONV2D_OPTS(.padding = 1), out);
}

/* norm - relu - conv of all features so far. */
static fr_status compose(net *n, int p, int b, int64_t padding, fr_tensor *const *in, int n_in, fr_tensor **out) {
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_concat(in, n_in, &x));
    FR_TRY(s, norm(n, p, b, &x));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, conv(n, p + 2, padding, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status dense_layer(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    return compose(n, 3 * n_in - 2, 2 * n_in - 2, 1, in, n_in, out);
}

static fr_status transition(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, compose(n, 10, 6, 0, in, n_in, &x));
    FR_TRY(s, fr_avgpool2d(x, 2, NULL, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status dense_layer2(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    return compose(n, 10 + 3 * n_in, 6 + 2 * n_in, 1, in, n_in, out);
}

static fr_status dense_head(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_concat(in, n_in, &x));
    FR_TRY(s, norm(n, 19, 12, &x));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, fr_adaptive_avgpool2d(x, 1, 1, &x));
    FR_TRY(s, fr_flatten(x, 1, &x));
    FR_TRY(s, fr_dropout(x, 0.3, true, &x));
    FR_TRY(s, fr_linear(x, n->parameters[21], n->parameters[22], &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

/* List of features: four tensors are handed out unchanged. */
static fr_status dense_front(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    fr_tensor *f[MAX_FEATURES] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, unit(n, stem, in, 1, &f[0]));
    for (int i = 1; i < n_out; i++) FR_TRY(s, unit(n, dense_layer, f, i, &f[i]));
    for (int i = 0; i < n_out; i++) fri_tensor_put(&f[i], &out[i]);
done:
    release(f, MAX_FEATURES);
    return s;
}

static fr_status dense_back(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_out;
    fr_tensor *f[MAX_FEATURES] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, unit(n, transition, in, n_in, &f[0]));
    for (int i = 1; i < 3; i++) FR_TRY(s, unit(n, dense_layer2, f, i, &f[i]));
    FR_TRY(s, unit(n, dense_head, f, 3, out));
done:
    release(f, MAX_FEATURES);
    return s;
}

static fr_status dense_forward(net *n, fr_tensor *x, fr_tensor **y) {
    fr_tensor *f[4] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, run(n, dense_front, n->cuts & CUT_HALVES, &x, 1, f, 4));
    FR_TRY(s, run(n, dense_back, n->cuts & CUT_HALVES, f, 4, y, 1));
done:
    release(f, 4);
    return s;
}

/* ---- U-Net ------------------------------------------------------------------------------------------------------- */

/* Parameters: encoder 0 w, 1-2 norm, 3 w; down 4 w; bottom 5 w, 6-7 norm, 8 w; up 9 w, 10-11 norm; top 12 w; head 13 w,
 * 14 b. */
static fr_status unet_create(net *n) {
    fr_status s = FR_OK;
    FR_TRY(s, conv_parameter(n, 6, 3, 3));
    FR_TRY(s, norm_parameters(n, 6));
    FR_TRY(s, conv_parameter(n, 6, 3, 6));
    FR_TRY(s, conv_parameter(n, 8, 3, 6));
    FR_TRY(s, conv_parameter(n, 10, 3, 8));
    FR_TRY(s, norm_parameters(n, 10));
    FR_TRY(s, conv_parameter(n, 10, 3, 10));
    FR_TRY(s, conv_parameter(n, 8, 3, 18));
    FR_TRY(s, norm_parameters(n, 8));
    FR_TRY(s, conv_parameter(n, 6, 3, 14));
    FR_TRY(s, conv_parameter(n, CLASSES, 1, 6));
    FR_TRY(s, parameter(n, 1, (int64_t[]){CLASSES}, 0, 0.3));
done:
    return s;
}

static fr_status encode(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *x = fr_tensor_retain(in[0]);
    fr_status s = FR_OK;
    FR_TRY(s, conv(n, 0, 1, &x));
    FR_TRY(s, norm(n, 1, 0, &x));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, conv(n, 3, 1, &x));
    FR_TRY(s, fr_relu(x, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status down(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *x = fr_tensor_retain(in[0]);
    fr_status s = FR_OK;
    FR_TRY(s, fr_maxpool2d(x, 2, NULL, &x));
    FR_TRY(s, conv(n, 4, 1, &x));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, fr_maxpool2d(x, 3, FR_POOL2D_OPTS(.stride = 1, .padding = 1), &x)); /* can take the mask over */
    FR_TRY(s, fr_leaky_relu(x, 0.1, &x));
    FR_TRY(s, fr_dropout2d(x, 0.25, true, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status bottom(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *x = fr_tensor_retain(in[0]), *r = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_maxpool2d(x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1), &x));
    FR_TRY(s, conv(n, 5, 1, &x));
    FR_TRY(s, norm(n, 6, 2, &x));
    FR_TRY(s, fr_relu(x, &x));
    r = fr_tensor_retain(x);
    FR_TRY(s, conv(n, 8, 1, &x));
    FR_TRY(s, fr_add(x, r, &x));
    fr_tensor_release(&r);
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, fr_scale(x, 0.5, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&r);
    fr_tensor_release(&x);
    return s;
}

static fr_status up(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_upsample(in[0], HEIGHT / 2, WIDTH / 2, FR_UPSAMPLE_NEAREST, false, &x));
    FR_TRY(s, fr_concat((fr_tensor *[]){x, in[1]}, 2, &x));
    FR_TRY(s, conv(n, 9, 1, &x));
    FR_TRY(s, norm(n, 10, 4, &x));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, fr_dropout(x, 0.2, true, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status top(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *x = NULL, *gate = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_upsample(in[0], HEIGHT, WIDTH, FR_UPSAMPLE_BILINEAR, false, &x));
    FR_TRY(s, fr_concat((fr_tensor *[]){x, in[1]}, 2, &x));
    FR_TRY(s, conv(n, 12, 1, &x));
    FR_TRY(s, fr_leaky_relu(x, 0.2, &gate));
    FR_TRY(s, fr_relu(x, &x));
    FR_TRY(s, fr_mul(x, gate, &x));
    fr_tensor_release(&gate);
    FR_TRY(s, fr_conv2d(x, n->parameters[13], n->parameters[14], NULL, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&gate);
    fr_tensor_release(&x);
    return s;
}

static fr_status unet_front(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *t[3] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, unit(n, encode, in, 1, &t[0]));
    FR_TRY(s, unit(n, down, &t[0], 1, &t[1]));
    FR_TRY(s, unit(n, bottom, &t[1], 1, &t[2]));
    for (int i = 0; i < 3; i++) fri_tensor_put(&t[i], &out[i]);
done:
    release(t, 3);
    return s;
}

static fr_status unet_back(net *n, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    fr_tensor *t = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, unit(n, up, (fr_tensor *[]){in[2], in[1]}, 2, &t));
    FR_TRY(s, unit(n, top, (fr_tensor *[]){t, in[0]}, 2, out));
done:
    fr_tensor_release(&t);
    return s;
}

static fr_status unet_forward(net *n, fr_tensor *x, fr_tensor **y) {
    fr_tensor *t[3] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, run(n, unet_front, n->cuts & CUT_HALVES, &x, 1, t, 3));
    FR_TRY(s, run(n, unet_back, n->cuts & CUT_HALVES, t, 3, y, 1));
done:
    release(t, 3);
    return s;
}

/* ---- making and training ----------------------------------------------------------------------------------------- */

fr_status net_create(net *n, net_kind kind, fr_device device) {
    *n = (net){.kind = kind, .device = device};
    return kind == NET_DENSE ? dense_create(n) : unet_create(n);
}

void net_release(net *n) {
    release(n->parameters, n->n_parameters);
    release(n->buffers, n->n_buffers);
    n->n_parameters = n->n_buffers = 0;
}

void net_clear_gradients(net *n) {
    for (int i = 0; i < n->n_parameters; i++) must(fr_tensor_set_grad(n->parameters[i], NULL));
}

static void append(record *r, const void *bytes, size_t count) {
    if (r->count + count > r->capacity) {
        r->capacity = 2 * (r->count + count);
        r->bytes = realloc(r->bytes, r->capacity);
        cr_assert_not_null(r->bytes);
    }
    memcpy(r->bytes + r->count, bytes, count);
    r->count += count;
}

static void append_tensor(record *r, fr_tensor *t) {
    cr_assert_not_null(t, "a gradient is missing");
    append(r, host_of(t), fr_tensor_nbytes(t));
}

/* Descends on the host: no allocation, no version, equal results on every device with data. */
static void descend(net *n) {
    for (int i = 0; i < n->n_parameters; i++) {
        fr_tensor *p = n->parameters[i];
        const float *old = host_of(p), *g = host_of(fr_tensor_get_grad(p));
        float *w = malloc(fr_tensor_nbytes(p));
        cr_assert_not_null(w);
        for (int64_t k = 0; k < fr_tensor_numel(p); k++) w[k] = old[k] - 0.05f * g[k];
        host_to(p, w);
        free(w);
    }
}

static fr_status make_batch(const net *n, int step, fr_tensor **x, fr_tensor **target) {
    int64_t labels[BATCH * HEIGHT * WIDTH];
    bool image = n->kind == NET_UNET;
    fr_status s = FR_OK;
    for (int i = 0; i < BATCH * HEIGHT * WIDTH; i++) labels[i] = (i * 7 + step * 3 + i / 5) % CLASSES;
    FR_TRY(s, fr_tensor_normal(4, (int64_t[]){BATCH, HEIGHT, WIDTH, 3}, 0, 1, FR_F32, n->device, x));
    FR_TRY(s, fr_tensor_from_host(labels, image ? 3 : 1, (int64_t[]){BATCH, HEIGHT, WIDTH}, FR_I64, n->device, target));
    fr_tensor_category_set(*x, FR_MEM_INPUT);
    fr_tensor_category_set(*target, FR_MEM_INPUT);
done:
    return s;
}

static fr_status forward(net *n, fr_tensor *x, fr_tensor *target, fr_tensor **loss) {
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, n->kind == NET_DENSE ? dense_forward(n, x, &y) : unet_forward(n, x, &y));
    FR_TRY(s, fr_cross_entropy(y, target, NULL, loss));
done:
    fr_tensor_release(&y);
    return s;
}

fr_status net_step(net *n, int step, record *r) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_step_scope scope;
    fr_memory_stats t;
    fr_status s = FR_OK;
    net_clear_gradients(n);
    must(fr_step_begin(&scope));
    if (n->autocast) FR_TRY(s, fr_autocast_begin(FR_BF16, &(fr_autocast_state){0}));
    FR_TRY(s, make_batch(n, step, &x, &target));
    FR_TRY(s, forward(n, x, target, &loss));
    FR_TRY(s, fr_memory_stats_get(n->device, &t));
    if (r != NULL) r->activations = t.requested_by[FR_MEM_ACTIVATION];
    FR_TRY(s, fr_backward(loss, NULL));
    if (n->device == FR_META) goto done;
    if (r != NULL) {
        append_tensor(r, loss);
        for (int i = 0; i < n->n_parameters; i++) append_tensor(r, fr_tensor_get_grad(n->parameters[i]));
        for (int i = 0; i < n->n_buffers; i++) append_tensor(r, n->buffers[i]);
    }
    descend(n);
done:
    RELEASE_ALL(&x, &target, &loss);
    must(fr_step_end(&scope));
    return s;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* The first batch from the same random numbers, and what it computes. Parameters and running values are put back. */
static fr_status one_step(net *n, char *const *initial, record *r) {
    for (int i = 0; i < n->n_parameters + n->n_buffers; i++) {
        fr_tensor *t = i < n->n_parameters ? n->parameters[i] : n->buffers[i - n->n_parameters];
        host_to(t, initial[i]);
    }
    r->count = 0;
    fr_seed(9);
    return net_step(n, 0, r);
}

uint64_t fault_stride(uint64_t usual) {
    const char *asked = getenv("FRUGAL_FAULTS");
    if (asked != NULL && strcmp(asked, "all") == 0) return 1;
#ifdef __SANITIZE_ADDRESS__
    return 3 * usual;
#else
    return usual;
#endif
}

int net_fault_sweep(net_kind kind, int cuts) {
    char *initial[2 * NET_TENSORS] = {0};
    record want = {0}, got = {0};
    fri_allocator *a = NULL;
    fr_memory_stats t;
    net n;
    int failures = 0;
    fr_seed(5);
    must(net_create(&n, kind, test_device()));
    n.cuts = cuts;
    must(fri_allocator_get(test_device(), &a));
    fri_allocator_stats(a, &t);
    size_t resting = t.requested;
    for (int i = 0; i < n.n_parameters + n.n_buffers; i++) {
        fr_tensor *p = i < n.n_parameters ? n.parameters[i] : n.buffers[i - n.n_parameters];
        initial[i] = malloc(fr_tensor_nbytes(p));
        must(fr_tensor_to_host(p, initial[i]));
    }
    must(one_step(&n, initial, &want));
    for (uint64_t k = 1;; k += fault_stride(3)) {
        fri_allocator_stats(a, &t);
        uint64_t ooms = t.ooms;
        fri_allocator_fail_at(a, k);
        fr_status s = one_step(&n, initial, &got);
        fri_allocator_fail_at(a, 0);
        net_clear_gradients(&n);
        fri_allocator_stats(a, &t);
        if (t.ooms == ooms) break;
        failures++;
        cr_expect(s == FR_OK || s == FR_ENOMEM, "failure %d: %s: %s", (int)k, fr_status_name(s), fr_last_error());
        if (s == FR_OK) cr_expect(record_equal(&want, &got, "a step that managed without"), "failure %d", (int)k);
        cr_expect_eq(t.requested, resting, "failure %d: %zu bytes instead of %zu", (int)k, t.requested, resting);
        cr_expect_eq(fr_graph_stats_get().nodes, 0u, "failure %d: %d nodes are left", (int)k,
                     (int)fr_graph_stats_get().nodes);
        must(one_step(&n, initial, &got));
        cr_assert(record_equal(&want, &got, "the step after a failure"), "failure %d", (int)k);
    }
    for (int i = 0; i < 2 * NET_TENSORS; i++) free(initial[i]);
    record_free(&want);
    record_free(&got);
    net_release(&n);
    return failures;
}

void record_free(record *r) {
    free(r->bytes);
    *r = (record){0};
}

bool record_equal(const record *a, const record *b, const char *what) {
    if (a->count == b->count && a->count > 0 && memcmp(a->bytes, b->bytes, a->count) == 0) return true;
    size_t i = 0;
    while (i < a->count && i < b->count && a->bytes[i] == b->bytes[i]) i++;
    cr_expect(false, "%s: %zu and %zu bytes, different from byte %zu on", what, a->count, b->count, i);
    return false;
}
