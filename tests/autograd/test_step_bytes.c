/* test_step_bytes.c - bytes of a training step beside activations: gradients, the optimizer's step, casts, graphs
 * kept by mistake. The formulas are docs/memory.md's. */
#include "optim/scaler.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <string.h>

#include "autograd/bytes.h"
#include "memory/event.h"
#include "support/golden.h"
#include "tensor/tensor.h"

enum { B = 16 };

/* ---- gradients and the optimizer's step -------------------------------------------------------------------------- */

/* The most bytes a category had, and the most bytes of f16 casts, since the watch began. */
typedef struct watch {
    size_t now[FR_CATEGORY_COUNT], most[FR_CATEGORY_COUNT];
    size_t casts, most_casts;
    uint64_t cast[64]; /* serial numbers of live blocks */
} watch;

static void count_cast(watch *w, const fr_event *e) {
    for (int i = 0; i < 64; i++) {
        if (e->kind == FR_EVENT_ALLOC && w->cast[i] == 0) {
            if (strcmp(e->tag.op, "cast") != 0 || e->tag.dtype != FR_F16) return;
            w->cast[i] = e->block;
            w->casts += e->requested;
            if (w->casts > w->most_casts) w->most_casts = w->casts;
            return;
        }
        if (e->kind == FR_EVENT_FREE && w->cast[i] == e->block) {
            w->cast[i] = 0;
            w->casts -= e->requested;
            return;
        }
    }
}

static void observe(void *ctx, const fr_event *e) {
    watch *w = ctx;
    if (e->device != FR_META) return;
    if (e->kind == FR_EVENT_ALLOC) w->now[e->tag.category] += e->requested;
    if (e->kind == FR_EVENT_FREE) w->now[e->tag.category] -= e->requested;
    if (e->kind == FR_EVENT_RELABEL) {
        w->now[e->from] -= e->requested;
        w->now[e->tag.category] += e->requested;
    }
    for (int i = 0; i < FR_CATEGORY_COUNT; i++)
        if (w->now[i] > w->most[i]) w->most[i] = w->now[i];
    if (e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE) count_cast(w, e);
}

static const int64_t widths[] = {30, 70, 50, 90, 10};
enum { LAYERS = sizeof widths / sizeof *widths - 1 };

static fr_module *chain_of_linear(bool bias) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, widths[0]});
    for (int i = 0; i < LAYERS; i++) x = fr_net_linear(n, NULL, x, widths[i + 1], bias);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static size_t layer_bytes(int i, int element, bool bias) {
    return rounded(element * widths[i] * widths[i + 1]) + (bias ? rounded(element * widths[i + 1]) : 0);
}

static size_t all_layers(int element, bool bias) {
    size_t n = 0;
    for (int i = 0; i < LAYERS; i++) n += layer_bytes(i, element, bias);
    return n;
}

static size_t largest_layer(int element, bool bias) {
    size_t n = 0;
    for (int i = 0; i < LAYERS; i++) n = layer_bytes(i, element, bias) > n ? layer_bytes(i, element, bias) : n;
    return n;
}

static void forward_backward(fr_module *m, fr_dtype dtype) {
    fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, dtype, FR_MEM_INPUT);
    must(fr_module_forward(m, x, &x));
    must(fr_sum(x, &x));
    must(fr_backward(x, NULL));
    fr_tensor_release(&x);
}

/* Released between steps: no gradient lives through the next forward. Kept and cleared: all gradients do. */
Test(step_bytes, gradients_released_or_kept) {
    fr_module *m = chain_of_linear(true);
    fr_optimizer *o = NULL;
    must(fr_sgd(m, NULL, &o));
    forward_backward(m, FR_F32);
    expect_bytes(live(FR_MEM_GRADIENT), all_layers(4, true), "gradients after backward");
    must(fr_optimizer_step(o));
    expect_bytes(live(FR_MEM_GRADIENT), all_layers(4, true), "gradients that are kept");
    fr_optimizer_zero_grad(o);
    expect_bytes(live(FR_MEM_GRADIENT), 0, "gradients that are released");
    fr_optimizer_release(&o);
    fr_module_release(&m);
    nothing_left();
}

/* Bytes of a whole step: parameters, state, and at most one gradient, the largest weight's (a bias's is gone before
 * the weight's is made). State is nothing, one copy or two, and the count of steps. */
Test(step_bytes, fused_step) {
    for (int k = 0; k < 3; k++)
        for (int bias = 0; bias < 2; bias++)
            for (int fused = 0; fused < 2; fused++) {
                watch w = {0};
                must(fr_event_subscribe(observe, &w));
                fr_module *m = chain_of_linear(bias);
                fr_optimizer *o = NULL;
                must(k == 0   ? fr_sgd(m, NULL, &o)
                     : k == 1 ? fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o)
                              : fr_adam(m, NULL, &o));
                must(fr_optimizer_fuse(o, fused));
                for (int i = 0; i < 2; i++) {
                    fr_step_scope scope;
                    must(fr_step_begin(&scope));
                    forward_backward(m, FR_F32);
                    must(fr_optimizer_step(o));
                    must(fr_step_end(&scope));
                    fr_optimizer_zero_grad(o);
                }
                size_t p = all_layers(4, bias);
                expect_bytes(w.most[FR_MEM_PARAMETER], p, "parameters, optimizer %d", k);
                expect_bytes(w.most[FR_MEM_OPTIMIZER], (size_t)k * p + (k == 2 ? 512 : 0), "state, optimizer %d", k);
                expect_bytes(w.most[FR_MEM_GRADIENT], fused ? largest_layer(4, false) : p,
                             "gradients, optimizer %d, bias %d, fused %d", k, bias, fused);
                fr_optimizer_release(&o);
                fr_module_release(&m);
                fr_event_unsubscribe(observe, &w);
            }
    nothing_left();
}

/* Bytes with a loss scale, in two passes: as above, and 512 bytes each for the scale's inverse and the flag. */
Test(step_bytes, fused_step_in_two_passes) {
    for (int two = 0; two < 2; two++) {
        watch w = {0};
        must(fr_event_subscribe(observe, &w));
        fr_module *m = chain_of_linear(1);
        fr_optimizer *o = NULL;
        fr_grad_scaler *g = NULL;
        must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 2), FR_META, &g));
        must(fr_optimizer_fuse(o, two));
        for (int i = 0; i < 2; i++) {
            bool found = true;
            fr_step_scope scope;
            must(fr_step_begin(&scope));
            if (two) {
                must(fri_grad_scaler_check_begin(g, o));
                forward_backward(m, FR_F32);
                must(fri_grad_scaler_check_end(g, o, &found));
                cr_expect(!found);
            }
            forward_backward(m, FR_F32);
            if (!two) must(fr_grad_scaler_step(g, o));
            must(fr_grad_scaler_update(g, NULL));
            fr_optimizer_zero_grad(o);
            must(fr_step_end(&scope));
        }
        size_t p = all_layers(4, 1);
        expect_bytes(w.most[FR_MEM_PARAMETER], p, "parameters");
        expect_bytes(w.most[FR_MEM_OPTIMIZER], p, "state");
        expect_bytes(w.most[FR_MEM_GRADIENT], two ? largest_layer(4, false) : p, "gradients, two passes %d", two);
        expect_bytes(w.most[FR_MEM_OTHER], 2 * 512, "scaler");
        fr_grad_scaler_release(&g);
        fr_optimizer_release(&o);
        fr_module_release(&m);
        fr_event_unsubscribe(observe, &w);
    }
    nothing_left();
}

/* ---- autocast ---------------------------------------------------------------------------------------------------- */

/* A weight's f16 copy lives while an op runs, forward and backward: the largest layer's at most. Cached, the copies
 * live from their first use to backward, but for the first layer's: its input wants no gradient, so backward needs no
 * weight there. */
Test(step_bytes, autocast_casts) {
    for (int cached = 0; cached < 2; cached++) {
        watch w = {0};
        size_t cache = all_layers(2, false) - layer_bytes(0, 2, false);
        fr_autocast_state was = {0};
        fr_switches s = fr_switches_default();
        s.cache_casts = cached;
        fr_switches_set(s);
        fr_module *m = chain_of_linear(false);
        must(fr_event_subscribe(observe, &w));
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F16, FR_MEM_INPUT);
        must(fr_autocast_begin(FR_F16, &was));
        must(fr_module_forward(m, x, &x));
        fr_autocast_end(was);
        expect_bytes(w.casts, cached ? cache : 0, "casts alive after forward, cached %d", cached);
        must(fr_sum(x, &x));
        must(fr_backward(x, NULL));
        expect_bytes(w.most_casts, cached ? cache : largest_layer(2, false), "most casts, cached %d", cached);
        expect_bytes(w.casts, 0, "casts alive at the end");
        fr_tensor_release(&x);
        fr_event_unsubscribe(observe, &w);
        fr_module_release(&m);
    }
    nothing_left();
}

/* ---- graphs kept by mistake ---------------------------------------------------------------------------------- */

/* Training keeps every layer's input but the batch; without a graph nothing is kept, and two neighbouring maps are all
 * that ever lives. */
Test(step_bytes, no_grad) {
    size_t saved = 0, pair = 0;
    for (int i = 1; i < LAYERS; i++) saved += rounded(4 * B * widths[i]);
    for (int i = 1; i < LAYERS; i++) {
        size_t both = rounded(4 * B * widths[i]) + rounded(4 * B * widths[i + 1]);
        pair = both > pair ? both : pair;
    }
    fr_module *m = chain_of_linear(true);
    fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT), *y = NULL;
    must(fr_module_forward(m, x, &y));
    expect_bytes(live(FR_MEM_ACTIVATION), saved, "with a graph");
    fr_tensor_release(&y);
    size_t before = begin();
    bool was = fr_no_grad_begin();
    must(fr_module_forward(m, x, &y));
    fr_no_grad_end(was);
    expect_bytes(live(FR_MEM_ACTIVATION), 0, "without");
    expect_bytes(rise(before), pair, "peak without");
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    nothing_left();
}

/* total = total + loss keeps the graph of every summed step: a step's saved maps and its batch more per step. Without
 * the graph (item) nothing stays. */
Test(step_bytes, summing_losses) {
    size_t saved = 0, batch = rounded(4 * B * widths[0]);
    for (int i = 1; i < LAYERS; i++) saved += rounded(4 * B * widths[i]);
    fr_module *m = chain_of_linear(true);
    fr_tensor *total = NULL;
    size_t parameters = live_total();
    must(fr_tensor_zeros(0, NULL, FR_F32, FR_META, &total));
    for (int step = 1; step <= 5; step++) {
        fr_step_scope scope;
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT);
        must(fr_step_begin(&scope));
        must(fr_module_forward(m, x, &x));
        must(fr_sum(x, &x));
        must(fr_add(total, x, &total));
        fr_tensor_release(&x);
        must(fr_step_end(&scope));
        cr_expect_eq(fr_graph_stats_get().growing_steps, (uint64_t)step);
        expect_bytes(live(FR_MEM_ACTIVATION), (size_t)step * saved, "saved after %d steps", step);
        expect_bytes(live_total() - parameters, (size_t)step * (saved + batch) + 512, "all after %d steps", step);
    }
    fr_tensor_release(&total);
    expect_bytes(live_total(), parameters, "when the sum is gone");
    for (int step = 1; step <= 4; step++) { /* a graph that dies with its step does not grow */
        fr_step_scope scope;
        fr_tensor *x = labelled(2, (int64_t[]){B, widths[0]}, FR_F32, FR_MEM_INPUT);
        must(fr_step_begin(&scope));
        must(fr_module_forward(m, x, &x));
        fr_tensor_release(&x);
        must(fr_step_end(&scope));
        cr_expect_eq(fr_graph_stats_get().growing_steps, 0);
    }
    fr_module_release(&m);
    nothing_left();
}
