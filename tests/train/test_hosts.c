/* test_hosts.c - trainers used by strangers on strange hosts: devices, FIFOs and huge files as arguments, limits,
 * closed streams, signals, folders of another training.
 *
 * Each run ends with the right status and a sentence, without waiting for anybody, and no earlier file is lost.
 * Programs run in the test's folder, so file names in the flags are short. */
#define _GNU_SOURCE
#include "data/files.h"
#include "io/safetensors.h"
#include "io/state.h"
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TINY  "--depth 10 --growth 2 --image-size 8 --batch-size 2 --threads 1 --eval-every 0 "
#define STEPS TINY "--steps 3 --quiet "

TestSuite(hosts, .init = files_begin, .fini = files_end, .timeout = 240);

static void enter(void) {
    if (chdir(files_root) != 0 || setenv("XDG_CACHE_HOME", files_root, 1) != 0) _exit(126);
}

static outcome run_as(how h, const char *flags) {
    if (h.prepare == NULL) h.prepare = enter;
    return program_run_as(h, "train_densenet", flags);
}

static outcome run(const char *flags) {
    return run_as((how){0}, flags);
}

static void good(const char *flags) {
    outcome o = run(flags);
    cr_assert_eq(o.status, 0, "%s: %d: %s", flags, o.status, o.err);
    cr_assert_eq(o.err[0], '\0', "%s: %s", flags, o.err);
}

/* A single line by the program, without a byte that a terminal obeys. */
static void expect_sentence(const outcome *o, int status, const char *flags, const char *expression) {
    size_t n = strlen(o->err);
    cr_expect_eq(o->status, status, "%s: status %d: %s", flags, o->status, o->err);
    cr_expect(n > 0 && o->err[n - 1] == '\n' && strchr(o->err, '\n') == o->err + n - 1, "%s: not one line: %s", flags,
              o->err);
    for (size_t i = 0; i + 1 < n; i++) cr_expect((unsigned char)o->err[i] >= 0x20, "%s: byte %d", flags, o->err[i]);
    EXPECT_MATCH(o->err, expression);
}

static int count(const char *folder, const char *text) {
    DIR *d = opendir(files_path(folder));
    int n = 0;
    if (d == NULL) return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += strstr(e->d_name, text) != NULL;
    closedir(d);
    return n;
}

static char *text_of(const char *name) {
    static char text[1 << 16];
    FILE *f = fopen(files_path(name), "r");
    cr_assert_not_null(f, "%s is not there", name);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void picture(const char *name) {
    uint8_t rgb[3 * 16 * 16], *bytes;
    picture_fill(rgb, 16, 16);
    size_t n = png_bytes(PNG_KIND_RGB, rgb, 16, 16, &bytes);
    files_write(name, bytes, n);
    free(bytes);
}

/* An image folder with two classes, the first of the given name. */
static void image_folder(const char *class_name) {
    static const char *const parts[] = {"d", "d/train", "d/test"};
    for (int i = 0; i < 3; i++) files_make_folder(parts[i]);
    for (int i = 1; i < 3; i++)
        for (int c = 0; c < 2; c++) {
            char name[200];
            snprintf(name, sizeof name, "%s/%s", parts[i], c == 0 ? class_name : "z");
            files_make_folder(name);
            for (int k = 0; k < 2; k++) {
                snprintf(name, sizeof name, "%s/%s/%d.png", parts[i], c == 0 ? class_name : "z", k);
                picture(name);
            }
        }
}

/* ---- files that are not regular ------------------------------------------------------------------------------ */

Test(hosts, a_device_named_as_output_stays_a_device) {
    static const char *const flags[] = {"export", "report", "trace", "track", "track-lines", "memory-plot"};
    struct stat st;
    if (mknod(files_path("null"), S_IFCHR | 0666, makedev(1, 3)) != 0) cr_skip("this user cannot make device nodes");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char text[256];
        snprintf(text, sizeof text, STEPS "--%s ./null", flags[i]);
        if (program_lacks(text)) continue;
        good(text);
        cr_expect(stat(files_path("null"), &st) == 0 && S_ISCHR(st.st_mode), "--%s replaced the device", flags[i]);
    }
    if (!program_lacks("--trace")) good(STEPS "--export null --trace null"); /* devices may be shared */
    cr_expect_eq(count(".", ".tmp"), 0);
}

Test(hosts, a_fifo_is_waited_for_by_no_flag) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--weights fifo", "not a regular file"},
        {"--resume fifo", "not a regular file"},
        {"--predict fifo --weights w", "not a regular file"},
        {"--dataset mnist --data idx", "not a regular file"},
        {"--dataset cifar10 --data bin", "not a regular file"},
        {"--dataset folder --data d", "not a regular file"},
        {"--export fifo", "--export fifo: .*nobody reads|safetensors file 'fifo': .*nobody reads"},
        {"--report fifo", "--report fifo: .*nobody reads"},
        {"--trace fifo", "--trace fifo: .*nobody reads"},
        {"--track fifo", "--track fifo: .*nobody reads"},
        {"--memory-plot fifo", "--memory-plot fifo: .*nobody reads"},
        {"--log fifo", "the log 'fifo' is not a regular file"},
        {"--save fifo", "fifo.* is a file, expected a folder"},
        {"--offload=fifo", "fifo: File exists"},
    };
    good(STEPS "--export w");
    image_folder("a");
    static const char *const fifos[] = {"fifo", "idx/train-images-idx3-ubyte", "bin/data_batch_1.bin",
                                        "d/train/a/2.png"};
    files_make_folder("idx");
    files_make_folder("bin");
    files_write("idx/train-labels-idx1-ubyte", "x", 1);
    for (size_t i = 0; i < sizeof fifos / sizeof *fifos; i++) cr_assert_eq(mkfifo(files_path(fifos[i]), 0666), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (program_lacks(cases[i].flags)) continue;
        char text[256];
        snprintf(text, sizeof text, STEPS "%s", cases[i].flags);
        outcome o = run(text);
        expect_sentence(&o, 1, cases[i].flags, cases[i].sentence);
    }
    /* A cache of measured times that is a FIFO counts as no cache. */
    good(STEPS "--calibrate");
    char command[1200];
    snprintf(command, sizeof command, "cd %s/frugal && for f in times-*; do rm $f && mkfifo $f; done", files_root);
    cr_assert_eq(system(command), 0);
    good(TINY "--steps 3 --quiet --memory-budget 1MiB");
}

Test(hosts, ten_gigabytes_of_zeros_cost_neither_time_nor_memory) {
    static const struct {
        const char *flags, *sentence; /* NULL: the run does not mind */
    } cases[] = {
        {"--weights zeros", "the header does not begin with"},
        {"--weights claims", "claims.* does not fit the module"},
        {"--resume zeros", "the header does not begin with"},
        {"--resume states", "the header does not begin with"},
        {"--predict zeros --weights w", "10737418240 bytes, an image file has"},
        {"--predict gigabyte --weights w", "starts with 00 00 00 00"},
        {"--dataset mnist --data idx", "idx/train-images-idx3-ubyte"},
        {"--dataset cifar10 --data bin", "data_batch_1.bin: has [0-9]+ bytes"},
        {"--dataset folder --data d", "d/train/a/2.png: (has|starts)"},
        {"--resume saved --log zeros", NULL},
    };
    good(STEPS "--export w");
    outcome plain = run(STEPS "--weights w --save saved");
    image_folder("a");
    files_make_folder("idx");
    files_make_folder("bin");
    files_make_folder("states");
    files_write("idx/train-labels-idx1-ubyte", "x", 1);
    /* A right header promises ten gigabytes of another model. */
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2684354560],\"data_offsets\":[0,10737418240]}}";
    char claims[8 + sizeof header] = {sizeof header - 1};
    memcpy(claims + 8, header, sizeof header);
    static const struct {
        const char *name;
        off_t bytes;
    } files[] = {{"zeros", (off_t)10 << 30},
                 {"claims", 8 + sizeof header - 1 + ((off_t)10 << 30)},
                 {"gigabyte", (off_t)1 << 30},
                 {"states/state-00000001-step-1.safetensors", (off_t)10 << 30},
                 {"idx/train-images-idx3-ubyte", (off_t)10 << 30},
                 {"bin/data_batch_1.bin", (off_t)3073 << 22}, /* whole records */
                 {"d/train/a/2.png", (off_t)10 << 30}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        files_write(files[i].name, claims, strcmp(files[i].name, "claims") == 0 ? sizeof claims : 0);
        if (truncate(files_path(files[i].name), files[i].bytes) != 0) cr_skip("no sparse files of this size here");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, TINY "--steps 4 --quiet %s", cases[i].flags);
        outcome o = run(text);
        if (cases[i].sentence != NULL && strstr(cases[i].flags, "states") == NULL)
            expect_sentence(&o, 1, cases[i].flags, cases[i].sentence);
        else if (cases[i].sentence != NULL)
            EXPECT_MATCH(o.err, cases[i].sentence);
        else
            cr_expect_eq(o.status, 0, "%s: %s", cases[i].flags, o.err);
        cr_expect_lt(o.resident, plain.resident + 50 * 1024, "%s: %ld KiB resident, %ld without", cases[i].flags,
                     o.resident, plain.resident);
    }
}

/* ---- limits and inherited states ------------------------------------------------------------------------------ */

static void small_files(void) {
    enter();
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1024, 1024});
}

Test(hosts, a_limit_on_the_size_of_files_is_an_error_and_no_signal) {
    static const char *const flags[] = {"--save s",  "--export e",          "--report r", "--trace t",
                                        "--track k", "--memory-plot m.svg", "--calibrate"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char text[256];
        if (program_lacks(flags[i])) continue;
        snprintf(text, sizeof text, STEPS "%s", flags[i]);
        outcome o = run_as((how){.prepare = small_files}, text);
        expect_sentence(&o, 1, flags[i], "File too large");
    }
    outcome o = run_as((how){.prepare = small_files}, TINY "--steps 20 --quiet --log l");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "the log 'l' cannot be written: File too large; the training goes on");
    cr_expect_eq(count(".", ".tmp"), 0);
    cr_expect_eq(count("s", "."), 2, "something is left in the folder of states");
}

static void close_streams(void) {
    enter();
    for (int fd = 0; fd < 3; fd++) close(fd);
}

Test(hosts, text_does_not_land_in_files_where_the_streams_are_closed) {
    outcome o = run_as((how){.prepare = close_streams}, TINY "--steps 3 --log l --report r --save s");
    cr_assert_eq(o.status, 0);
    for (char *line = strtok(text_of("l"), "\n"); line != NULL; line = strtok(NULL, "\n"))
        cr_expect_eq(line[0], '{', "in the log: %s", line);
    cr_expect_eq(text_of("r")[0], '{');
    o = run_as((how){.prepare = close_streams}, TINY "--steps 3 --log l2 --weights none");
    cr_expect_eq(o.status, 1);
}

static void ignore_interrupts(void) {
    enter();
    signal(SIGINT, SIG_IGN);
}

Test(hosts, a_closed_terminal_saves_and_an_ignored_signal_stays_ignored) {
    static const char *const flags =
        TINY "--epochs 500 --save s --save-every 1000000 --eval-every 1 --schedule constant --batch-size 50";
    outcome o = run_as((how){.signal_after = "epoch  1/", .signal = SIGHUP}, flags);
    cr_expect_eq(o.status, 128 + SIGHUP, "%d: %s", o.status, o.err);
    cr_expect_eq(count("s", "state-"), 1, "no state was saved");
    o = run_as((how){.prepare = ignore_interrupts, .signal_after = "epoch  1/", .signal = SIGINT},
               TINY "--epochs 2 --eval-every 1 --batch-size 50");
    cr_expect_eq(o.status, 0, "%d: %s", o.status, o.err);
}

static void two_processes(void) {
    enter();
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) _exit(126);
    setrlimit(RLIMIT_NPROC, &(struct rlimit){2, 2});
}

Test(hosts, threads_that_cannot_be_started_are_a_sentence) {
    cr_assert_eq(chmod(files_root, 0777), 0);
    outcome o = run_as((how){.prepare = two_processes}, TINY "--steps 3 --quiet --threads 4");
    if (o.status == 126 || o.status == 127) cr_skip("this program cannot be run by another user");
    expect_sentence(&o, 1, "--threads 4", "--threads 4: .*4 threads are requested, but this process may start [12]\n");
    o = run_as((how){.prepare = two_processes}, TINY "--steps 3 --workers 8");
    cr_expect_eq(o.status, 0, "%d: %s", o.status, o.err);
    EXPECT_MATCH(o.out, "note: --workers 8: [01] could be started");
}

static void shared_memory(void) {
    enter();
    setenv("TMPDIR", "/dev/shm", 1);
}

Test(hosts, offloading_into_memory_is_avoided_and_said) {
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != 0x01021994 || access("/dev/shm", W_OK) != 0)
        cr_skip("/dev/shm is no tmpfs that this user can write");
    bool disk = statfs("/var/tmp", &fs) == 0 && fs.f_type != 0x01021994 && access("/var/tmp", W_OK) == 0;
    outcome o = run_as((how){.prepare = shared_memory}, TINY "--steps 1 --offload");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, disk ? "note: --offload: TMPDIR /dev/shm is in memory, so the file is in /var/tmp"
                             : "note: --offload: its file in /dev/shm is in memory");
    char flags[200];
    snprintf(flags, sizeof flags, TINY "--steps 1 --offload=/dev/shm/frugal-test-%ld", (long)getpid());
    o = run(flags);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "note: --offload: /dev/shm/.* is in memory");
}

/* ---- two trainings, two outputs ------------------------------------------------------------------------------- */

Test(hosts, another_trainings_states_are_not_mixed_with_new_ones) {
    good(STEPS "--save d --save-every 1");
    outcome o = run(TINY "--growth 4 --optimizer adam --steps 3 --quiet --save-every 1 --save d");
    expect_sentence(&o, 1, "--save d",
                    "--save d: holds 3 states already, the newest of densenet_bc10_k2 at step 3: "
                    "add --resume latest, or name another folder");
    cr_expect_eq(count("d", "state-"), 3);
    /* Resuming from a state of another folder is another training, too; resuming from an earlier state of the folder
     * is not. */
    good(STEPS "--save e --save-every 1");
    o = run(TINY "--steps 6 --quiet --save d --resume e");
    expect_sentence(&o, 1, "--save d --resume e", "--save d: holds 3 states already");
    good(TINY "--steps 6 --quiet --save d --resume d/state-00000001-step-1.safetensors");
    good(TINY "--steps 6 --quiet --save none --resume latest");
}

/* Copies of another training's states lie in the folder: --keep counts only its own. */
Test(hosts, keep_counts_and_removes_the_states_of_this_training_only) {
    char command[2200];
    good(STEPS "--save mine --save-every 1");
    good(TINY "--growth 4 --steps 2 --quiet --save other --save-every 1");
    snprintf(command, sizeof command,
             "cd %s && cp other/state-00000001-step-1.safetensors mine/state-00000004-step-1.safetensors && "
             "cp other/state-00000002-step-2.safetensors mine/state-00000002-step-2.safetensors",
             files_root);
    cr_assert_eq(system(command), 0);
    good(TINY "--steps 5 --quiet --save mine --resume mine/state-00000003-step-3.safetensors --keep 2");
    cr_expect_eq(count("mine", "state-00000005-step-5"), 1);
    cr_expect_eq(count("mine", "state-00000004-step-1"), 1, "another training's state was removed");
    cr_expect_eq(count("mine", "state-00000002-step-2"), 1, "another training's state was removed");
    cr_expect_eq(count("mine", "state-00000003-step-3"), 1, "its own state was not counted");
    cr_expect_eq(count("mine", "state-00000001-step-1"), 0, "its own old state stays");
}

Test(hosts, a_resumed_run_keeps_its_seed_and_says_what_else_changed) {
    good(STEPS "--save s --lr 0.05 --clip 1");
    outcome o = run(TINY "--steps 5 --quiet --lr 0.05 --clip 1 --resume s --seed 2");
    expect_sentence(&o, 1, "--seed 2", "it was saved with another seed: 1, this run has 2");
    o = run(TINY "--steps 5 --quiet --lr 0.05 --clip 1 --resume s --augment none");
    expect_sentence(&o, 1, "--augment none", "it was saved with another augment: 1, this run has 0");
    o = run(TINY "--steps 3 --lr 0.05 --clip 1 --resume s");
    cr_expect_eq(o.status, 0, "%s", o.err);
    cr_expect_not(matches(o.out, "note:"), "%s", o.out);
    o = run(TINY "--steps 5 --lr 0.02 --momentum 0.8 --exact-convolutions --resume s");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "\nnote: other settings than when it was saved: steps 5 was 3, lr 0.02 was 0.05, "
                        "momentum 0.8 was 0.9, clip unset was 1, exact-convolutions on was off, computed-by ");
    o = run(TINY "--steps 6 --threads 2 --resume s"); /* threads change no bit */
    cr_expect_eq(o.status, 0, "%s", o.err);
    cr_expect_null(strstr(o.out, "computed-by"), "%s", o.out);
    cr_assert_eq(setenv("FRUGAL_ISA", "sse2", 1), 0);
    o = run(TINY "--steps 7 --threads 2 --resume s");
    cr_assert_eq(unsetenv("FRUGAL_ISA"), 0);
    cr_expect_eq(o.status, 0, "%s", o.err);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        EXPECT_MATCH(o.out, "computed-by separate multiplications, [^\n]* was fused multiply-adds, ");
#endif
    picture("a.png");
    good(TINY "--quiet --resume s --seed 2 --predict a.png"); /* no matter for a prediction */
}

Test(hosts, what_would_destroy_a_file_or_does_nothing_is_a_usage_error) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--log x --trace x", "--log x and --trace x are one file"},
        {"--report x --export ./x", "--export ./x and --report x are one file"},
        {"--trace x --track sub/../x", "--track sub/../x and --trace x are one file"},
        {"--memory-plot there --report link", "--report link and --memory-plot there are one file"},
        {"--export there --log hard", "--export there and --log hard are one file"},
        {"--weights there --export link", "--export link would be written over --weights there"},
        {"--resume there --log there", "--log there would be written over --resume there"},
        {"--weights w --predict there --report there", "--report there would be written over --predict there"},
        {"--clip 0", "--clip 0: must be at least"},
        {"--clip 1e-400", "--clip 1e-400: must be at least"},
        {"--keep 1", "--keep 1 needs --save DIR"},
        {"--optimizer adam --momentum 0.9", "--momentum 0.9 is for --optimizer sgd"},
    };
    files_make_folder("sub");
    files_write("there", "x", 1);
    cr_assert(symlink("there", files_path("link")) == 0 && link(files_path("there"), files_path("hard")) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (program_lacks(cases[i].flags)) continue;
        char text[256];
        snprintf(text, sizeof text, STEPS "%s", cases[i].flags);
        outcome o = run(text);
        expect_sentence(&o, 2, cases[i].flags, cases[i].sentence);
    }
    cr_expect_str_eq(text_of("there"), "x");
}

/* A copy of a state with a changed text in its record, and a right checksum. */
static void rewrite(const char *from, const char *to, const char *old, const char *new) {
    fri_safetensors *f = NULL;
    MUST(fri_safetensors_open(files_path(from), &f));
    char record[1 << 14];
    const char *text = fri_safetensors_metadata(f, FRI_STATE_RECORD_KEY), *at = strstr(text, old);
    cr_assert_not_null(at, "no %s in %s", old, text);
    snprintf(record, sizeof record, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    fri_safetensors_text metadata = {FRI_STATE_RECORD_KEY, record};
    fri_safetensors_entry entry[512];
    size_t n = 0;
    for (size_t i = 0; i < f->n_entries; i++)
        if (strcmp(f->entries[i].name, FRI_SAFETENSORS_CHECKSUM) != 0) entry[n++] = f->entries[i];
    MUST(fri_safetensors_write_checked(files_path(to), entry, n, &metadata, 1, NULL, NULL));
    fri_safetensors_close(&f);
}

Test(hosts, numbers_of_a_state_that_cannot_be_are_refused) {
    good(STEPS "--save s");
    rewrite("s/state-00000001-step-3.safetensors", "same", "\"epoch_correct\":", "\"epoch_correct\":");
    good(TINY "--steps 5 --quiet --resume same");
    rewrite("same", "less", "\"epoch_correct\":", "\"epoch_correct\":-1,\"was\":");
    outcome o = run(TINY "--steps 5 --quiet --resume less");
    expect_sentence(&o, 1, "less", "--resume less: damaged: -1 correct answers of 6");
    rewrite("same", "more", "\"epoch_correct\":", "\"epoch_correct\":1e308,\"was\":");
    o = run(TINY "--steps 5 --quiet --resume more");
    expect_sentence(&o, 1, "more", "--resume more: damaged: 1e\\+308 correct answers of 6");
}

/* A state of other numerics is continued, and the run says so in a line. */
Test(hosts, numerics_of_a_state_are_compared) {
    good(STEPS "--save s");
    rewrite("s/state-00000001-step-3.safetensors", "same", "\"numerics\"", "\"numerics\"");
    outcome o = run(TINY "--steps 4 --resume same");
    cr_expect_eq(o.status, 0, "%s", o.err);
    cr_expect_null(strstr(o.out, "numerics"), "%s", o.out);
    rewrite("same", "other", "\"numerics\"", "\"was\"");
    o = run(TINY "--steps 4 --resume other");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out,
                 "\nnote: the state has numerics 0, this program [1-9][0-9]*: last bits of the steps to come differ\n");
}

/* Runs that have begun to write a trace know their start state, and build the model. */
static bool prune(void) {
    if (count(".", "trace.") < 1) return false;
    cr_assert_eq(unlink(files_path("s/state-00000002-step-2.safetensors")), 0);
    return true;
}

Test(hosts, a_state_that_is_pruned_before_it_is_read_is_looked_for_again) {
#define LARGE "--depth 40 --growth 24 --image-size 8 --batch-size 2 --threads 1 --eval-every 0 --quiet --no-arena "
    if (program_lacks("--trace")) cr_skip("built without the add-on views");
    good(LARGE "--steps 2 --save s --save-every 1");
    outcome o = run_as((how){.watch = prune}, LARGE "--steps 2 --resume s --trace trace");
    cr_expect_eq(o.status, 0, "%s", o.err);
}

/* ---- text ----------------------------------------------------------------------------------------------------- */

Test(hosts, names_from_files_do_not_reach_the_terminal_raw) {
    image_folder("\x1b[31mX");
    good(STEPS "--dataset folder --data d --export w");
    outcome o = run("--weights w --predict d/train/z/0.png"); /* the file says the size and the names */
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "  \\\\x1b\\[31mX\n");
    cr_expect_eq(strchr(o.out, '\x1b'), NULL, "%s", o.out);
    o = run(STEPS "--weights one\nname");
    expect_sentence(&o, 1, "--weights", "'one\\\\x0aname'.*No such file");
    o = run(STEPS "--lr one\x1b[31mname");
    expect_sentence(&o, 2, "--lr", "--lr one\\\\x1b\\[31mname: not a number");
    char flags[2000], name[1600];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 1; i < 6; i++) name[i * 250] = '/';
    snprintf(flags, sizeof flags, STEPS "--dataset mnist --data %s", name);
    o = run(flags);
    expect_sentence(&o, 1, "a long name", "a: holds no train-images-idx3-ubyte|No such file");
}
