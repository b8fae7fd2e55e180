/* test_state.c - a resumed run equals an uninterrupted run bit for bit; damage is detected, named and survived; a
 * failed save or load changes nothing. */
#include "base/rng.h"
#include "io/safetensors.h"
#include "io/state.h"
#include "io/support.h"
#include "memory/allocator.h"
#include "net/layers.h"
#include "optim/scaler.h"
#include "optim/optimizer.h"

#include <frugal/autograd.h>
#include <frugal/io.h>
#include <frugal/net.h>

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(state, .init = make_folder, .fini = remove_folder);

/* ---- a small training -------------------------------------------------------------------------------------- */

typedef enum kind { SGD, ADAM, ADAMW, KINDS } kind;

typedef struct run {
    fr_module *model;
    fr_optimizer *optimizer;
    fr_grad_scaler *scaler;
    fr_dataset *dataset;
    fr_loader *loader;
    double sum;
    fr_state_number numbers[1];
    fr_state state;
} run;

static void open_run(run *r, kind k, uint64_t seed, int workers) {
    *r = (run){.sum = 0};
    r->model = small_net(seed, FR_CPU);
    if (k == SGD)
        OK(fr_sgd(r->model, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3), &r->optimizer));
    else if (k == ADAM)
        OK(fr_adam(r->model, NULL, &r->optimizer));
    else
        OK(fr_adamw(r->model, FR_ADAMW_OPTS(.lr = 1e-2), &r->optimizer));
    OK(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 0x1p12, .growth_interval = 3), FR_CPU, &r->scaler));
    OK(fr_dataset_synthetic(42, 5, 7, 9, 3, 1, &r->dataset));
    OK(fr_loader_create(r->dataset,
                        FR_LOADER_OPTS(.batch_size = 8, .padding = 1, .random_crop = true, .flip = true, .seed = 5,
                                       .workers = workers, .drop_last = false),
                        &r->loader));
    r->numbers[0] = (fr_state_number){"sum", &r->sum};
    r->state = (fr_state){.model = r->model,
                          .optimizer = r->optimizer,
                          .scaler = r->scaler,
                          .loader = r->loader,
                          .dataset = r->dataset,
                          .model_name = "small",
                          .schedule = {.kind = FR_SCHEDULE_COSINE, .lr = 0.05, .warmup = 2, .total = 40, .gamma = 0.1},
                          .numbers = r->numbers,
                          .n_numbers = 1};
}

static void close_run(run *r) {
    fr_loader_release(&r->loader);
    fr_dataset_release(&r->dataset);
    fr_grad_scaler_release(&r->scaler);
    fr_optimizer_release(&r->optimizer);
    fr_module_release(&r->model);
}

/* Steps until `until`, over the ends of epochs. */
static void train(run *r, int64_t until) {
    fr_tensor *x = NULL, *labels = NULL, *y = NULL, *loss = NULL;
    while (r->state.step < until) {
        fr_autocast_state cast;
        double value = 0;
        fr_status s = fr_loader_next(r->loader, &x, &labels);
        if (s == FR_END) {
            r->state.epoch++;
            continue;
        }
        OK(s);
        fr_optimizer_set_lr(r->optimizer, fr_schedule_lr(&r->state.schedule, r->state.step));
        OK(fr_autocast_begin(FR_BF16, &cast));
        OK(fr_module_forward(r->model, x, &y));
        OK(fr_cross_entropy(y, labels, NULL, &loss));
        fr_autocast_end(cast);
        OK(fr_tensor_item(loss, &value));
        r->sum += value;
        OK(fr_grad_scaler_scale(r->scaler, loss, &loss));
        OK(fr_backward(loss, NULL));
        OK(fr_grad_scaler_step(r->scaler, r->optimizer));
        OK(fr_grad_scaler_update(r->scaler, NULL));
        fr_optimizer_zero_grad(r->optimizer);
        r->state.step++;
    }
    fr_tensor_release(&x);
    fr_tensor_release(&labels);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
}

typedef struct sums {
    unsigned char *bytes;
    size_t n;
} sums;

static fr_status add_tensor(void *ctx, const char *name, fr_tensor *t) {
    sums *all = ctx;
    all->bytes = realloc(all->bytes, all->n + strlen(name) + fr_tensor_nbytes(t));
    memcpy(all->bytes + all->n, name, strlen(name));
    all->n += strlen(name);
    fr_status s = fr_tensor_to_host(t, all->bytes + all->n);
    all->n += fr_tensor_nbytes(t);
    return s;
}

static void add_bytes(sums *all, const void *data, size_t n) {
    all->bytes = realloc(all->bytes, all->n + n);
    memcpy(all->bytes + all->n, data, n);
    all->n += n;
}

/* All data that determine the further run. */
static sums everything(const run *r) {
    sums all = {NULL, 0};
    int64_t place[2];
    all.bytes = module_bytes(r->model, &all.n);
    OK(fri_optimizer_each_state(r->optimizer, add_tensor, &all));
    OK(fr_loader_position_get(r->loader, &place[0], &place[1]));
    const fr_rng random = fr_rng_get();
    const int64_t counts[] = {fr_optimizer_steps(r->optimizer),
                              fri_grad_scaler_growth_tracker(r->scaler),
                              r->state.step,
                              r->state.epoch,
                              place[0],
                              place[1]};
    const double scale = fr_grad_scaler_value(r->scaler);
    add_bytes(&all, &random, sizeof random);
    add_bytes(&all, counts, sizeof counts);
    add_bytes(&all, &scale, sizeof scale);
    add_bytes(&all, &r->sum, sizeof r->sum);
    return all;
}

static void expect_same(const run *r, const sums *want, const char *what) {
    sums now = everything(r);
    cr_assert(now.n == want->n && memcmp(now.bytes, want->bytes, now.n) == 0, "%s", what);
    free(now.bytes);
}

/* A state of a run of `steps` steps, in <folder>/states. */
static const char *saved_state(kind k, int64_t steps) {
    static char path[FR_STATE_PATH_BYTES];
    run r;
    open_run(&r, k, 1, 0);
    train(&r, steps);
    OK(fr_state_save(in_folder("states"), &r.state, 0, path));
    close_run(&r);
    return path;
}

Test(state, a_resumed_run_is_the_undisturbed_run_bit_for_bit) {
    /* 6 batches an epoch, the last of 2 images: at 0, inside, at the end of an epoch, later. */
    static const int64_t stops[] = {0, 1, 5, 6, 7, 14};
    for (int k = 0; k < KINDS; k++) {
        run whole;
        open_run(&whole, (kind)k, 1, 0);
        train(&whole, 20);
        sums want = everything(&whole);
        cr_assert_gt(fr_grad_scaler_value(whole.scaler), 0x1p12, "the scale has grown");
        for (size_t i = 0; i < COUNT(stops); i++) {
            char path[FR_STATE_PATH_BYTES];
            run first, second;
            open_run(&first, (kind)k, 1, 0);
            train(&first, stops[i]);
            OK(fr_state_save(in_folder("states"), &first.state, 1, path));
            close_run(&first);
            open_run(&second, (kind)k, 99, 2); /* different weights, and workers */
            train(&second, 3);
            OK(fr_state_load(path, &second.state));
            cr_assert_eq(second.state.step, stops[i]);
            cr_assert_eq(second.state.schedule.kind, FR_SCHEDULE_COSINE);
            train(&second, 20);
            expect_same(&second, &want, fr_optimizer_name(second.optimizer));
            close_run(&second);
        }
        free(want.bytes);
        close_run(&whole);
    }
    cr_expect_eq(files_in(in_folder("states")), 1);
}

Test(state, saving_changes_nothing) {
    run r;
    open_run(&r, SGD, 1, 0);
    train(&r, 4);
    sums was = everything(&r);
    OK(fr_state_save(in_folder("states"), &r.state, 0, NULL));
    expect_same(&r, &was, "after a save");
    free(was.bytes);
    close_run(&r);
}

Test(state, memory_switches_may_differ) {
    run whole, other;
    const char *path = saved_state(SGD, 5);
    open_run(&whole, SGD, 1, 0);
    train(&whole, 12);
    sums want = everything(&whole);
    open_run(&other, SGD, 2, 0);
    fr_switches was = fr_switches_get(), off = fr_switches_all_off();
    fr_switches_set(off);
    OK(fr_state_load(path, &other.state));
    train(&other, 12);
    fr_switches_set(was);
    expect_same(&other, &want, "with all switches off");
    free(want.bytes);
    close_run(&whole);
    close_run(&other);
}

Test(state, numbers_and_random_state_are_exact) {
    static const double values[] = {0.1,     0x1.999999999999bp-4, 1.0 / 3, -0.0,     DBL_MIN / 3,
                                    DBL_MAX, 0x1.fffffffffffffp52, 1e22,    INFINITY, -INFINITY,
                                    NAN};
    enum { N = COUNT(values) };
    char path[FR_STATE_PATH_BYTES], names[N][8];
    double kept[N], back[N] = {0};
    fr_state_number out[N], in[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        kept[i] = values[i];
        out[i] = (fr_state_number){names[i], &kept[i]};
        in[i] = (fr_state_number){names[i], &back[i]};
    }
    fr_module *m = small_net(1, FR_CPU);
    fr_rng_set((fr_rng){.seed = UINT64_MAX, .next_stream = UINT64_MAX - 1});
    fr_state state = {.model = m, .step = INT64_C(9007199254740993), .numbers = out, .n_numbers = N};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    fr_seed(0);
    state.step = 0;
    state.numbers = in;
    OK(fr_state_load(path, &state));
    cr_expect_eq(fr_rng_get().seed, UINT64_MAX);
    cr_expect_eq(fr_rng_get().next_stream, UINT64_MAX - 1);
    cr_expect_eq(state.step, INT64_C(9007199254740993));
    for (int i = 0; i < N - 1; i++) cr_expect(memcmp(&back[i], &values[i], sizeof(double)) == 0, "%g", values[i]);
    cr_expect(isnan(back[N - 1]));
    fr_module_release(&m);
}

Test(state, other_float_types_of_the_model_are_converted) {
    char path[FR_STATE_PATH_BYTES];
    fr_module *a = small_net(1, FR_CPU), *b = small_net(2, FR_CPU);
    fr_tensor *want = NULL;
    fr_state state = {.model = a};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    OK(fr_module_to_dtype(b, FR_BF16));
    OK(fr_module_to_dtype(a, FR_BF16));
    state.model = b;
    OK(fr_state_load(path, &state));
    size_t n = 0;
    unsigned char *bytes = module_bytes(a, &n);
    cr_expect(module_equals(b, bytes, n));
    free(bytes);
    fr_tensor_release(&want);
    fr_module_release(&a);
    fr_module_release(&b);
}

/* ---- damage ------------------------------------------------------------------------------------------------ */

Test(state, every_damaged_byte_and_every_cut_is_noticed) {
    size_t n = 0;
    run r;
    const char *path = saved_state(ADAM, 3);
    unsigned char *bytes = read_bytes(path, &n);
    open_run(&r, ADAM, 2, 0);
    train(&r, 2);
    sums was = everything(&r);
    for (size_t at = 0; at < n; at++) {
        bytes[at] ^= (unsigned char)(1u << at % 8);
        fri_safetensors *f = NULL;
        cr_assert_eq(fri_safetensors_open_memory("damaged", bytes, n, true, &f), FR_EFORMAT, "byte %zu of %zu", at, n);
        bytes[at] ^= (unsigned char)(1u << at % 8);
    }
    for (size_t cut = 0; cut < n; cut++) {
        fri_safetensors *f = NULL;
        cr_assert_eq(fri_safetensors_open_memory("cut", bytes, cut, true, &f), FR_EFORMAT, "%zu of %zu bytes", cut, n);
    }
    /* Damage by way of files, at fewer places: header, record, tensors, checksum. */
    for (size_t at = 0; at < n; at += at < 16 || n - at < 16 ? 1 : 211) {
        bytes[at] ^= 0x20;
        write_bytes(in_folder("damaged"), bytes, n);
        bytes[at] ^= 0x20;
        cr_assert_eq(fr_state_load(in_folder("damaged"), &r.state), FR_EFORMAT, "byte %zu", at);
        EXPECT_SENTENCE("checksum");
        write_bytes(in_folder("damaged"), bytes, at);
        cr_assert_eq(fr_state_load(in_folder("damaged"), &r.state), FR_EFORMAT, "cut to %zu bytes", at);
    }
    expect_same(&r, &was, "after all failures");
    free(was.bytes);
    free(bytes);
    close_run(&r);
}

typedef struct skipped {
    int n;
    char last[2000];
} skipped;

static void on_skipped(void *ctx, const char *path, const char *reason) {
    skipped *s = ctx;
    s->n++;
    snprintf(s->last, sizeof s->last, "%s: %s", path, reason);
}

Test(state, the_newest_good_one_is_found_and_the_others_are_named) {
    char path[FR_STATE_PATH_BYTES], found[FR_STATE_PATH_BYTES];
    char states[600], good[FR_STATE_PATH_BYTES];
    size_t n = 0;
    skipped s = {0};
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m};
    snprintf(states, sizeof states, "%s", in_folder("states"));
    cr_expect_eq(fr_state_find_latest(states, found, NULL, NULL), FR_EIO);
    EXPECT_SENTENCE("No such file or directory");
    cr_assert_eq(mkdir(states, 0777), 0);
    cr_expect_eq(fr_state_find_latest(states, found, NULL, NULL), FR_EIO);
    EXPECT_SENTENCE("holds no training state");
    for (int i = 1; i <= 3; i++) {
        state.step = 100 * i;
        OK(fr_state_save(states, &state, 0, path));
        if (i == 1) memcpy(good, path, sizeof good);
    }
    OK(fr_state_find_latest(states, found, on_skipped, &s));
    cr_expect_str_eq(found, path);
    cr_expect_eq(s.n, 0);
    unsigned char *bytes = read_bytes(path, &n);
    cr_assert_eq(truncate(path, (off_t)n / 2), 0);
    OK(fr_state_find_latest(states, found, on_skipped, &s));
    cr_expect(strstr(found, "state-00000002-step-200.safetensors") != NULL, "%s", found);
    cr_expect_eq(s.n, 1);
    cr_expect(strstr(s.last, "state-00000003-step-300.safetensors") != NULL && strstr(s.last, "checksum") != NULL, "%s",
              s.last);
    /* The second file is sound but not a state; and an unfinished save. */
    fri_safetensors_entry e = {.name = "x", .dtype = FR_U8, .shape = {1, {1}}, .data = "1"};
    OK(fri_safetensors_write_checked(found, &e, 1, NULL, 0, NULL, NULL));
    write_bytes(in_folder("states/state-00000009-step-900.safetensors.1234567-0.tmp"), bytes, n / 2);
    write_bytes(in_folder("states/notes.txt"), "x", 1);
    s.n = 0;
    OK(fr_state_find_latest(states, found, on_skipped, &s));
    cr_expect_str_eq(found, good);
    cr_expect_eq(s.n, 3);
    cr_expect(strstr(s.last, "not a training state") != NULL, "%s", s.last);
    cr_assert_eq(truncate(good, 10), 0);
    memset(found, 'x', 3);
    cr_expect_eq(fr_state_find_latest(states, found, NULL, NULL), FR_EFORMAT);
    EXPECT_SENTENCE("none of the 3 training states");
    EXPECT_SENTENCE("state-00000003");
    free(bytes);
    fr_module_release(&m);
}

/* Children that save forever are killed at random moments, mostly during a save. */
Test(state, a_killed_save_leaves_the_last_state) {
    enum { KILLS = 40 };
    char states[600], found[FR_STATE_PATH_BYTES];
    int half_written = 0;
    int64_t last_step = 0;
    snprintf(states, sizeof states, "%s", in_folder("states"));
    for (int i = 0; i < KILLS; i++) {
        pid_t pid = fork();
        cr_assert(pid >= 0);
        if (pid == 0) {
            fr_module *m = NULL;
            fr_state state = {.step = last_step};
            bool ok = fri_nn_linear(300, 200, true, FR_CPU, &m) == FR_OK;
            for (state.model = m; ok; state.step++) ok = fr_state_save(states, &state, 3, NULL) == FR_OK;
            _exit(1);
        }
        struct timespec moment = {0, 20000000 + i * 1700000};
        nanosleep(&moment, NULL);
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        cr_assert(WIFSIGNALED(status), "the child ended by itself");
        skipped s = {0};
        fr_status status_found = fr_state_find_latest(states, found, on_skipped, &s);
        if (status_found != FR_OK) {
            cr_assert(last_step == 0, "%s", fr_last_error()); /* killed before the first state */
            continue;
        }
        const char *step = strstr(found, "-step-");
        cr_assert(step != NULL);
        int64_t now = strtoll(step + 6, NULL, 10);
        cr_assert_geq(now + 1, last_step, "step %lld after step %lld", (long long)now, (long long)last_step - 1);
        last_step = now + 1;
        half_written += s.n;
    }
    cr_expect_gt(last_step, 0);
    cr_expect_gt(half_written, 0, "no kill came inside a save: %d kills", KILLS);
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m, .step = last_step};
    OK(fr_state_save(states, &state, 3, NULL));
    cr_expect_leq(files_in(states), 3, "the traces of killed saves stayed");
    fr_module_release(&m);
}

Test(state, old_states_go_and_the_traces_of_dead_processes) {
    char states[600], path[FR_STATE_PATH_BYTES], live[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m};
    snprintf(states, sizeof states, "%s", in_folder("states"));
    OK(fr_state_save(states, &state, 2, NULL));
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, NULL, 0);
    snprintf(path, sizeof path, "%s/state-00000002-step-5.safetensors.%ld-0.tmp", states, (long)dead);
    snprintf(live, sizeof live, "%s/state-00000003-step-5.safetensors.%ld-0.tmp", states, (long)getppid());
    write_bytes(path, "half", 4);
    write_bytes(live, "half", 4);
    write_bytes(in_folder("states/mine.safetensors"), "x", 1);
    state.step = 900;
    OK(fr_state_save(states, &state, 2, NULL));
    cr_expect(access(path, F_OK) != 0, "a dead process's file stayed");
    cr_expect(access(live, F_OK) == 0, "a living process's file went");
    /* The newest state is the one written last, also after going back to an earlier step. */
    for (int i = 0; i < 5; i++) {
        state.step = 10 + i;
        OK(fr_state_save(states, &state, 2, path));
    }
    cr_expect_eq(files_in(states), 2 + 2);
    OK(fr_state_find_latest(states, live, NULL, NULL));
    cr_expect_str_eq(live, path);
    cr_expect(strstr(path, "-step-14.") != NULL);
    fr_module_release(&m);
}

/* ---- states of other runs ------------------------------------------------------------------------------------ */

static void expect_refused(run *r, const sums *was, const char *path, const char *part) {
    cr_expect_eq(fr_state_load(path, &r->state), strstr(part, "dataset:") != NULL ? FR_EDATA : FR_EINVAL, "%s", part);
    EXPECT_SENTENCE(part);
    EXPECT_SENTENCE(path);
    expect_same(r, was, part);
}

Test(state, states_of_other_runs_are_refused_and_change_nothing) {
    run r;
    fr_dataset *other_data = NULL, *real_data;
    fr_loader *other_loader = NULL, *real_loader;
    fr_module *other_model = NULL, *real_model;
    fr_optimizer *adam = NULL, *real_optimizer;
    double missing = 0;
    const char *path = saved_state(SGD, 4);
    open_run(&r, SGD, 2, 0);
    train(&r, 2);
    OK(fri_nn_linear(24, 5, true, FR_CPU, &other_model));
    sums was = everything(&r);

    r.state.model_name = "large";
    expect_refused(&r, &was, path, "another model: small, this run has large");
    r.state.model_name = "small";

    real_model = r.state.model;
    r.state.model = other_model;
    expect_refused(&r, &was, path, "another model: it has no 'weight'");
    r.state.model = fr_module_child(real_model, 0);
    r.state.model_name = NULL;
    expect_refused(&r, &was, path, "another model: it has no 'weight'");
    r.state.model = real_model;

    real_data = r.dataset;
    OK(fr_dataset_synthetic(42, 5, 7, 9, 3, 2, &other_data));
    r.state.dataset = other_data;
    expect_refused(&r, &was, path, "another dataset: 42 images of 7 x 9 x 3, 5 classes, labels ");
    r.state.dataset = real_data;

    real_loader = r.loader;
    OK(fr_loader_create(real_data, FR_LOADER_OPTS(.batch_size = 9, .workers = 0), &other_loader));
    r.state.loader = other_loader;
    expect_refused(&r, &was, path, "6 batches per epoch, this run has 4");
    r.state.loader = real_loader;

    real_optimizer = r.optimizer;
    OK(fr_adam(r.model, NULL, &adam));
    r.state.optimizer = adam;
    expect_refused(&r, &was, path, "another optimizer: sgd, this run has adam");
    r.state.optimizer = real_optimizer;

    const fr_state_setting setting = {"seed", "2", true};
    r.state.settings = &setting;
    r.state.n_settings = 1;
    expect_refused(&r, &was, path, "another seed: none, this run has 2");
    r.state.n_settings = 0;

    const fr_state_number number = {"best", &missing};
    r.state.numbers = &number;
    expect_refused(&r, &was, path, "it has no number 'best'");
    r.state.numbers = r.numbers;

    OK(fr_state_load(path, &r.state));
    free(was.bytes);
    fr_dataset_release(&other_data);
    fr_loader_release(&other_loader);
    fr_module_release(&other_model);
    fr_optimizer_release(&adam);
    close_run(&r);
}

Test(state, settings_that_must_match_do) {
    char path[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_state_setting settings[] = {{"batch_size", "64", true}, {"switches", "rebuild", false}};
    fr_state state = {.model = m, .settings = settings, .n_settings = 2};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    settings[1].value = "";
    OK(fr_state_load(path, &state));
    settings[0].value = "32";
    cr_expect_eq(fr_state_load(path, &state), FR_EINVAL);
    EXPECT_SENTENCE("another batch_size: 64, this run has 32");
    fr_module_release(&m);
}

Test(state, a_state_of_a_larger_model_is_refused) {
    char path[FR_STATE_PATH_BYTES];
    fr_module *large = small_net(1, FR_CPU), *small = small_net(1, FR_CPU), *part = NULL;
    OK(fri_nn_linear(5, 5, true, FR_CPU, &part));
    OK(fr_module_add_child(large, "more", &part));
    fr_state state = {.model = large};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    state.model = small;
    cr_expect_eq(fr_state_load(path, &state), FR_EINVAL);
    EXPECT_SENTENCE("another model, of 11 tensors; this run's has 9");
    fr_module_release(&large);
    fr_module_release(&small);
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

Test(state, a_full_disk_keeps_the_last_state) {
    char states[600], first[FR_STATE_PATH_BYTES], found[FR_STATE_PATH_BYTES];
    size_t n = 0, now_n = 0;
    run r;
    open_run(&r, SGD, 1, 0);
    train(&r, 2);
    snprintf(states, sizeof states, "%s", in_folder("states"));
    OK(fr_state_save(states, &r.state, 1, first));
    unsigned char *was = read_bytes(first, &n);
    train(&r, 3);
    for (size_t room = 0; room < n; room += 101) {
        limit_files(room);
        fr_status s = fr_state_save(states, &r.state, 1, NULL);
        limit_files(RLIM_INFINITY);
        cr_assert_eq(s, FR_EIO, "%zu bytes of room", room);
        EXPECT_SENTENCE("File too large");
        cr_assert_eq(files_in(states), 1, "a half-written file stayed");
    }
    unsigned char *now = read_bytes(first, &now_n);
    cr_expect(now_n == n && memcmp(was, now, n) == 0);
    OK(fr_state_find_latest(states, found, NULL, NULL));
    cr_expect_str_eq(found, first);
    OK(fr_state_save(states, &r.state, 1, NULL));
    cr_expect_eq(files_in(states), 1);
    free(was);
    free(now);
    close_run(&r);
}

Test(state, folders_that_cannot_be_written_are_named) {
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m};
    write_bytes(in_folder("file"), "x", 1);
    cr_expect_eq(fr_state_save(in_folder("file"), &state, 0, NULL), FR_EIO);
    EXPECT_SENTENCE("is a file, expected a folder");
    cr_expect_eq(fr_state_save(in_folder("file/states"), &state, 0, NULL), FR_EIO);
    EXPECT_SENTENCE("Not a directory");
    cr_expect_eq(fr_state_save(in_folder("no/such"), &state, 0, NULL), FR_EIO);
    EXPECT_SENTENCE("No such file or directory");
    if (getuid() != 0) { /* root writes everywhere */
        cr_assert_eq(mkdir(in_folder("locked"), 0500), 0);
        cr_expect_eq(fr_state_save(in_folder("locked"), &state, 0, NULL), FR_EIO);
        EXPECT_SENTENCE("Permission denied");
    }
    cr_expect_eq(fr_state_load(in_folder("absent"), &state), FR_EIO);
    cr_expect_eq(fr_state_load(folder, &state), FR_EIO);
    fr_module_release(&m);
}

/* A state that disappears or shrinks between finding and reading. */
Test(state, a_state_that_goes_away_is_an_error) {
    char path[FR_STATE_PATH_BYTES];
    const char *saved = saved_state(SGD, 1);
    run r;
    open_run(&r, SGD, 1, 0);
    OK(fr_state_find_latest(in_folder("states"), path, NULL, NULL));
    cr_assert_str_eq(path, saved);
    cr_assert_eq(truncate(path, 500), 0);
    cr_expect_eq(fr_state_load(path, &r.state), FR_EFORMAT);
    unlink(path);
    cr_expect_eq(fr_state_load(path, &r.state), FR_EIO);
    close_run(&r);
}

Test(state, every_failed_allocation_of_a_load_changes_nothing) {
    fri_allocator *allocator = NULL;
    run r;
    int points = 0;
    const char *path = saved_state(ADAM, 3);
    open_run(&r, ADAM, 2, 0);
    train(&r, 2);
    sums was = everything(&r);
    OK(fri_allocator_get(FR_CPU, &allocator));
    for (uint64_t n = 1;; n++, points++) {
        fri_allocator_fail_at(allocator, n);
        fr_status s = fr_state_load(path, &r.state);
        fri_allocator_fail_at(allocator, 0);
        if (s == FR_OK) break;
        cr_assert_eq(s, FR_ENOMEM, "allocation %d", (int)n);
        expect_same(&r, &was, "after a failed allocation");
    }
    cr_expect_eq(points, 13, "two moments of six parameters and their counts, but %d allocations", points);
    free(was.bytes);
    close_run(&r);
}

Test(state, bad_arguments_are_refused) {
    fr_module *m = small_net(1, FR_CPU), *meta = small_net(1, FR_META);
    fr_state state = {.model = m};
    cr_expect_eq(fr_state_save(folder, &(fr_state){.model = NULL}, 0, NULL), FR_EINVAL);
    cr_expect_eq(fr_state_save(folder, &state, -1, NULL), FR_EINVAL);
    state.step = -1;
    cr_expect_eq(fr_state_save(folder, &state, 0, NULL), FR_EINVAL);
    state = (fr_state){.model = meta};
    cr_expect_eq(fr_state_save(folder, &state, 0, NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("on meta");
    cr_expect_eq(files_in(folder), 0);
    fr_module_release(&m);
    fr_module_release(&meta);
}
