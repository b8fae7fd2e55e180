/* test_cost.c - kernel times: a dry run names the kernels of a run, times survive in a file, and unmeasured kernels
 * are scaled from measured ones. */
#include <criterion/criterion.h>
#include <frugal/fit.h>
#include <frugal/plan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/calibrate.h"
#include "plan/net.h"

static char folder[] = "/tmp/frugal-test-cost-XXXXXX";

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

static void own_cache(void) {
    cr_assert_not_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void remove_cache(void) {
    char path[128];
    fri_cost *c = NULL;
    if (fri_cost_open(FR_CPU, &c) == FR_OK) unlink(fri_cost_path(c));
    fri_cost_release(&c);
    snprintf(path, sizeof path, "%s/frugal", folder);
    rmdir(path);
    rmdir(folder);
}

TestSuite(cost, .init = own_cache, .fini = remove_cache);

static void steps(fr_device device, int n) {
    net m;
    double loss;
    fr_seed(1);
    must(net_create(&m, device));
    for (int i = 0; i < n; i++) {
        must(net_step(&m, 4, &loss));
        must(net_update(&m));
    }
    net_release(&m);
}

static void logs(fri_step_log *dry, fri_step_log *run) {
    fr_plan *plan = NULL;
    must(fr_plan_begin(FR_CPU, &plan));
    must(fr_plan_section(plan, "steps"));
    must(fri_step_log_dry(dry));
    steps(FR_META, 3);
    fri_step_log_dry_end(dry);
    must(fr_plan_end(plan));
    fr_plan_release(&plan);
    must(fri_step_log_run(run));
    steps(FR_CPU, 3);
    fri_step_log_run_end(run);
}

/* Sequences of kernels are equal name by name under each switch, and every call finds its time. */
Test(cost, dry_run_names_the_kernels_of_the_run) {
    for (int i = 0; i < 4; i++) {
        fri_step_log dry = {0}, run = {0};
        fri_cost *c = NULL;
        int64_t measured, estimated;
        fr_switches sw = i & 1 ? fr_switches_all_off() : fr_switches_default();
        sw.rebuild = (i & 2) != 0;
        fr_switches_set(sw);
        logs(&dry, &run);
        must(fri_cost_open(FR_CPU, &c));
        must(fri_calibrate(c, &dry, &run));
        cr_expect(dry.count > 40, "%zu kernels", dry.count);
        for (size_t k = 0; k < dry.count; k++) {
            double t = fri_cost_seconds(c, &dry.calls[k]);
            cr_expect(t > 0 && t <= run.seconds[k] + 1e-9, "%s: %g of %g", dry.calls[k].name, t, run.seconds[k]);
        }
        fri_cost_coverage(c, &measured, &estimated);
        cr_expect_eq(measured, (int64_t)dry.count);
        cr_expect_eq(estimated, 0);
        dry.calls[3].name = "another";
        cr_expect_eq(fri_calibrate(c, &dry, &run), FR_EUSAGE);
        cr_expect(strstr(fr_last_error(), "kernel 3") != NULL, "%s", fr_last_error());
        fri_cost_release(&c);
        fri_step_log_free(&dry);
        fri_step_log_free(&run);
    }
    fr_switches_set(fr_switches_default());
}

/* Adds the time of a call of `name`. */
typedef struct watched {
    const char *name;
    fri_cost *cost;
    double seconds;
} watched;
static void watch_call(void *ctx, const fri_kernel_call *k) {
    watched *w = ctx;
    if (strcmp(k->name, w->name) == 0) w->seconds += fri_cost_seconds(w->cost, k);
}

/* Predicted time of an op that nothing measured: 2 us of launch, and the traffic at 12 GB/s. relu and silu's gradient
 * move each operand once, a group norm reads x twice. */
Test(cost, a_plan_tells_the_time_of_an_op_from_its_traffic) {
    static const char *const name[] = {"relu_forward", "silu_backward", "group_norm_forward"};
    static const double maps[] = {2, 3, 3};
    const int64_t n = 1 << 20;
    for (int i = 0; i < 3; i++) {
        watched at = {.name = name[i]};
        fr_plan *plan = NULL;
        fr_tensor *x = NULL, *w = NULL, *b = NULL, *y = NULL;
        must(fri_cost_open(FR_CPU, &at.cost));
        must(fr_plan_begin(FR_CPU, &plan));
        must(fr_plan_section(plan, "op"));
        must(fr_tensor_zeros(4, (int64_t[]){1, 64, 64, n / 4096}, FR_F32, FR_META, &x));
        must(fr_tensor_zeros(1, (int64_t[]){n / 4096}, FR_F32, FR_META, &w));
        must(fr_tensor_zeros(1, (int64_t[]){n / 4096}, FR_F32, FR_META, &b));
        must(fr_tensor_set_requires_grad(x, i == 1));
        const fri_call_listener was = fri_meta_listen((fri_call_listener){watch_call, &at});
        must(i == 0 ? fr_relu(x, &y) : i == 1 ? fr_silu(x, &y) : fr_group_norm(x, 4, w, b, 1e-5, &y));
        if (i == 1) must(fr_backward(y, x));
        (void)fri_meta_listen(was);
        cr_expect_float_eq(at.seconds, 2e-6 + 4 * maps[i] * (double)n / 12e9, 1e-9, "%s: %g s", name[i], at.seconds);
        fri_cost_release(&at.cost);
        fr_tensor_release(&x);
        fr_tensor_release(&w);
        fr_tensor_release(&b);
        fr_tensor_release(&y);
        must(fr_plan_end(plan));
        fr_plan_release(&plan);
    }
}

static fri_kernel_call convolution(int64_t n) {
    return (fri_kernel_call){.name = "conv2d_forward",
                             .dtype = FR_F32,
                             .flops = 1e9 * (double)n,
                             .bytes = 1e6 * (double)n,
                             .n = 2,
                             .dim = {n, 7}};
}

Test(cost, file_keeps_times_and_scales_the_rest) {
    fri_cost *c = NULL;
    fri_kernel_call one = convolution(1), two = convolution(2), other = convolution(1), copy = convolution(1);
    other.name = "linear_forward";
    copy.name = "add";
    copy.flops = 0;
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 0u);
    double guess = fri_cost_seconds(c, &one), unknown = fri_cost_seconds(c, &other),
           traffic = fri_cost_seconds(c, &copy);
    must(fri_cost_add(c, &one, 10 * guess));
    must(fri_cost_add(c, &one, 11 * guess)); /* the shorter stays */
    must(fri_cost_save(c));
    fri_cost_release(&c);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 1u);
    cr_expect(fabs(fri_cost_seconds(c, &one) / guess - 10) < 1e-6);
    double twice = fri_cost_seconds(c, &two);
    cr_expect(fabs(twice / guess - 20) < 0.1, "the measured kernel is 10 times the estimate, so %g must be 20",
              twice / guess);
    cr_expect(fabs(fri_cost_seconds(c, &other) / unknown - 10) < 0.1, "a kernel never seen is scaled like its class");
    cr_expect_eq(fri_cost_seconds(c, &copy), traffic, "nothing bound by traffic was measured");
    fri_cost_release(&c);
}

/* Files of other machines and damaged lines are ignored without error. */
Test(cost, foreign_and_damaged_files_are_ignored) {
    char path[1024];
    fri_cost *c = NULL;
    must(fri_cost_open(FR_CPU, &c));
    fri_kernel_call one = convolution(1);
    must(fri_cost_add(c, &one, 1));
    must(fri_cost_save(c));
    snprintf(path, sizeof path, "%s", fri_cost_path(c));
    fri_cost_release(&c);
    FILE *f = fopen(path, "a");
    cr_assert_not_null(f);
    fputs("nonsense\n-1 2 3 fill f32 9\n1 2\ninf 2 3 fill f32 9\nnan 2 3 fill f32 9\n1 nan 3 fill f32 9\n1 2 inf fill "
          "f32 9\n",
          f);
    fclose(f);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 1u);
    fri_cost_release(&c);
    f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs("frugal kernel times 1\nanother machine\n1 2 3 conv2d_forward f32 1 7\n", f);
    fclose(f);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 0u);
    fri_cost_release(&c);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_save(c), FR_EIO);
    cr_expect(strstr(fr_last_error(), "/proc/nowhere") != NULL, "%s", fr_last_error());
    fri_cost_release(&c);
    setenv("XDG_CACHE_HOME", folder, 1);
}

/* Planted files at the temporary name, or at the final name, are neither written to nor waited for. */
Test(cost, a_planted_file_is_not_written_to) {
    char path[1024], temporary[1100], victim[1100];
    struct stat st;
    fri_cost *c = NULL;
    must(fri_cost_open(FR_CPU, &c));
    fri_kernel_call one = convolution(1);
    must(fri_cost_add(c, &one, 1));
    must(fri_cost_save(c));
    snprintf(path, sizeof path, "%s", fri_cost_path(c));
    cr_expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "mode %o", st.st_mode);
    snprintf(victim, sizeof victim, "%s.victim", path);
    fclose(fopen(victim, "w"));
    for (int i = 0; i < 2; i++) { /* names used by this version and the previous version */
        snprintf(temporary, sizeof temporary, i == 0 ? "%s.%ld-0.tmp" : "%s.%ld.tmp", path, (long)getpid());
        cr_assert_eq(symlink(victim, temporary), 0);
    }
    must(fri_cost_save(c));
    cr_expect(stat(victim, &st) == 0 && st.st_size == 0, "a link was written through");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(fri_cost_save(c), FR_EIO);
    fri_cost_release(&c);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 0u);
    cr_assert_eq(unlink(path), 0);
    must(fri_cost_add(c, &one, 1));
    must(fri_cost_save(c));
    cr_assert_eq(truncate(path, (off_t)10 << 30), 0); /* the first lines are valid */
    fri_cost_release(&c);
    must(fri_cost_open(FR_CPU, &c));
    cr_expect_eq(fri_cost_count(c), 0u, "10 GB were read");
    unlink(path);
    fri_cost_release(&c);
}
