/* test_save_faults.c - trainings in a breaking world: full disks, folders that are read-only or vanish, images that
 * vanish or shrink.
 *
 * A training goes on, or ends with a sentence. Either way the newest good state is intact: resuming the state gives
 * the results of an undisturbed run. A full disk is a tmpfs of some pages in a mount namespace of the test. Where a
 * mount is refused the tests say so, and the test with a limit on the size of files stands in. */
#define _GNU_SOURCE
#include "data/files.h"
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 --eval-every 0 --quiet "

TestSuite(save_faults, .init = files_begin, .fini = files_end, .timeout = 240);

/* Runs train_densenet on the test's folder, written %s in the flags (up to four times). */
static outcome run_as(how h, const char *flags) {
    char arguments[3072], format[1024];
    snprintf(format, sizeof format, TINY "%s", flags);
    snprintf(arguments, sizeof arguments, format, files_root, files_root, files_root, files_root);
    return program_run_as(h, "train_densenet", arguments);
}

static outcome run(const char *flags) {
    return run_as((how){0}, flags);
}

static void good(const char *flags) {
    outcome o = run(flags);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    cr_assert_eq(o.err[0], '\0', "%s: %s", flags, o.err);
}

static void shell(const char *format) {
    char command[2048];
    snprintf(command, sizeof command, format, files_root, files_root, files_root);
    cr_assert_eq(system(command), 0, "%s", command);
}

static void expect_same(const char *a, const char *b) {
    char command[2048];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s", files_root, a, files_root, b);
    cr_expect_eq(system(command), 0, "%s and %s differ", a, b);
}

/* Names in a folder that hold a text. */
static int count(const char *folder, const char *text) {
    DIR *d = opendir(files_path(folder));
    int n = 0;
    if (d == NULL) return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += strstr(e->d_name, text) != NULL;
    closedir(d);
    return n;
}

static int count_text(const char *in, const char *text) {
    int n = 0;
    for (const char *p = in; (p = strstr(p, text)) != NULL; p++) n++;
    return n;
}

/* A single line, by the program. */
static void expect_one_sentence(const outcome *o, const char *expression) {
    cr_expect_eq(count_text(o->err, "\n"), 1, "not one line: %s", o->err);
    cr_expect_eq(strncmp(o->err, "train_densenet: ", 16), 0, "%s", o->err);
    EXPECT_MATCH(o->err, expression);
}

static rlim_t file_limit;

static void limit_files(void) {
    signal(SIGXFSZ, SIG_IGN); /* a write past the limit then says EFBIG */
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_limit, file_limit});
}

/* A file system of its own at files_root/disk, of `kib` KiB; false (and the test skipped) without the right to. */
static bool mount_disk(int kib) {
    char options[40];
    snprintf(options, sizeof options, "size=%dk", kib);
    files_make_folder("disk");
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("none", files_path("disk"), "tmpfs", 0, options) == 0)
        return true;
    return false;
}

static void unmount_disk(void) {
    cr_expect_eq(umount2(files_path("disk"), MNT_DETACH), 0);
}

#define NEED_DISK(kib) \
    if (!mount_disk(kib)) cr_skip("no small file system can be mounted here: %s", strerror(errno))

static off_t size_of(const char *name) {
    struct stat st;
    cr_assert_eq(stat(files_path(name), &st), 0, "%s is not there", name);
    return st.st_size;
}

/* ---- saves ------------------------------------------------------------------------------------------------- */

Test(save_faults, a_save_that_fails_in_between_costs_only_that_save) {
    NEED_DISK(4096);
    good("--steps 9 --export %s/whole.st");
    good("--steps 3 --save %s/s --save-every 3 --keep 1");
    off_t state = size_of("s/state-00000001-step-3.safetensors");
    unmount_disk();
    char options[40];
    snprintf(options, sizeof options, "size=%ldk", (long)(state * 3 / 2 / 1024)); /* room for a state, not for two */
    cr_assert_eq(mount("none", files_path("disk"), "tmpfs", 0, options), 0);
    shell("cp -r %s/s %s/disk/s");
    outcome o = run("--steps 9 --save %s/disk/s --save-every 3 --keep 1 --resume latest --export %s/end.st");
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.err);
    EXPECT_MATCH(o.err, "step 6: saving the training state: .*step-6.*: No space left on device; the training goes on");
    EXPECT_MATCH(o.err, "train_densenet: saving the training state: .*step-9.*No space left on device\n$");
    cr_expect_eq(count_text(o.err, "\n"), 2, "%s", o.err);
    cr_expect_eq(count("disk/s", ".tmp"), 0, "half a state is left");
    cr_expect_eq(count("disk/s", "step-3"), 1);
    good("--steps 9 --resume %s/disk/s --export %s/resumed.st");
    expect_same("whole.st", "resumed.st");
    /* Folder works again after space was made. */
    cr_assert_eq(mount("none", files_path("disk"), NULL, MS_REMOUNT, "size=64m"), 0);
    good("--steps 9 --save %s/disk/s --save-every 3 --keep 1 --resume latest --export %s/again.st");
    expect_same("whole.st", "again.st");
    cr_expect_eq(count("disk/s", "step-9"), 1);
    cr_expect_eq(count("disk/s", "state-"), 1);
    unmount_disk();
}

Test(save_faults, a_file_that_may_not_grow_is_told_and_the_last_state_is_good) {
    good("--steps 6 --export %s/whole.st");
    good("--steps 3 --save %s/s");
    file_limit = (rlim_t)size_of("s/state-00000001-step-3.safetensors") / 2;
    outcome o = run_as((how){.prepare = limit_files}, "--steps 6 --save %s/s --resume latest");
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.err);
    expect_one_sentence(&o,
                        "saving the training state: .*step-6.*: [0-9]+ more bytes cannot be written: File too large");
    cr_expect_eq(count("s", "state-"), 1, "half a state is left");
    good("--steps 6 --save %s/s --resume latest --export %s/resumed.st");
    expect_same("whole.st", "resumed.st");
}

static void read_only(void) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(126);
}

Test(save_faults, places_that_cannot_be_written_are_named_before_the_first_step) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--steps 500000 --save %s/closed", "--save .*/closed: nothing can be written there: Permission denied"},
        {"--steps 500000 --save %s/closed/s", "--save: the folder '.*/closed/s' cannot be made: Permission denied"},
        {"--steps 500000 --export %s/closed/w.st", "--export .*/closed/w.st: cannot be written: Permission denied"},
        {"--steps 500000 --export %s/none/w.st", "--export .*/none/w.st: cannot be written: No such file"},
        {"--steps 500000 --export %s/closed", "--export .*/closed: is a folder, not a file"},
        {"--steps 500000 --export %s/own.st", "--export .*/own.st: cannot be written: Permission denied"},
        {"--steps 500000 --memory-plot %s/closed/m.svg",
         "--memory-plot .*/m.svg: cannot be written: Permission denied"},
        {"--steps 500000 --log %s/closed/l.jsonl", "the log '.*/closed/l.jsonl' cannot be opened: Permission denied"},
        {"--steps 500000 --report %s/closed/r.json", "--report .*/closed/r.json: cannot be written: Permission denied"},
    };
    files_make_folder("closed");
    files_write("own.st", "", 0);
    cr_assert_eq(chmod(files_path("own.st"), 0444), 0);
    cr_assert_eq(chmod(files_root, 0755), 0);
    cr_assert_eq(chmod(files_path("closed"), 0555), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (program_lacks(cases[i].flags)) continue;
        outcome o = run_as((how){.prepare = read_only}, cases[i].flags);
        if (o.status == 126 || o.status == 127) cr_skip("this program cannot be run by another user");
        cr_expect_eq(o.status, 1, "%s: exit status %d: %s", cases[i].flags, o.status, o.err);
        expect_one_sentence(&o, cases[i].sentence);
    }
}

/* A container's single file is one: --export replaces it at the end of a training, and could not. */
Test(save_faults, mount_points_are_refused_before_the_first_step) {
    static const char *const outputs[] = {"export", "report", "memory-plot", "trace", "track", "track-lines"};
    NEED_DISK(4096);
    files_write("disk/file", "", 0);
    cr_assert_eq(mount(files_path("disk/file"), files_path("disk/file"), NULL, MS_BIND, NULL), 0);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char flags[100], sentence[100];
        snprintf(flags, sizeof flags, "--steps 500000 --%s %%s/disk/file", outputs[i]);
        snprintf(sentence, sizeof sentence, "--%s .*/disk/file: is a mount point, .* mount its folder", outputs[i]);
        if (program_lacks(flags)) continue;
        outcome o = run(flags);
        cr_expect_eq(o.status, 1, "%s: exit status %d: %s", flags, o.status, o.err);
        expect_one_sentence(&o, sentence);
    }
    good("--steps 2 --log %s/disk/file"); /* written in place */
    cr_expect_eq(count("disk", ".tmp"), 0);
    cr_expect_gt(size_of("disk/file"), 0);
    cr_assert_eq(umount2(files_path("disk/file"), MNT_DETACH), 0);
    good("--steps 2 --export %s/disk/file");
    unmount_disk();
}

Test(save_faults, a_disk_without_room_for_the_weights_is_noted_before_the_first_step) {
    static const struct {
        int kib;
        const char *output, *expression;
    } cases[] = {
        {8, "--export %s/disk/w.st",
         "note: --export .*/disk/w.st: the weights need [0-9.]+ KiB \\([0-9]+ bytes\\), and the "
         "disk has 8.00 KiB \\(8192 bytes\\) free; make room.*epoch  1/1"},
        {8, "--save %s/disk", "note: --save .*/disk: the weights need .* and the disk has 8.00 KiB"},
        {4096, "--export %s/disk/w.st", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char flags[300];
        NEED_DISK(cases[i].kib);
        snprintf(flags, sizeof flags, "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 2 --eval-every 0 %s",
                 cases[i].output);
        char arguments[1024];
        snprintf(arguments, sizeof arguments, flags, files_root);
        outcome o = program_run("train_densenet", arguments);
        if (cases[i].expression != NULL)
            EXPECT_MATCH(o.out, cases[i].expression);
        else
            cr_expect_null(strstr(o.out, "note:"), "%s", o.out);
        unmount_disk();
        cr_assert_eq(rmdir(files_path("disk")), 0);
    }
}

Test(save_faults, a_folder_that_turns_read_only_under_a_run) {
    NEED_DISK(65536);
    good("--steps 6 --export %s/whole.st");
    good("--steps 3 --save %s/disk/s");
    cr_assert_eq(mount("none", files_path("disk"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    outcome o = run("--steps 6 --save %s/disk/s --resume latest");
    cr_expect_eq(o.status, 1);
    expect_one_sentence(&o, "--save .*/disk/s: nothing can be written there: Read-only file system");
    good("--steps 6 --resume %s/disk/s --export %s/resumed.st"); /* reading is allowed */
    expect_same("whole.st", "resumed.st");
    unmount_disk();
}

static bool remove_states(void) {
    if (count("p/s", "step-2.") != 1) return false;
    shell("mv %s/p/s %s/gone"); /* at once, whatever is being written */
    return true;
}

static bool remove_parent(void) {
    if (count("p/s", "step-100.") != 1 || count("p/s", ".tmp") != 0) return false;
    shell("mv %s/p %s/elsewhere");
    return true;
}

Test(save_faults, a_folder_that_vanishes) {
    files_make_folder("p");
    good("--schedule constant --steps 200 --export %s/whole.st");
    /* The removed folder is made anew; at most the save that meets the removal is lost. */
    outcome o =
        run_as((how){.watch = remove_states}, "--schedule constant --steps 200 --save %s/p/s --save-every 1 --keep 0");
    cr_expect_eq(o.status, 0, "%d: %s", o.status, o.err);
    cr_expect_leq(count_text(o.err, "\n"), 2, "%s", o.err);
    cr_expect_eq(count("p/s", "step-200."), 1);
    cr_expect_leq(count("p/s", "state-"), 198);
    good("--schedule constant --steps 200 --save %s/p/s --resume latest --export %s/resumed.st");
    expect_same("whole.st", "resumed.st");
    shell("rm -rf %s/p/s");
    /* The parent is gone: each save says so, the last one ends the run. 2,000 steps outlast a slow watch. */
    o = run_as((how){.watch = remove_parent},
               "--schedule constant --steps 2000 --save %s/p/s --save-every 100 --keep 0");
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.err);
    EXPECT_MATCH(o.err, "/p/s' cannot be made: No such file or directory; the training goes on");
    EXPECT_MATCH(o.err, "/p/s' cannot be made: No such file or directory\n$");
    good("--schedule constant --steps 200 --resume %s/elsewhere/s --export %s/resumed.st");
    expect_same("whole.st", "resumed.st");
}

Test(save_faults, a_signal_saves_before_the_run_leaves) {
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        char flags[1024];
        /* Evaluations take half of the time, so some signals fall into an evaluation. */
        snprintf(flags, sizeof flags,
                 "--depth 10 --growth 4 --image-size 8 --batch-size 8 --epochs 50 --schedule constant "
                 "--save %s/s --save-every 1000000 --eval-every 1",
                 files_root);
        outcome o = program_run_as((how){.signal_after = "epoch  1/", .signal = signals[i]}, "train_densenet", flags);
        cr_expect_eq(o.status, 128 + signals[i], "%d: %s", o.status, o.err);
        cr_expect_eq(count("s", "state-"), 1, "%d states", count("s", "state-"));
        shell("cd %s/s && ls | sed 's/.*step-//; s/[.].*//' >../step");
        FILE *f = fopen(files_path("step"), "r");
        int step = 0;
        cr_assert(f != NULL && fscanf(f, "%d", &step) == 1);
        fclose(f);
        char last[256];
        snprintf(last, sizeof last, "--schedule constant --steps %d --export %%s/whole.st", step + 5);
        good(last);
        snprintf(last, sizeof last, "--schedule constant --steps %d --resume %%s/s --export %%s/resumed.st", step + 5);
        good(last);
        expect_same("whole.st", "resumed.st");
        shell("rm -r %s/s");
    }
}

/* ---- logs and reports -------------------------------------------------------------------------------------- */

Test(save_faults, a_full_disk_under_the_logs_stops_no_training) {
    NEED_DISK(8); /* two pages */
    good("--steps 60 --export %s/whole.st");
    outcome o = run("--steps 60 --log %s/disk/l.jsonl --save %s/s --save-every 50 --export %s/end.st");
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.err);
    EXPECT_MATCH(o.err, "step [0-9]+: the log '.*l.jsonl' cannot be written: No space left.*; the training goes on");
    EXPECT_MATCH(o.err, "train_densenet: the logs are incomplete: [0-9]+ of their writes failed\n$");
    cr_expect_eq(count_text(o.err, "\n"), 2, "%s", o.err);
    expect_same("whole.st", "end.st");
    shell("tail -n 1 %s/disk/l.jsonl | grep -q '}$'"); /* whole lines only */
    cr_assert_eq(mount("none", files_path("disk"), NULL, MS_REMOUNT, "size=1m"), 0);
    shell("rm %s/s/*step-60*"); /* the file goes on after what it has */
    good("--steps 60 --save %s/s --resume latest --log %s/disk/l.jsonl --export %s/resumed.st");
    shell("tail -n 3 %s/disk/l.jsonl | grep -q '\"step\":60,'");
    expect_same("whole.st", "resumed.st");
    unmount_disk();
}

static void full_output(void) {
    if (freopen("/dev/full", "w", stdout) == NULL) _exit(125);
}

Test(save_faults, reports_and_output_that_cannot_be_written) {
    static const char *const flags[] = {"--steps 2 --report /dev/full", "--steps 2 --trace /dev/full",
                                        "--steps 2 --track /dev/full"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (program_lacks(flags[i])) continue;
        outcome o = run(flags[i]);
        cr_expect_eq(o.status, 1, "%s: %d: %s", flags[i], o.status, o.err);
        expect_one_sentence(&o, "/dev/full.*No space left on device");
    }
    good("--steps 2 --export %s/w.st");
    uint8_t rgb[3 * 16 * 16], *bytes;
    picture_fill(rgb, 16, 16);
    size_t n = png_bytes(PNG_KIND_RGB, rgb, 16, 16, &bytes);
    files_write("a.png", bytes, n);
    free(bytes);
    static const char *const prints[] = {"--weights %s/w.st --predict %s/a.png", "--steps 2", "--help",
                                         "--plan --steps 1"};
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++) {
        outcome o = run_as((how){.prepare = full_output}, prints[i]);
        cr_expect_eq(o.status, 1, "%s: %d: %s", prints[i], o.status, o.err);
        expect_one_sentence(&o, "standard output cannot be written");
    }
}

/* ---- data -------------------------------------------------------------------------------------------------- */

#define DATA "--dataset folder --data %%s/d --schedule constant "

enum { IMAGES = 64 };

static void image_folder(void) {
    static const char *const folders[] = {"d", "d/train", "d/train/a", "d/train/b", "d/test", "d/test/a", "d/test/b"};
    uint8_t rgb[3 * 16 * 16], *bytes;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) files_make_folder(folders[i]);
    for (int i = 0; i < IMAGES + 2; i++) {
        char name[64];
        picture_fill(rgb, 16, 16);
        for (int k = 0; k < 3 * 16 * 16; k++) rgb[k] = (uint8_t)(rgb[k] + 5 * i);
        size_t n = png_bytes(PNG_KIND_RGB, rgb, 16, 16, &bytes);
        snprintf(name, sizeof name, "d/%s/%s/%02d.png", i < IMAGES ? "train" : "test", i % 2 ? "a" : "b", i);
        files_write(name, bytes, n);
        free(bytes);
    }
}

static bool remove_images(void) {
    if (count("s", "step-2.") != 1) return false;
    shell("mv %s/d/train %s/away");
    return true;
}

static bool shrink_images(void) {
    if (count("s", "step-2.") != 1) return false;
    shell("cp -r %s/d/train %s/away");
    shell("truncate -s 60 %s/d/train/*/*.png");
    return true;
}

Test(save_faults, images_that_vanish_or_shrink_end_the_run_with_their_name) {
    static const struct {
        bool (*fault)(void);
        const char *sentence;
    } cases[] = {{remove_images, "d/train/[ab]/[0-9]+.png: cannot be (opened|read): No such file or directory"},
                 {shrink_images, "d/train/[ab]/[0-9]+.png: (broken PNG of 60|shrank from at least .* to 60) bytes"}};
    image_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int workers = 0; workers <= 2; workers += 2) {
            char flags[256];
            snprintf(flags, sizeof flags, DATA "--steps 100000 --save %%s/s --save-every 1 --keep 0 --workers %d",
                     workers);
            outcome o = run_as((how){.watch = cases[i].fault}, flags);
            cr_expect_eq(o.status, 1, "%d: %s", o.status, o.err);
            EXPECT_MATCH(o.err, cases[i].sentence);
            EXPECT_MATCH(o.err, "train_densenet: [^;]*\n$");
            cr_expect_eq(count("s", ".tmp"), 0);
            int saved = count("s", "state-"); /* each step is */
            shell("rm -rf %s/d/train; mv %s/away %s/d/train");
            snprintf(flags, sizeof flags, DATA "--steps %d --export %%s/whole.st", saved + 9);
            good(flags);
            snprintf(flags, sizeof flags, DATA "--steps %d --resume %%s/s --export %%s/resumed.st", saved + 9);
            good(flags);
            expect_same("whole.st", "resumed.st");
            shell("rm -r %s/s");
        }
}
