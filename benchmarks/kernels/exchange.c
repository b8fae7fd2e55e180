/* exchange.c - the ordered exchange beside the MPI library's all-reduce: 25 MB of gradient, one parameter, in turns.
 *
 *   mpirun -n 2 exchange ALL_REDUCE.so [ROUNDS]
 *
 * Rank 0 prints medians in milliseconds. The exchange is a step of the add-on ranks: parts to their owners, sums in
 * order, results to all; what an all-reduce does. */
#include "autograd/node.h"

#include <dlfcn.h>
#include <frugal/frugal.h>
#include <frugal/ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDE = 2500, N = SIDE * SIDE, WARM = 3 };

typedef void all_reduce_fn(float *data, int n);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "exchange: %s\n", fr_last_error());
    exit(1);
}

/* All ranks begin together. */
static void meet(fr_comm *c) {
    char one = 0, all[4096];
    must(fr_comm_agree(c, &one, 1, all));
}

static double exchange_once(fr_share *share, fr_tensor *w, fr_optimizer *o) {
    fr_tensor *g = NULL;
    fr_step_scope scope;
    must(fr_step_begin(&scope));
    must(fr_share_round_begin(share, 0));
    must(fr_tensor_empty(2, (int64_t[]){SIDE, SIDE}, FR_F32, FR_CPU, &g));
    must(fr_tensor_fill(g, 1));
    must(fr_tensor_set_grad(w, g));
    fr_tensor_release(&g);
    const fri_leaf *leaf = fri_leaf_of(w);
    const double began = now();
    must(leaf->hook(leaf->hook_ctx, w));
    must(fr_share_round_end(share, 0));
    double took = now() - began;
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    const double again = now();
    must(fr_share_step_end(share));
    took += now() - again;
    must(fr_step_end(&scope));
    return took;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, by_size);
    return t[n / 2];
}

static fr_module *network(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, SIDE});
    x = fr_net_linear(n, "w", x, SIDE, FR_NO_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static void run(fr_comm *c, all_reduce_fn *all_reduce, int rounds) {
    fr_module *m = network();
    fr_optimizer *o = NULL;
    fr_share *share = NULL;
    float *data = calloc(N, sizeof *data);
    double *ours = calloc((size_t)rounds, sizeof *ours), *theirs = calloc((size_t)rounds, sizeof *theirs);
    fr_tensor *w = fr_module_tensor(fr_module_find(m, "w"), "weight");
    if (data == NULL || ours == NULL || theirs == NULL || w == NULL) exit(1);
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0), &o));
    must(fr_share_create(m, o, c, NULL, &share));
    for (int i = -WARM; i < rounds; i++) {
        meet(c);
        const double a = exchange_once(share, w, o);
        meet(c);
        const double began = now();
        all_reduce(data, N);
        if (i >= 0) {
            ours[i] = a;
            theirs[i] = now() - began;
        }
    }
    const double a = median(ours, rounds), b = median(theirs, rounds);
    if (fr_comm_rank(c) == 0)
        printf("%s, %d ranks, 25 MB: ordered %.2f ms, all-reduce %.2f ms, %.2f\n", fr_comm_engine(c), fr_comm_size(c),
               a, b, a / b);
    fr_share_release(&share);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    free(data);
    free(ours);
    free(theirs);
}

int main(int argc, char **argv) {
    fr_comm *c = NULL;
    if (argc < 2) return 2;
    must(fr_threads_set(1));
    must(fr_comm_open(60, &c));
    if (c == NULL) {
        fprintf(stderr, "exchange: start it with mpirun or mpiexec\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    all_reduce_fn *all_reduce = library != NULL ? (all_reduce_fn *)dlsym(library, "all_reduce") : NULL;
    if (all_reduce == NULL) {
        fprintf(stderr, "exchange: %s\n", dlerror());
        return 1;
    }
    run(c, all_reduce, argc > 2 ? atoi(argv[2]) : 31);
    fr_comm_release(&c);
    return 0;
}
