/* test_state_record.c - values in a state's record are checked against bounds; facts about the run are compared and
 * named, and states of other runs are kept apart. */
#include "io/support.h"

#include "io/safetensors.h"
#include "io/state.h"

#include <frugal/autograd.h>
#include <frugal/io.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(state_record, .init = make_folder, .fini = remove_folder);

static const char record_head[] = "{\"format\":\"frugal training state\",\"version\":1,";
static const char record_rest[] =
    "\"schedule\":{\"kind\":\"cosine\",\"lr\":0.1,\"warmup\":\"1\",\"total\":\"2\",\"step_size\":\"3\",\"gamma\":0.5},"
    "\"random\":{\"seed\":\"18446744073709551615\",\"next_stream\":\"0\"},\"settings\":{},\"numbers\":{}}";

static const struct {
    const char *middle, *sentence; /* NULL: fine */
} records[] = {
    {"\"step\":\"1\",\"epoch\":\"0\",", NULL},
    {"\"step\":\"7\",\"epoch\":\"0\",\"optimizer\":{\"name\":\"sgd\",\"steps\":\"7\",\"tensors\":\"0\"},", NULL},
    {"\"step\":\"7\",\"epoch\":\"0\",\"optimizer\":{\"name\":\"sgd\",\"steps\":\"7\"},",
     "\"tensors\" is not a whole number"},
    {"\"step\":1,\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"-1\",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"1 \",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"\",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"1152921504606846976\",\"epoch\":\"0\",\"run\":\"18446744073709551615\",", NULL},
    {"\"step\":\"9223372036854775808\",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"99999999999999999999999\",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"run\":1,", "\"run\" is not a whole number"},
    {"\"step\":\"1152921504606846977\",\"epoch\":\"0\",", "\"step\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"9223372036854775807\",", "\"epoch\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"optimizer\":{\"name\":\"sgd\",\"steps\":\"9223372036854775807\"},",
     "\"steps\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"scaler\":{\"scale\":\"inf\"},", "\"scale\" is not a number of at least 0"},
    {"\"step\":\"1\",", "\"epoch\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"model\":3,", "\"model\" is not a string"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"optimizer\":[],", "\"optimizer\" is not an object"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"optimizer\":{},", "\"name\" is not a string"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"optimizer\":{\"name\":\"sgd\"},", "\"steps\" is not a whole number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"scaler\":{\"scale\":-1},", "\"scale\" is not a number of at least 0"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"scaler\":{\"scale\":\"nan\"},", "\"scale\" is not a number of at least 0"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"scaler\":{\"scale\":\"x\"},", "\"scale\" is not a number"},
    {"\"step\":\"1\",\"epoch\":\"0\",\"loader\":{\"epoch\":\"1\",\"batch\":\"2\"},",
     "\"batches\" is not a whole number"},
};

Test(state_record, records_are_checked) {
    char text[2000];
    fri_state_record r;
    for (size_t i = 0; i < COUNT(records); i++) {
        snprintf(text, sizeof text, "%s%s%s", record_head, records[i].middle, record_rest);
        fr_status s = fri_state_record_parse(text, &r);
        cr_expect_eq(s, records[i].sentence == NULL ? FR_OK : FR_EFORMAT, "%s: %s", text, fr_last_error());
        if (records[i].sentence != NULL) EXPECT_SENTENCE(records[i].sentence);
        if (s < 0) continue;
        char *printed = NULL;
        fri_state_record again;
        OK(fri_state_record_print(&r, &(fr_state){.step = r.step}, &printed));
        OK(fri_state_record_parse(printed, &again)); /* a parsed record can be written */
        fri_state_record_text_free(printed);
        fri_state_record_free(&again);
        fri_state_record_free(&r);
    }
    cr_expect_eq(fri_state_record_parse("{\"format\":\"frugal training state\",\"version\":2}", &r), FR_EFORMAT);
    EXPECT_SENTENCE("version 2, this library reads version 1");
    cr_expect_eq(fri_state_record_parse("[]", &r), FR_EFORMAT);
    cr_expect_eq(fri_state_record_parse("{} x", &r), FR_EFORMAT);
    EXPECT_SENTENCE("not valid JSON");
}

static const char rest_with[] = "\"random\":{\"seed\":\"1\",\"next_stream\":\"0\"},\"settings\":{},\"numbers\":{}}";

Test(state_record, schedules_are_bounded) {
    static const char *const wrong[] = {"\"lr\":\"nan\"", "\"lr\":-0.1", "\"lr\":\"inf\""};
    char text[1000];
    fri_state_record r;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        snprintf(text, sizeof text,
                 "%s\"step\":\"1\",\"epoch\":\"0\",\"schedule\":{\"kind\":\"step\",%s,\"warmup\":\"1\",\"total\":\"2\","
                 "\"step_size\":\"3\",\"gamma\":0.5},%s",
                 record_head, wrong[i], rest_with);
        cr_expect_eq(fri_state_record_parse(text, &r), FR_EFORMAT, "%s", wrong[i]);
        EXPECT_SENTENCE("\"lr\" is not a number of at least 0");
    }
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m, .schedule = {.lr = (double)NAN}};
    cr_expect_eq(fr_state_save(folder, &state, 0, NULL), FR_EINVAL, "what cannot be loaded was saved");
    state = (fr_state){.model = m, .step = FRI_STATE_COUNT_MOST + 1};
    cr_expect_eq(fr_state_save(folder, &state, 0, NULL), FR_EINVAL, "what cannot be loaded was saved");
    fr_module_release(&m);
}

/* A step of SGD with momentum, so that each parameter has state. */
static fr_optimizer *stepped(fr_module *m) {
    fr_optimizer *o = NULL;
    fr_tensor *x = NULL;
    OK(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
    OK(fr_tensor_full(4, (int64_t[]){2, 7, 9, 3}, 1, FR_F32, FR_CPU, &x));
    OK(fr_module_forward(m, x, &x));
    OK(fr_mean(x, &x));
    OK(fr_backward(x, NULL));
    OK(fr_optimizer_step(o));
    fr_tensor_release(&x);
    return o;
}

/* Writes a copy of a state without the optimizer's last tensor, with a correct checksum. */
static void write_without_one(const char *path, const char *copy) {
    fri_safetensors *f = NULL;
    fri_safetensors_entry kept[64];
    size_t n = 0;
    bool left_out = false;
    OK(fri_safetensors_open(path, &f));
    for (size_t i = 0; i < f->n_entries && n < COUNT(kept); i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        bool one = !left_out && strncmp(e->name, "optimizer.", 10) == 0;
        left_out |= one;
        if (!one && strcmp(e->name, FRI_SAFETENSORS_CHECKSUM) != 0) kept[n++] = *e;
    }
    cr_assert(left_out);
    OK(fri_safetensors_write_checked(copy, kept, n, f->metadata, f->n_metadata, NULL, NULL));
    fri_safetensors_close(&f);
}

Test(state_record, a_missing_tensor_of_the_optimizer_is_noticed) {
    char path[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_optimizer *o = stepped(m);
    fr_state state = {.model = m, .optimizer = o};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    OK(fr_state_load(path, &state));
    write_without_one(path, in_folder("less"));
    cr_expect_eq(fr_state_load(in_folder("less"), &state), FR_EFORMAT);
    EXPECT_SENTENCE("tensors of the optimizer but was saved with");
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

typedef struct changes {
    int n;
    char last[100];
} changes;

static void on_change(void *ctx, const fr_state_setting *now, const char *saved) {
    changes *c = ctx;
    c->n++;
    snprintf(c->last, sizeof c->last, "%s %s was %s", now->name, now->value, saved);
}

Test(state_record, settings_that_may_change_are_told_and_new_ones_may_lack) {
    char path[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_state_setting settings[] = {{.name = "lr", .value = "0.1"},
                                   {.name = "decay", .value = "0"},
                                   {.name = "seed", .value = "1", .must_match = true, .may_lack = true}};
    changes c = {0};
    fr_state state = {.model = m, .settings = settings, .n_settings = 2, .changed = on_change, .changed_ctx = &c};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    settings[0].value = "0.2";
    state.n_settings = 3;
    OK(fr_state_load(path, &state));
    cr_expect_eq(c.n, 1);
    cr_expect_str_eq(c.last, "lr 0.2 was 0.1");
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    settings[2].value = "2";
    cr_expect_eq(fr_state_load(path, &state), FR_EINVAL);
    EXPECT_SENTENCE("another seed: 1, this run has 2");
    fr_module_release(&m);
}

Test(state_record, a_run_counts_and_removes_its_own_states) {
    char states[600], path[FR_STATE_PATH_BYTES], first[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_state a = {.model = m, .run = 7}, b = {.model = m, .run = 8}, nobody = {.model = m};
    snprintf(states, sizeof states, "%s", in_folder("states"));
    OK(fr_state_save(states, &a, 1, first));
    OK(fr_state_save(states, &b, 1, NULL));
    OK(fr_state_save(states, &b, 1, path));
    cr_expect_eq(files_in(states), 2, "one of each run");
    OK(fr_state_load(first, &nobody));
    cr_expect_eq(nobody.run, 7);
    nobody.run = 0;
    OK(fr_state_save(states, &nobody, 1, NULL));
    cr_expect_eq(files_in(states), 1, "a run without a number counts all");
    fr_module_release(&m);
}

typedef struct pruning {
    fr_state *state;
    char *old;
    int n;
} pruning;

/* While the newest state is found damaged, another run saves a newer state and removes the next candidate. */
static void prune(void *ctx, const char *path, const char *reason) {
    pruning *p = ctx;
    (void)path;
    (void)reason;
    if (p->n++ > 0) return;
    OK(fr_state_save(in_folder("states"), p->state, 0, NULL));
    cr_assert_eq(unlink(p->old), 0);
}

Test(state_record, a_folder_that_is_pruned_meanwhile_is_looked_at_again) {
    char old[FR_STATE_PATH_BYTES], damaged[FR_STATE_PATH_BYTES], found[FR_STATE_PATH_BYTES];
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m};
    pruning p = {.state = &state, .old = old};
    OK(fr_state_save(in_folder("states"), &state, 0, old));
    OK(fr_state_save(in_folder("states"), &state, 0, damaged));
    write_bytes(damaged, "x", 1);
    OK(fr_state_find_latest(in_folder("states"), found, prune, &p));
    cr_expect(strstr(found, "state-00000003-") != NULL, "%s", found);
    fr_module_release(&m);
}

/* The sum is right when the file is opened; then a byte of a tensor changes, in place. */
Test(state_record, a_file_that_changes_after_it_was_checked_is_refused) {
    char path[FR_STATE_PATH_BYTES];
    size_t n = 0;
    fri_safetensors *f = NULL;
    fr_module *m = small_net(1, FR_CPU);
    fr_state state = {.model = m};
    OK(fr_state_save(in_folder("states"), &state, 0, path));
    unsigned char *bytes = read_bytes(path, &n);
    OK(fri_safetensors_open_as(path, FRI_SAFETENSORS_CHECKED, &f));
    cr_expect_null(f->entries[0].data, "the content was read before anybody asked for it");
    bytes[n - 100] ^= 1;
    write_bytes(path, bytes, n);
    cr_expect_eq(fri_safetensors_read(f), FR_EFORMAT);
    EXPECT_SENTENCE("checksum");
    bytes[n - 100] ^= 1;
    write_bytes(path, bytes, n);
    OK(fri_safetensors_read(f));
    cr_expect_not_null(f->entries[0].data);
    fri_safetensors_close(&f);
    free(bytes);
    fr_module_release(&m);
}
