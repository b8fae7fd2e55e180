/* 05_graph_growth.c - the classic leak: losses summed without fr_tensor_item.
 *
 * A loss is the end of a graph. A running total of loss tensors is the end of all their graphs, and keeps every saved
 * activation alive. fr_tensor_item returns the number, so the graph can be freed. */
#include <frugal/frugal.h>
#include <stdio.h>

enum { STEPS = 5 };

/* A validation step: a loss without backward. sum NULL: adds up the number, else the tensor. */
static fr_status one_step(fr_tensor *x, fr_tensor *w, fr_tensor **sum, double *total) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_step_scope scope;
    double value = 0;
    fr_status s = fr_step_begin(&scope);
    if (s < 0) return s;
    FR_TRY(s, fr_mul(x, w, &y));
    FR_TRY(s, fr_sum(y, &loss));
    fr_tensor_release(&y);
    if (sum == NULL) {
        FR_TRY(s, fr_tensor_item(loss, &value));
        *total += value;
    } else if (*sum == NULL) {
        *sum = loss;
        loss = NULL;
    } else {
        FR_TRY(s, fr_add(*sum, loss, sum));
    }
done:
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_step_end(&scope);
    return s;
}

/* Prints the live bytes after each step. `grows` says whether the graph must grow. */
static fr_status run(bool grows, bool *as_told) {
    fr_tensor *x = NULL, *w = NULL, *sum = NULL;
    fr_memory_stats m;
    size_t before = 0;
    double total = 0;
    fr_status s = FR_OK;
    printf(grows ? "summing tensors\n" : "summing numbers\n");
    FR_TRY(s, fr_tensor_empty(1, (int64_t[]){256 * 1024}, FR_F32, FR_CPU, &w));
    FR_TRY(s, fr_tensor_fill(w, 0.5));
    FR_TRY(s, fr_tensor_set_requires_grad(w, true));
    for (int i = 0; i < STEPS; i++) {
        FR_TRY(s, fr_tensor_empty(1, (int64_t[]){256 * 1024}, FR_F32, FR_CPU, &x)); /* the next batch */
        FR_TRY(s, fr_tensor_fill(x, i));
        FR_TRY(s, one_step(x, w, grows ? &sum : NULL, &total));
        fr_tensor_release(&x);
        FR_TRY(s, fr_memory_stats_get(FR_CPU, &m));
        fr_graph_stats g = fr_graph_stats_get();
        printf("  step %d: %zu bytes, %llu nodes%s\n", i + 1, m.requested, (unsigned long long)g.nodes,
               g.growing_steps == 3 ? "  <- grew three steps in a row" : "");
        /* each further step keeps a batch, 1 MiB, for the gradient of w */
        if (i > 0 && m.requested - before < 1024 * 1024 * (size_t)grows) *as_told = false;
        if (i > 0 && !grows && m.requested != before) *as_told = false;
        before = m.requested;
    }
    if (fr_graph_stats_get().growing_steps != (grows ? STEPS : 0)) *as_told = false;
done:
    fr_tensor_release(&x);
    fr_tensor_release(&sum);
    fr_tensor_release(&w);
    return s;
}

int main(void) {
    bool as_told = true;
    fr_status s = run(false, &as_told);
    if (s == FR_OK) s = run(true, &as_told);
    if (s < 0) fprintf(stderr, "05_graph_growth: %s\n", fr_last_error());
    if (!as_told) fprintf(stderr, "05_graph_growth: the graph did not behave as told\n");
    return s < 0 || !as_told;
}
