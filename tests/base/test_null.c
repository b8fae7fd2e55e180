/* test_null.c - the rule about NULL (base.h): calls every public function with each pointer argument NULL in turn.
 * public_calls.py generates the tests from the headers; the remaining arguments are defined here. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/tools.h>
#include <stdlib.h>
#include <string.h>

#include "net/layers.h"
#include "autograd/node.h"

#if __has_include(<frugal/ranks.h>)
#include <frugal/ranks.h>

#include "addons/ranks/comm.h"
#define FRI_RANKS
#endif

/* A path that cannot be opened or created. */
#define NOWHERE "/dev/null/nothing"

static struct {
    fr_tensor *x, *y, *slot, *list[1];
    fr_node *node; /* y's */
    fr_op op;
    fr_module_class class;
    fr_module *module, *module_slot;
    fr_optimizer *optimizer, *optimizer_slot;
    fr_grad_scaler *scaler, *scaler_slot;
#ifdef FRI_RANKS
    fr_comm *comm, *comm_slot;
    fr_optimizer *shared;
    fr_share *share, *share_slot;
#endif
    fr_dataset *dataset, *dataset_slot;
    fr_loader *loader, *loader_slot;
    fr_plan *plan, *plan_slot;
    fr_summary *summary, *summary_slot;
    fr_net *net, *net_slot;
    fr_value values[8];
    fr_pool *pool, *pool_slot;
    fr_largest_op *largest_op_slot;
    fr_fit fit;
    struct DLManagedTensorVersioned *dlpack;
    FILE *file;
    const char *words;
    char text[FR_STATE_PATH_BYTES];
    uint8_t bytes[64];
    int64_t numbers[8];
    double reals[8];
    size_t sizes[8];
    int ints[8];
    bool flags[8];
} given;

static fr_status given_fr_grad_hook_fn(void *ctx, fr_tensor *leaf) {
    (void)ctx, (void)leaf;
    return FR_OK;
}

static fr_status given_fr_checkpoint_fn(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)ctx, (void)in, (void)n_in, (void)out, (void)n_out;
    return FR_EUNSUPPORTED;
}

static fr_status given_fr_network_fn(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx, (void)device, (void)classes, (void)out;
    return FR_OK;
}

static fr_status given_fr_fit_run_fn(void *ctx, const fr_unit_plan *plan, size_t limit, fr_memory_stats *peak) {
    (void)ctx, (void)plan, (void)limit, (void)peak;
    return FR_EUNSUPPORTED;
}

static fr_status given_fr_module_tensor_fn(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx, (void)path, (void)t, (void)is_parameter;
    return FR_OK;
}

static void given_fr_state_skipped_fn(void *ctx, const char *path, const char *reason) {
    (void)ctx, (void)path, (void)reason;
}

static void given_free(void *ctx) {
    (void)ctx;
}

static fr_status nothing_forward(fr_module *m, fr_tensor **x) {
    (void)m, (void)x;
    return FR_OK;
}

static void make(void) {
    memset(&given, 0, sizeof given);
    for (int i = 0; i < 8; i++) given.numbers[i] = given.ints[i] = 1;
    given.op = (fr_op){.name = "given"};
    given.class = (fr_module_class){.name = "Given", .forward = nothing_forward};
    given.file = fopen("/dev/null", "w");
    cr_assert_not_null(given.file);
    const struct {
        const char *what;
        fr_status s;
    } made[] = {
        {"x", fr_tensor_full(2, (int64_t[]){2, 2}, 1, FR_F32, FR_CPU, &given.x)},
        {"x", fr_tensor_set_requires_grad(given.x, true)},
        {"y", fr_relu(given.x, &given.y)},
        {"module", fri_nn_linear(2, 2, true, FR_CPU, &given.module)},
        {"optimizer", fr_sgd(given.module, NULL, &given.optimizer)},
        {"scaler", fr_grad_scaler_create(NULL, FR_CPU, &given.scaler)},
#ifdef FRI_RANKS
        {"comm", fri_comm_dry(0, 2, &given.comm)},
        {"shared optimizer", fr_sgd(given.module, NULL, &given.shared)},
        {"share", fr_share_create(given.module, given.shared, given.comm, NULL, &given.share)},
#endif
        {"dataset", fr_dataset_synthetic(4, 2, 2, 2, 1, 1, &given.dataset)},
        {"loader", fr_loader_create(given.dataset, FR_LOADER_OPTS(.batch_size = 2, .workers = 0), &given.loader)},
        {"plan", fr_plan_begin(FR_CPU, &given.plan)},
        {"plan", fr_plan_section(given.plan, "step")},
        {"plan", fr_plan_end(given.plan)},
        {"summary", fr_summary_begin(FR_CPU, &given.summary)},
        {"pool", fr_pool_create(FR_CPU, &given.pool)},
    };
    given.net = fr_net_begin(FR_CPU);
    cr_assert_not_null(given.net);
    given.values[0] = fr_net_input(given.net, FR_F32, 2, (int64_t[]){2, 2});
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        cr_assert_eq(made[i].s, FR_OK, "%s: %s", made[i].what, fr_last_error());
    given.list[0] = given.x;
    given.node = fri_node_of(given.y);
}

static void drop(void) {
    fr_largest_op_end(&given.largest_op_slot);
    fr_fit_release(&given.fit);
    (void)fr_net_end(&given.net, given.values, 0, &given.module_slot);
    fr_summary_release(&given.summary_slot);
    fr_summary_release(&given.summary);
    fr_plan_release(&given.plan_slot);
    fr_plan_release(&given.plan);
    fr_loader_release(&given.loader_slot);
    fr_loader_release(&given.loader);
    fr_dataset_release(&given.dataset_slot);
    fr_dataset_release(&given.dataset);
    fr_grad_scaler_release(&given.scaler_slot);
    fr_grad_scaler_release(&given.scaler);
#ifdef FRI_RANKS
    fr_share_release(&given.share_slot);
    fr_share_release(&given.share);
    fr_optimizer_release(&given.shared);
    fr_comm_release(&given.comm_slot);
    fr_comm_release(&given.comm);
#endif
    fr_optimizer_release(&given.optimizer_slot);
    fr_optimizer_release(&given.optimizer);
    fr_module_release(&given.module_slot);
    fr_module_release(&given.module);
    fr_tensor_release(&given.slot);
    fr_tensor_release(&given.y);
    fr_tensor_release(&given.x);
    fr_pool_release(&given.pool_slot);
    fr_pool_release(&given.pool);
    fclose(given.file);
}

/* "function: parameter is NULL". */
static const char *sentence(const char *function, const char *parameter) {
    static char text[200];
    snprintf(text, sizeof text, "%s: %s is NULL", function, parameter);
    return text;
}

/* A described op names itself in place of the function: "relu: x is NULL" of fr_relu and fr_relu_inplace. */
static bool names_op(const char *function, const char *parameter) {
    const char *text = fr_last_error();
    const size_t op = strcspn(text, ":");
    return op > 0 && strncmp(function, "fr_", 3) == 0 && strncmp(function + 3, text, op) == 0 &&
           (function[3 + op] == '\0' || strcmp(function + 3 + op, "_inplace") == 0) &&
           strcmp(strstr(sentence(function, parameter), ": "), text + op) == 0;
}

static void refused(const char *function, const char *parameter, fr_status s) {
    cr_expect_eq(s, FR_EINVAL, "%s, %s NULL: %s, FR_EINVAL is expected", function, parameter, fr_status_name(s));
    if (!names_op(function, parameter)) cr_expect_str_eq(fr_last_error(), sentence(function, parameter));
}

/* The call may fail for a different reason. */
static void accepted(const char *function, const char *parameter, fr_status s) {
    cr_expect(s >= 0 || strcmp(fr_last_error(), sentence(function, parameter)) != 0, "%s", fr_last_error());
}

#define REFUSED(function, parameter, call)  refused(#function, #parameter, call)
#define ACCEPTED(function, parameter, call) accepted(#function, #parameter, call)
#define NOTHING(function, parameter, call)  cr_expect(!(call), #function ", " #parameter " NULL: not 0")

TestSuite(null, .init = make, .fini = drop);

#include "null_calls.inc"
