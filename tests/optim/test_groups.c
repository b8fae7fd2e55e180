/* test_groups.c - parameter groups and averages against torch.optim and torch.optim.swa_utils.AveragedModel. */
#include <criterion/criterion.h>
#include <float.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "optim/optimizer.h"

enum { PARAMETERS = 4, N = 3, STEPS = 4, AVERAGED_STEPS = 5, BLOCK = 512 };
static const char *const paths[PARAMETERS] = {"conv.weight", "conv.bias", "bn.weight", "bn.bias"};

static void set(fr_tensor *t, const float v[N]) {
    fr_tensor *from = NULL;
    must(fr_tensor_from_host(v, 1, (int64_t[]){N}, FR_F32, test_device(), &from));
    must(fr_cast(from, fr_tensor_dtype(t), &from));
    must(fr_reshape(from, fr_tensor_rank(t), (const int64_t[]){N, 1, 1, 1}, &from));
    must(fr_tensor_copy(t, from));
    fr_tensor_release(&from);
}

static fr_tensor *parameter(fr_module *m, int k) {
    return fr_module_tensor(fr_module_find(m, k < 2 ? "conv" : "bn"), k % 2 == 0 ? "weight" : "bias");
}

/* A convolution and a norm, each parameter of three elements. */
static fr_module *net(fr_dtype dtype) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 2, 2, 1});
    x = fr_net_batchnorm2d(n, "bn", fr_net_conv2d(n, "conv", x, N, 1, NULL, FR_BIAS), NULL);
    must(fr_net_end(&n, &x, 1, &m));
    must(fr_module_to_dtype(m, dtype));
    const bool was = fr_no_grad_begin();
    for (int k = 0; k < PARAMETERS; k++) set(parameter(m, k), (float[N]){0.5f + (float)k, -1.25f, 2 - 0.5f * (float)k});
    fr_no_grad_end(was);
    return m;
}

static void give_gradients(fr_module *m, int t, float factor) {
    for (int k = 0; k < PARAMETERS; k++) {
        fr_tensor *w = parameter(m, k), *g = NULL;
        const float v[N] = {factor * (0.5f - 0.125f * (float)t), factor * -0.25f * (float)(k + 1),
                            factor * (t % 2 != 0 ? 1.0f : -1.0f) * 0.0625f * (float)(k + t)};
        must(fr_tensor_empty(fr_tensor_rank(w), (const int64_t[]){N, 1, 1, 1}, fr_tensor_dtype(w), test_device(), &g));
        set(g, v);
        must(fr_tensor_set_grad(w, g));
        fr_tensor_release(&g);
    }
}

static void read(const fr_tensor *t, float out[N]) {
    double *v = values_of(t);
    for (int i = 0; i < N; i++) out[i] = (float)v[i];
    free(v);
}

/* Parameters after four steps of torch.optim in f64; lr of conv halved, of bn.weight times 4, decay of conv.weight
 * alone. */
static const double expected[2][PARAMETERS][N] = {{{0.4810761993, -1.2330460875, 1.9903613195},
                                                   {1.48332125, -1.2273775, 1.4999121875},
                                                   {2.36657, -0.97853, 1.00337},
                                                   {3.4666425, -1.15951, 0.501860625}},
                                                  {{0.4800634467, -1.2275168702, 1.9922954495},
                                                   {1.4810479327, -1.2300000004, 1.5037229846},
                                                   {2.3483834616, -1.0900000021, 1.0364448979},
                                                   {3.4620958654, -1.2100000004, 0.5099255555}}};
static const double tolerance = 2e-6; /* as test_optim's: a few roundings of values near 2 */

static void make(fr_module *m, bool sgd, fr_optimizer **o) {
    must(sgd ? fr_sgd(m, FR_SGD_OPTS(.lr = 7, .momentum = 0.9, .weight_decay = 0.1), o)
             : fr_adamw(m, FR_ADAMW_OPTS(.lr = 7, .weight_decay = 0.1), o));
    must(fr_optimizer_group(*o, "conv.", FR_PARAM_GROUP_OPTS(.lr_factor = 0.5)));
    must(fr_optimizer_group(*o, "bias", FR_PARAM_GROUP_OPTS(.weight_decay = 0)));
    must(fr_optimizer_group(*o, "norm", FR_PARAM_GROUP_OPTS(.weight_decay = 0)));
    must(fr_optimizer_group(*o, "bn.weight", FR_PARAM_GROUP_OPTS(.lr_factor = 4)));
    fr_optimizer_set_lr(*o, 0.01);
}

static void expect_near(fr_module *m, const double want[PARAMETERS][N], double within, const char *what) {
    float w[N];
    for (int k = 0; k < PARAMETERS; k++) {
        read(parameter(m, k), w);
        for (int i = 0; i < N; i++)
            cr_expect(fabs((double)w[i] - want[k][i]) <= within, "%s, %s[%d]: %.9g, expected %.9g", what, paths[k], i,
                      (double)w[i], want[k][i]);
    }
}

Test(groups, match_torch) {
    for (int kind = 0; kind < 2; kind++) {
        fr_module *m = net(FR_F32);
        fr_optimizer *o = NULL;
        make(m, kind == 0, &o);
        for (int t = 0; t < STEPS; t++) {
            give_gradients(m, t, 1);
            must(fr_optimizer_step(o));
        }
        expect_near(m, expected[kind], tolerance, kind == 0 ? "SGD" : "AdamW");
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

Test(groups, refuse_what_is_not_there) {
    fr_module *m = net(FR_F32);
    fr_optimizer *o = NULL;
    must(fr_sgd(m, NULL, &o));
    cr_expect_eq(fr_optimizer_group(o, "con", NULL), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "'con'"), "%s", fr_last_error());
    cr_expect_eq(fr_optimizer_group(o, "bn", FR_PARAM_GROUP_OPTS(.lr_factor = NAN)), FR_EINVAL);
    for (int i = 0; i < 31; i++) must(fr_optimizer_group(o, "bn", FR_PARAM_GROUP_OPTS(.lr_factor = i + 2)));
    cr_expect_eq(fr_optimizer_group(o, "bn", FR_PARAM_GROUP_OPTS(.lr_factor = 100)), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "at most 32"), "%s", fr_last_error());
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* ---- averages ---------------------------------------------------------------------------------------------- */

/* AveragedModel(multi_avg_fn=get_ema_multi_avg_fn(decay)) in f32 after five steps of SGD with lr 1, whose values f32
 * holds exactly. */
static const struct {
    double decay;
    double value[PARAMETERS][N]; /* of f32 */
} averages[] = {{0.9,
                 {{-0.220462501, -0.773775041, 2.00175619},
                  {0.779537499, -0.297549963, 1.554075},
                  {1.77953744, 0.178674996, 1.10639381},
                  {2.77953768, 0.654900014, 0.658712566}}},
                {0.999,
                 {{-0.00249687675, -0.997502565, 2},
                  {0.997503161, -0.745004952, 1.56237543},
                  {1.99750304, -0.492507517, 1.12475073},
                  {2.99750304, -0.240009993, 0.687125981}}},
                {0.25,
                 {{-0.736816406, -0.0830078125, 2.07250977},
                  {0.263183594, 1.08398438, 1.62255859},
                  {1.26318359, 2.25097656, 1.17260742},
                  {2.26318359, 3.41796875, 0.72265625}}}};

/* A unit in the last place for values up to 4, which the average passes. */
static const double ulp = 4 * (double)FLT_EPSILON;

static void train(fr_module *m, fr_optimizer *o, int first, int last) {
    for (int t = first; t < last; t++) {
        give_gradients(m, t, 1);
        must(fr_optimizer_step(o));
    }
}

Test(ema, matches_averaged_model) {
    for (size_t c = 0; c < sizeof averages / sizeof *averages; c++) {
        fr_module *m = net(FR_F32);
        fr_optimizer *o = NULL;
        float before[PARAMETERS][N], after[N];
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
        must(fr_optimizer_ema(o, averages[c].decay));
        train(m, o, 0, AVERAGED_STEPS);
        for (int k = 0; k < PARAMETERS; k++) read(parameter(m, k), before[k]);
        must(fr_optimizer_ema_swap(o));
        expect_near(m, averages[c].value, ulp, "average");
        cr_expect_eq(fr_optimizer_step(o), FR_EUSAGE);
        must(fr_optimizer_ema_swap(o));
        for (int k = 0; k < PARAMETERS; k++) {
            read(parameter(m, k), after);
            cr_expect_eq(memcmp(before[k], after, sizeof after), 0, "%s did not come back", paths[k]);
        }
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* bf16 holds the first steps exactly; averages are f32. */
Test(ema, is_of_the_masters) {
    fr_module *m = net(FR_BF16);
    fr_optimizer *o = NULL;
    float was[N], now[N];
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
    must(fr_optimizer_ema(o, 0.9));
    must(fr_optimizer_master_weights(o, true));
    train(m, o, 0, AVERAGED_STEPS);
    read(parameter(m, 0), was);
    must(fr_optimizer_ema_swap(o));
    expect_near(m, averages[0].value, 0.01, "average"); /* the parameters are the averages in bf16: 8 bits */
    must(fr_optimizer_ema_swap(o));
    read(parameter(m, 0), now);
    cr_expect_eq(memcmp(was, now, sizeof now), 0);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

Test(ema, a_half_parameter_without_a_master_is_not_exchanged) {
    fr_module *m = net(FR_BF16);
    fr_optimizer *o = NULL;
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
    must(fr_optimizer_ema(o, 0.9));
    train(m, o, 0, 1);
    cr_expect_eq(fr_optimizer_ema_swap(o), FR_EUSAGE);
    cr_expect_not_null(strstr(fr_last_error(), "conv.weight"), "%s", fr_last_error());
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

typedef struct kept {
    int n;
    char name[8 * PARAMETERS][64];
    float value[8 * PARAMETERS][N];
} kept;

static fr_status keep(void *ctx, const char *name, fr_tensor *t) {
    kept *k = ctx;
    snprintf(k->name[k->n], sizeof k->name[0], "%s", name);
    read(t, k->value[k->n++]);
    return FR_OK;
}

static fr_status give_back(void *ctx, const char *name, fr_tensor *t) {
    const kept *k = ctx;
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->name[i], name) == 0) {
            set(t, k->value[i]);
            return FR_OK;
        }
    return FR_END;
}

/* Averages are saved state: another optimizer continues with them; a state without averages starts them at the next
 * step. */
Test(ema, is_state) {
    fr_module *m = net(FR_F32);
    fr_optimizer *o = NULL, *other = NULL;
    kept k = {0};
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1, .momentum = 0), &o));
    must(fr_optimizer_ema(o, 0.9));
    train(m, o, 0, 2);
    must(fri_optimizer_each_state(o, keep, &k));
    cr_expect_eq(k.n, PARAMETERS);
    cr_expect_str_eq(k.name[0], "conv.weight.ema");
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &other));
    must(fr_optimizer_ema(other, 0.9));
    must(fri_optimizer_set_state(other, 2, give_back, &k));
    train(m, other, 2, AVERAGED_STEPS);
    must(fr_optimizer_ema_swap(other));
    expect_near(m, averages[0].value, ulp, "average");
    must(fr_optimizer_ema_swap(other));
    k.n = 0;
    must(fri_optimizer_set_state(other, 2, give_back, &k));
    float now[N], average[N];
    train(m, other, 0, 1);
    read(parameter(m, 3), now);
    must(fr_optimizer_ema_swap(other));
    read(parameter(m, 3), average);
    cr_expect_eq(memcmp(now, average, sizeof now), 0, "the first average is the parameter");
    must(fr_optimizer_ema_swap(other));
    cr_expect_eq(fr_optimizer_ema(other, 0.5), FR_EUSAGE);
    cr_expect_eq(fr_optimizer_ema(other, 1), FR_EINVAL);
    fr_optimizer_release(&o);
    fr_optimizer_release(&other);
    fr_module_release(&m);
}

static size_t live(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(test_device(), &t));
    return t.requested;
}

/* 4 bytes per element in blocks of 512, and temporaries of the largest. */
Test(ema, takes_its_bytes) {
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        fr_module *m = net(FR_F32);
        fr_optimizer *o = NULL;
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
        must(fr_optimizer_ema(o, i == 0 ? 0 : 0.5));
        train(m, o, 0, 1);
        bytes[i] = live();
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    cr_expect_eq(bytes[1] - bytes[0], (size_t)(PARAMETERS + 1) * BLOCK, "%zu", bytes[1] - bytes[0]);
}

/* A parameter without a gradient keeps its average, even if average and parameter differ. */
Test(ema, of_a_parameter_without_a_gradient_stays) {
    fr_module *m = net(FR_F32);
    fr_optimizer *o = NULL;
    float was[N], now[N];
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
    must(fr_optimizer_ema(o, 0.9));
    train(m, o, 0, 2);
    must(fr_optimizer_ema_swap(o));
    read(parameter(m, 2), was);
    must(fr_optimizer_ema_swap(o));
    give_gradients(m, 2, 1);
    must(fr_tensor_set_grad(parameter(m, 2), NULL));
    must(fr_optimizer_step(o));
    must(fr_optimizer_ema_swap(o));
    read(parameter(m, 2), now);
    cr_expect_eq(memcmp(was, now, sizeof now), 0, "%g, was %g", (double)now[0], (double)was[0]);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* A step skipped by a loss scale changes neither parameter nor average. */
Test(ema, a_skipped_step_moves_no_average) {
    fr_module *m = net(FR_F32);
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
    must(fr_optimizer_ema(o, 0.9));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 2, .dynamic = false), test_device(), &g));
    for (int t = 0; t < AVERAGED_STEPS; t++)
        for (int overflow = t > 1; overflow >= 0; overflow--) {
            give_gradients(m, t, overflow ? INFINITY : 2);
            must(fr_grad_scaler_step(g, o));
            must(fr_grad_scaler_update(g, NULL));
        }
    must(fr_optimizer_ema_swap(o));
    expect_near(m, averages[0].value, ulp, "average");
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}
