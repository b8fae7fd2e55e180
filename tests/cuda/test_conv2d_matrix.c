/* test_conv2d_matrix.c - which engines the networks' convolutions get: every pass, type and batch, planned for six
 * devices without a GPU. None is slow where cuDNN's first choice is not. FRUGAL_PLAN_MATRIX=all: two more devices
 * and all batches. */
#include "plan/section.h"
#include "autograd/run.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/scratch.h"
#include "cuda/conv2d.h"
#include "cuda/conv2d_depthwise.h"
#include "cuda/conv2d_plan.h"
#include "cuda/cudnn.h"
#include "cuda/networks.h"
#include "data/files.h"
#include "support/golden.h"

enum { LIMIT = 64 << 20 };

/* Devices, from data sheets and the tables of CUDA's programming guide. */
typedef struct device {
    const char *name;
    int compute, processors, clock_mhz, memory_mhz, shared_kib, blocks, threads, cache_mib;
    long long memory;
} device;

static const device a100 = {"NVIDIA A100-SXM4-80GB", 800, 108, 1410, 1593, 163, 32, 2048, 40, 84987740160};
static const device h100 = {"NVIDIA H100 80GB HBM3", 900, 132, 1980, 2619, 227, 32, 2048, 50, 85017624576};
static const device h200 = {"NVIDIA H200", 900, 132, 1980, 3201, 227, 32, 2048, 60, 150120000000};
static const device rtx4090 = {"NVIDIA GeForce RTX 4090", 890, 128, 2520, 10501, 99, 24, 1536, 72, 25386352640};
static const device rtx3060 = {"NVIDIA GeForce RTX 3060", 860, 28, 1777, 7501, 99, 16, 1536, 3, 12622168064};
static const device t4 = {"Tesla T4", 750, 40, 1590, 5001, 64, 16, 1024, 4, 15835660288};
static const device rtx5090 = {"NVIDIA GeForce RTX 5090", 1200, 170, 2407, 14001, 99, 24, 1536, 96, 34190917632};
static const device b200 = {"NVIDIA B200", 1000, 148, 1965, 3996, 227, 32, 2048, 126, 191496192000};

static void describe(const device *d) {
    FILE *f = fopen(files_path("device.json"), "w");
    cr_assert_not_null(f);
    fprintf(f,
            "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
            "\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
            "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
            "\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,"
            "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
            "\"l2CacheSize\":%d,\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
            "\"totalGlobalMem\":%lld}",
            d->processors, d->shared_kib * 1024, d->blocks, d->threads, d->clock_mhz * 1000, d->memory_mhz * 1000,
            d->cache_mib << 20, d->name, d->compute, d->memory);
    cr_assert_eq(fclose(f), 0);
    setenv("FRUGAL_CUDA_DEVICE", files_path("device.json"), 1);
}

typedef struct counts {
    int plans, slow, above, tensor_core, own;
    int rank, late; /* the worst place in cuDNN's list; plans behind its third choice */
    size_t largest;
} counts;

/* A slow plan is right only where cuDNN's first plan is slow, or every listed plan, at any cost of workspace. */
static void expect_no_better(const fri_conv2d_desc *limited, fri_cuda_conv2d_pass pass, const char *whose) {
    fri_cuda_conv2d_plan *all = calloc(FRI_CONV2D_PLANS, sizeof *all);
    fri_conv2d_desc d = *limited;
    int n = 0;
    d.workspace_limit = 0;
    cr_assert_not_null(all);
    must(fri_cuda_conv2d_search_all(&d, pass, all, &n));
    const bool usual = all[0].choice.slow;
    for (int i = 0; i < n; i++) {
        cr_expect(all[i].choice.slow || usual, "%s %s, pass %d, batch %d, c %d, k %d: engine %d is not slow", whose,
                  fr_dtype_name(d.dtype), pass, (int)d.n, (int)d.c, (int)d.k, (int)all[i].choice.engine);
        fri_cuda_conv2d_plan_drop(&all[i]);
    }
    free(all);
}

static void plan(const convolutions *l, const char *whose, fr_dtype type, int64_t batch, counts *to) {
    for (int i = 0; i < l->n; i++)
        for (int pass = 0; pass < 3; pass++) {
            fri_conv2d_desc d = l->conv[i];
            fri_cuda_conv2d_choice c;
            d.dtype = type;
            d.n = batch;
            if (fri_cuda_conv2d_is_depthwise(&d)) {
                to->own++;
                continue;
            }
            d.workspace_limit = LIMIT;
            fr_status s = fri_cuda_conv2d_choose(&d, (fri_cuda_conv2d_pass)pass, &c);
            cr_expect_eq(s, FR_OK, "%s: %s", whose, fr_last_error());
            if (s < 0) continue;
            to->plans++;
            to->slow += c.slow;
            to->late += c.configurations > 2;
            if (c.configurations > to->rank) to->rank = c.configurations;
            to->above += c.workspace > LIMIT;
            to->tensor_core += c.tensor_core;
            if (c.workspace > to->largest) to->largest = c.workspace;
            cr_expect(c.slow || c.engine != 0, "%s %s, pass %d: engine 0 is the last resort", whose,
                      fr_dtype_name(type), pass);
            if (c.slow) expect_no_better(&d, (fri_cuda_conv2d_pass)pass, whose);
        }
}

static void expect_quality(const device *d) {
    static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};
    static const int64_t batches[] = {32, 512, 64, 128, 256};
    const char *wanted = getenv("FRUGAL_PLAN_MATRIX");
    const bool all = wanted != NULL && strcmp(wanted, "all") == 0;
    const int n = all ? 5 : 1; /* 32 and 512 in turn */
    char reason[256];
    describe(d);
    if (fri_cudnn_open(reason, sizeof reason) == NULL) cr_skip_test("%s", reason);
    for (int which = 0; which < NETWORKS; which++) {
        convolutions l;
        network_convolutions((network)which, &l);
        for (size_t t = 0; t < 3; t++) {
            counts c = {0};
            if (types[t] == FR_BF16 && d->compute < 800) continue; /* the processor has no such type */
            for (int b = 0; b < n; b++)
                plan(&l, network_name[which], types[t], batches[all ? b : (which + (int)t) % 2], &c);
            printf("%s, %s %s: %d plans, %d with tensor cores, %d slow; %d behind cuDNN's third choice, the last is "
                   "its %dth; "
                   "%d above the limit, at most %.1f MiB; %d by kernels of our own\n",
                   fri_cudnn_device_name(), network_name[which], fr_dtype_name(types[t]), c.plans, c.tensor_core,
                   c.slow, c.late, c.rank, c.above, (double)c.largest / (1 << 20), c.own);
            cr_expect_eq(c.plans + c.own, 3 * n * l.n);
        }
    }
    fflush(stdout);
    cr_expect_str_eq(fri_cudnn_device_name(), d->name);
}

/* ---- scratch below the peak ---------------------------------------------------------------------------------- */

/* A training step's dry run, and its peak. */
static size_t step(network which, fr_dtype type, int64_t batch, fri_scratch_limits *scratch) {
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    fr_plan *plan = NULL;
    fr_plan_section_stats stats;
    fr_autocast_state autocast;
    fr_switches was = fr_switches_get(), s = was;
    s.scratch = scratch;
    fr_switches_set(s);
    must(fr_plan_begin(FR_CUDA, &plan));
    must(fr_plan_section(plan, "step"));
    m = network_make(which);
    must(fr_tensor_zeros(4, (int64_t[]){batch, 224, 224, 3}, type, FR_META, &x));
    if (type != FR_F32) must(fr_autocast_begin(type, &autocast));
    must(fr_module_forward(m, x, &x));
    if (type != FR_F32) fr_autocast_end(autocast);
    must(fr_mean(x, &x));
    must(fr_backward(x, NULL));
    fr_tensor_release(&x);
    fr_module_release(&m);
    must(fr_plan_end(plan));
    must(fr_plan_section_get(plan, 0, &stats));
    fr_plan_release(&plan);
    fr_switches_set(was);
    return stats.memory.peak_requested;
}

/* How many plans of a settled step are nearer to the front of cuDNN's lists than under the limit, and of how many. */
static int nearer(const fri_scratch_limits *s, int *n) {
    int count = *n = 0;
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        for (const fri_scratch_use *u = fri_scratch_uses(s, i); u != NULL; u = u->next, ++*n) {
            static const fri_cuda_conv2d_pass pass[] = {FRI_CUDA_CONV2D_FORWARD, FRI_CUDA_CONV2D_BACKWARD_INPUT,
                                                        FRI_CUDA_CONV2D_BACKWARD_WEIGHT};
            fri_cuda_conv2d_choice plain, found;
            fri_conv2d_desc d = u->d;
            must(fri_cuda_conv2d_choose(&d, pass[u->pass], &plain));
            if (u->limit > d.workspace_limit) d.workspace_limit = u->limit;
            must(fri_cuda_conv2d_choose(&d, pass[u->pass], &found));
            cr_expect_leq(found.configurations, plain.configurations);
            cr_expect(found.workspace <= d.workspace_limit || found.workspace <= plain.workspace);
            count += found.configurations < plain.configurations;
        }
    return count;
}

static void expect_scratch_below_the_peak(const device *d) {
    static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};
    char reason[256];
    describe(d);
    if (fri_cudnn_open(reason, sizeof reason) == NULL) cr_skip_test("%s", reason);
    for (int which = 0; which < EFFICIENTNET_B0; which++)
        for (size_t t = 0; t < 3; t++) {
            const char *all = getenv("FRUGAL_PLAN_MATRIX");
            fri_scratch_limits *s = NULL;
            int n;
            if (which != RESNET50 && (all == NULL || strcmp(all, "all") != 0)) continue;
            must(fri_scratch_create(&s));
            const size_t peak = step((network)which, types[t], 256, s);
            fri_scratch_settle(s, peak);
            const size_t filled = step((network)which, types[t], 256, s);
            const int count = nearer(s, &n);
            printf("%s, %s %s, batch 256: %d of %d plans nearer to the front; peak %.1f MiB\n", fri_cudnn_device_name(),
                   network_name[which], fr_dtype_name(types[t]), count, n, (double)peak / (1 << 20));
            cr_expect_leq(filled, peak, "%s: %zu, filled %zu", network_name[which], peak, filled);
            fri_scratch_release(&s);
        }
    fflush(stdout);
}

TestSuite(conv2d_matrix, .init = files_begin, .fini = files_end);

Test(conv2d_matrix, a100) {
    expect_quality(&a100);
    expect_scratch_below_the_peak(&a100);
}

Test(conv2d_matrix, h100) {
    expect_quality(&h100);
    expect_scratch_below_the_peak(&h100);
}

static void on_request(void) {
    const char *all = getenv("FRUGAL_PLAN_MATRIX");
    if (all == NULL || strcmp(all, "all") != 0) cr_skip_test("FRUGAL_PLAN_MATRIX=all plans for this device, too");
}

Test(conv2d_matrix, rtx3060) {
    expect_quality(&rtx3060);
}

Test(conv2d_matrix, t4) {
    expect_quality(&t4);
}

Test(conv2d_matrix, h200) {
    on_request();
    expect_quality(&h200);
    expect_scratch_below_the_peak(&h200);
}

Test(conv2d_matrix, rtx4090) {
    expect_quality(&rtx4090);
    expect_scratch_below_the_peak(&rtx4090);
}

Test(conv2d_matrix, rtx5090) {
    expect_quality(&rtx5090);
    expect_scratch_below_the_peak(&rtx5090);
}

Test(conv2d_matrix, b200) {
    on_request();
    expect_quality(&b200);
    expect_scratch_below_the_peak(&b200);
}
