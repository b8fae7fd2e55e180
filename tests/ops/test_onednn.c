/* test_onednn.c - the module with oneDNN: when programs open the module, and results without oneDNN. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <frugal/autograd.h>
#include <frugal/ops.h>

#include "base/threads.h"
#include "cpu/dnnl_module.h"
#include "cpu/isa.h"
#include "support/golden.h"

/* Path of a mapped file whose name contains the word; false: none. */
static bool mapped(const char *word, char path[4096]) {
    char line[4200];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    cr_assert_not_null(maps);
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        const char *at = strchr(line, '/');
        found = at != NULL && strstr(at, word) != NULL && sscanf(at, "%4095[^\n]", path) == 1;
    }
    fclose(maps);
    return found;
}

/* True if the build has the module. */
static bool built(void) {
    char path[4096 + 64], *end;
    const ssize_t n = readlink("/proc/self/exe", path, 4095);
    cr_assert_gt(n, 0);
    path[n] = '\0';
    end = strrchr(path, '/');
    strcpy(end, "/../src/libfrugal-onednn.so");
    return access(path, R_OK) == 0;
}

/* Runs fn in a child of fork, before any choice, with the variable set, and returns the result. */
static int in_child(const char *name, const char *value, int (*fn)(void)) {
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        unsetenv("ONEDNN_MAX_CPU_ISA");
        unsetenv("DNNL_MAX_CPU_ISA");
        unsetenv("FRUGAL_ONEDNN");
        if (name != NULL) setenv(name, value, 1);
        _exit(fn());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int lanes(void) {
    return (int)fri_cpu_lanes();
}

/* A strided convolution and a linear layer, forward and backward. Returns 1 if a number is wrong, else 0. */
static int step(fr_dtype t) {
    fr_tensor *x = NULL, *w = NULL, *v = NULL, *y = NULL;
    float got[2];
    must(fr_tensor_full(4, (int64_t[]){3, 9, 9, 32}, 0.5, t, FR_CPU, &x));
    must(fr_tensor_full(4, (int64_t[]){48, 3, 3, 32}, 0.25, t, FR_CPU, &w));
    must(fr_tensor_full(2, (int64_t[]){5, 48 * 16}, 0.125, t, FR_CPU, &v));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_tensor_set_requires_grad(v, true));
    must(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.stride = 2), &y));
    must(fr_flatten(y, 1, &y));
    must(fr_linear(y, v, NULL, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    /* dw: 3 images, 16 windows, 0.5, and 5 rows of v with 0.125; dv: 3 images, 288 terms of 0.125. */
    must(fr_cast(fr_tensor_get_grad(w), FR_F32, &x));
    got[0] = ((const float *)host_of(x))[0];
    must(fr_cast(fr_tensor_get_grad(v), FR_F32, &x));
    got[1] = ((const float *)host_of(x))[0];
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    fr_tensor_release(&v);
    fr_tensor_release(&y);
    return got[0] != 15 || got[1] != 108;
}

static int wrong(void) {
    return step(FR_F32) + 2 * step(FR_F16) + 4 * step(FR_BF16);
}

static int f32_opens_it(void) {
    char path[4096];
    return step(FR_F32) ? 2 : mapped("libfrugal-onednn", path);
}

Test(onednn, f32_opens_it_with_avx2_or_more) {
    const bool wide = in_child(NULL, NULL, lanes) >= FRI_LANES_AVX2;
    cr_expect_eq(in_child(NULL, NULL, f32_opens_it), built() && wide);
    cr_expect_eq(in_child("ONEDNN_MAX_CPU_ISA", "SSE41", f32_opens_it), 0);
    cr_expect_eq(in_child("FRUGAL_ONEDNN", "off", f32_opens_it), 0);
}

Test(onednn, every_type_is_right_with_it_and_without) {
    cr_expect_eq(in_child(NULL, NULL, wrong), 0);
    cr_expect_eq(in_child("FRUGAL_ONEDNN", "off", wrong), 0);
    cr_expect_eq(in_child("FRUGAL_ONEDNN", "/nowhere/libfrugal-onednn.so", wrong), 0);
    cr_expect_eq(in_child("ONEDNN_MAX_CPU_ISA", "AVX2", wrong), 0);
}

static int says_own_kernels(void) {
    char text[96];
    fri_dnnl()->version(text, sizeof text);
    return strncmp(text, "own kernels, ", 13) == 0 && strlen(text) > 13 ? 1 : strncmp(text, "oneDNN ", 7) == 0 ? 0 : 2;
}

static int says_what_is_missing(void) {
    char text[128];
    fri_dnnl()->version(text, sizeof text);
    return strstr(text, "; FRUGAL_ONEDNN cannot be opened") != NULL;
}

Test(onednn, reports_say_what_computes) {
    const bool wide = in_child(NULL, NULL, lanes) >= FRI_LANES_AVX2;
    cr_expect_eq(in_child(NULL, NULL, says_own_kernels), !(built() && wide));
    cr_expect_eq(in_child("FRUGAL_ONEDNN", "off", says_own_kernels), 1);
    cr_expect_eq(in_child("ONEDNN_MAX_CPU_ISA", "SSE41", says_own_kernels), 1);
    if (wide) cr_expect_eq(in_child("FRUGAL_ONEDNN", "/nowhere.so", says_what_is_missing), 1);
}

/* The module understands libraries of equal structures only. */
Test(onednn, a_module_refuses_another_library) {
    static const fri_dnnl_host host = {fr_fail, fr_threads_get, fri_threads_startable};
    char path[4096];
    if (fri_dnnl()->major == 0) cr_skip_test("oneDNN is not used here");
    cr_assert(mapped("libfrugal-onednn.so", path));
    void *module = dlopen(path, RTLD_NOW);
    cr_assert_not_null(module);
    fri_dnnl_open_fn *open = (fri_dnnl_open_fn *)dlsym(module, "fri_dnnl_open");
    cr_expect_not_null(open(FRI_DNNL_ABI, &host));
    cr_expect_null(open(FRI_DNNL_ABI + 1, &host));
    cr_expect_null(open(FRI_DNNL_ABI - (1 << 24), &host));
}

/* Sentences of failures in the module reach the caller. */
Test(onednn, the_module_reports_as_the_library_does) {
    const fri_dnnl_op *op = NULL;
    fri_matmul_desc p = {FR_F32, FR_F32, FR_F32, FR_F32, .m = -8, .n = 16, .k = 4, .a_row = 4, .a_col = 1, .b_row = 16};
    p.b_col = 1, p.c_row = 16;
    if (fri_dnnl()->major == 0) cr_skip_test("oneDNN is not used here");
    cr_expect_eq(fri_dnnl()->matmul(&p, &op), FR_ELIBRARY);
    cr_expect_not_null(strstr(fr_last_error(), "oneDNN: memory_desc"), "%s", fr_last_error());
}

static int tasks(void) {
    struct stat s;
    return stat("/proc/self/task", &s) == 0 ? (int)s.st_nlink - 2 : 0;
}

static int idle_threads_sleep(void) {
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    if (fr_threads_set(2) < 0 || step(FR_F32)) return 2;
    const int team = 1 + (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < 1000 && tasks() < 2 + team; i++) usleep(1000);
    return tasks() < 2 + team;
}

Test(onednn, a_sleeping_team_keeps_idle_threads_from_looping) {
    if (fri_dnnl()->major == 0) cr_skip_test("oneDNN is not used here");
    cr_expect_eq(idle_threads_sleep(), 0);
}
