/* library_faults.c - every call of cudart, cuDNN and cuBLASLt fails once, in turn: the run ends with a sentence or
 * reaches the weights of a run without fault, nothing is left on the device, and the next run equals the first.
 *
 *
 *     build/tests/library_faults      faults that went wrong, and a line of sums
 *     build/tests/library_faults all    also each fault and the sentence of its run
 *
 * A plain program: each fault has a fresh process, in which nothing of the library has run before. */
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/conv2d.h"
#include "cuda/fake_cublaslt.h"
#include "cuda/fake_cudnn.h"
#include "cuda/fake_faults.h"
#include "cuda/kernels.h"
#include "cuda/small.h"

/* ---- scenarios ----------------------------------------------------------------------------------------------- */

static void begin_training(void) {
    fake_begin();
    fake_kernels();
    fake_faults_begin();
}

#define TRAINING(name_, flags)                                                   \
    static int name_(const char *name) {                                         \
        return small_try("cuda", "--epochs 1 --steps 3 --lr 0.02 " flags, name); \
    }
TRAINING(train, "")
TRAINING(train_scaled, "--amp=fp16")
TRAINING(train_ahead, "--device-prefetch --offload --no-pin-memory")

static int left_by_training(void) {
    fr_memory_stats m = {0};
    (void)fr_memory_stats_get(FR_CUDA, &m);
    (void)fr_memory_empty_cache(FR_CUDA);
    return (int)m.allocated + fake.segments;
}

static bool same_weights(const char *a, const char *b) {
    return small_same(a, b);
}

static _Alignas(512) char x[1 << 16], w[1 << 16], y[1 << 16], vector[512], scratch[8 << 20];

static void begin_products(void) {
    fake_cublaslt_begin();
    fake_faults_begin();
}

/* A linear layer and its gradients. */
static int products(const char *name) {
    const fri_linear_desc d =
        {.dtype = FR_F16, .bias_dtype = FR_F16, .n = 4, .in = 16, .out = 8, .bias_gradient = true};
    fri_exec e = {.workspace = scratch};
    (void)name;
    fr_status s = fri_cuda_linear_forward_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_linear_forward(&e, &d, x, w, vector, y);
    if (s == FR_OK) s = fri_cuda_linear_backward_input_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_linear_backward_input(&e, &d, w, y, x);
    if (s == FR_OK) s = fri_cuda_linear_backward_weight_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_linear_backward_weight(&e, &d, x, y, w, vector);
    return s == FR_OK ? 0 : 1;
}

static int left_by_products(void) {
    return fake_lt.descriptors;
}

static void begin_convolutions(void) {
    fake_cudnn_begin();
    fake_faults_begin();
    fake_dnn.in_list_a = 1;
    fake_dnn.n = 2;
    fake_dnn.engine[0] = (fake_engine){.workspace = 512, .ms = 1};
    fake_dnn.engine[1] = (fake_engine){.workspace = 1024, .ms = 2};
}

/* A convolution with a bias, and its gradients. */
static int convolutions(const char *name) {
    const fri_conv2d_desc d = {.dtype = FR_F16,
                               .bias_dtype = FR_F16,
                               .n = 2,
                               .h = 8,
                               .w = 8,
                               .c = 8,
                               .k = 8,
                               .r = 3,
                               .s = 3,
                               .p = 8,
                               .q = 8,
                               .stride_h = 1,
                               .stride_w = 1,
                               .pad_h = 1,
                               .pad_w = 1,
                               .dilation_h = 1,
                               .dilation_w = 1,
                               .groups = 1,
                               .workspace_limit = 1 << 20,
                               .bias = true};
    fri_exec e = {.workspace = scratch};
    (void)name;
    fr_status s = fri_cuda_conv2d_forward_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_conv2d_forward(&e, &d, x, w, vector, y);
    if (s == FR_OK) s = fri_cuda_conv2d_backward_input_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_conv2d_backward_input(&e, &d, w, y, x);
    if (s == FR_OK) s = fri_cuda_conv2d_backward_weight_workspace(&d, &e.workspace_bytes);
    if (s == FR_OK) s = fri_cuda_conv2d_backward_weight(&e, &d, x, y, w);
    return s == FR_OK ? 0 : 1;
}

/* Plans are kept. */
static int left_by_convolutions(void) {
    return fake_dnn.descriptors;
}

static bool nothing_to_compare(const char *a, const char *b) {
    (void)a;
    (void)b;
    return true;
}

static const struct {
    const char *name;
    void (*begin)(void);
    int (*run)(const char *name);
    int (*left)(void);
    bool (*same)(const char *a, const char *b);
} scenarios[] = {
    {"training", begin_training, train, left_by_training, same_weights},
    {"scaled", begin_training, train_scaled, left_by_training, same_weights},
    {"ahead and away", begin_training, train_ahead, left_by_training, same_weights},
    {"products", begin_products, products, left_by_products, nothing_to_compare},
    {"convolutions", begin_convolutions, convolutions, left_by_convolutions, nothing_to_compare},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios, FUNCTIONS_MOST = 128 };

/* ---- a fault ------------------------------------------------------------------------------------------------- */

static struct {
    int calls[FUNCTIONS_MOST], left;
    bool ended;
    char sentence[512]; /* of the end of the run */
    char wrong[512];
} * shared;

static void wrong(const char *what, const char *more) {
    snprintf(shared->wrong, sizeof shared->wrong, "%s%s%s", what, more[0] ? ": " : "", more);
}

static void undisturbed(int scenario) {
    scenarios[scenario].begin();
    if (scenarios[scenario].run("clean") != 0) wrong("fails undisturbed", fr_last_error());
    for (int f = 0; f < fake_faults_functions(); f++) shared->calls[f] = fake_faults_calls(f);
    shared->left = scenarios[scenario].left();
}

/* True of functions asked once in a process. */
static bool is_probe(int function) {
    return strstr(fake_faults_name(function), "GetDevice") != NULL;
}

static void disturbed(int scenario, int function, int nth) {
    scenarios[scenario].begin();
    fake_faults_arm(function, nth);
    const bool ended = scenarios[scenario].run("faulty") != 0;
    if (!fake_faults_fired()) return wrong("the call was not reached", "");
    if (ended && strlen(fr_last_error()) < 10) return wrong("ends without a sentence", fr_last_error());
    if (!ended && !scenarios[scenario].same("clean", "faulty")) return wrong("goes on to other weights", "");
    shared->ended = ended;
    snprintf(shared->sentence, sizeof shared->sentence, "%s", ended ? fr_last_error() : "");
    if (scenarios[scenario].left() > shared->left) return wrong("leaves something", fr_last_error());
    if (is_probe(function)) return;
    if (scenarios[scenario].run("again") != 0) return wrong("does not run again", fr_last_error());
    if (!scenarios[scenario].same("clean", "again")) return wrong("comes to other weights afterwards", "");
    if (scenarios[scenario].left() > shared->left) return wrong("leaves something afterwards", "");
}

/* Runs the scenario in a fresh process; function -1: without a fault. */
static bool in_a_process(int scenario, int function, int nth) {
    int status = 0;
    shared->wrong[0] = '\0';
    shared->ended = false;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL || freopen("/dev/null", "w", stdout) == NULL) _exit(3);
        if (function < 0)
            undisturbed(scenario);
        else
            disturbed(scenario, function, nth);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        wrong("crashes", "");
    if (shared->wrong[0] == '\0') return true;
    printf("%s: %s, call %d: %s\n", scenarios[scenario].name, function < 0 ? "-" : fake_faults_name(function), nth,
           shared->wrong);
    return false;
}

int main(int argc, char **argv) {
    int faults = 0, ended = 0, failed = 0;
    (void)argv;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || fake_faults_functions() > FUNCTIONS_MOST) return 2;
    small_begin();
    for (int i = 0; i < SCENARIOS; i++) {
        if (!in_a_process(i, -1, 0)) failed++;
        for (int f = 0; f < fake_faults_functions(); f++) {
            const int n = shared->calls[f], at[] = {1, 2, 3, n / 2, n};
            for (int k = 0; k < 5; k++) {
                if (at[k] > n || at[k] < 1 || (k > 0 && at[k] <= at[k - 1])) continue;
                failed += !in_a_process(i, f, at[k]);
                ended += shared->ended;
                if (argc > 1)
                    printf("%s: %s, call %d: %s\n", scenarios[i].name, fake_faults_name(f), at[k],
                           shared->ended ? shared->sentence : "goes on");
                faults++;
            }
        }
    }
    small_end();
    printf("%d faults: %d ended the run with a sentence, %d changed nothing, %d went wrong\n", faults, ended,
           faults - ended - failed, failed);
    return failed > 0 || faults < 100 || ended == 0;
}
