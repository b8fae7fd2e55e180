/* test_atomic_file.c - a written file appears complete or not at all and keeps its mode; special files are written
 * to, never replaced; only regular files are read; text from files is printable.
 *
 * Linked with --wrap: calls of fsync and rename are recorded in order. */
#include "io/support.h"

#include "base/atomic_file.h"
#include "base/status.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(atomic_file, .init = make_folder, .fini = remove_folder);

static char calls[64];             /* 's': fsync of a file, 'r': rename, 'f': fsync of a folder */
static int fail_sync, fail_rename; /* fail_rename: the errno of the next rename */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_fsync(int fd) {
    struct stat st;
    strcat(calls, fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? "f" : "s");
    if (fail_sync == 0) return __real_fsync(fd);
    errno = EIO;
    return -1;
}

int __wrap_rename(const char *from, const char *to) {
    strcat(calls, "r");
    errno = fail_rename;
    return fail_rename == 0 ? __real_rename(from, to) : -1;
}

static fr_status write_text(const char *path, const char *text) {
    fr_atomic_file f;
    fr_status s = FR_OK;
    FR_TRY(s, fr_atomic_open(path, 0666, &f));
    FR_TRY(s, fr_atomic_put(&f, text, strlen(text)));
    FR_TRY(s, fr_atomic_commit(&f));
done:
    fr_atomic_abandon(&f);
    return s;
}

static void expect_text(const char *path, const char *text) {
    size_t n = 0;
    unsigned char *bytes = read_bytes(path, &n);
    cr_expect(n == strlen(text) && memcmp(bytes, text, n) == 0, "%s holds %zu bytes, not '%s'", path, n, text);
    free(bytes);
}

static unsigned mode_of(const char *path) {
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st.st_mode & 07777;
}

Test(atomic_file, data_then_name_then_folder_reach_the_disk) {
    OK(write_text(in_folder("a"), "one"));
    cr_expect_str_eq(calls, "srf");
    expect_text(in_folder("a"), "one");
    cr_expect_eq(files_in(folder), 1, "a temporary file is left");
    fail_sync = 1;
    cr_expect_eq(write_text(in_folder("a"), "two"), FR_EIO);
    EXPECT_SENTENCE("cannot be synced");
    expect_text(in_folder("a"), "one");
    cr_expect_eq(files_in(folder), 1, "a temporary file is left");
}

Test(atomic_file, an_abandoned_or_failed_file_leaves_the_old_one) {
    fr_atomic_file f;
    OK(write_text(in_folder("a"), "one"));
    OK(fr_atomic_open(in_folder("a"), 0666, &f));
    OK(fr_atomic_put(&f, "two", 3));
    fr_atomic_abandon(&f);
    OK(fr_atomic_open(in_folder("a"), 0666, &f));
    OK(fr_atomic_stream(&f));
    limit_files(10);
    for (int i = 0; i < 5000; i++) fputs("two", f.stream);
    cr_expect_eq(fr_atomic_commit(&f), FR_EIO);
    limit_files((size_t)RLIM_INFINITY);
    EXPECT_SENTENCE("cannot be written");
    expect_text(in_folder("a"), "one");
    cr_expect_eq(files_in(folder), 1, "a temporary file is left");
}

Test(atomic_file, a_complete_file_that_gets_no_name_stays_and_is_named) {
    char name[600], said[700];
    OK(write_text(in_folder("a"), "one"));
    fail_rename = EBUSY;
    cr_expect_eq(write_text(in_folder("a"), "two"), FR_EIO);
    snprintf(name, sizeof name, "%s.%ld-0.tmp", in_folder("a"), (long)getpid());
    snprintf(said, sizeof said, "Device or resource busy; it is complete as '%s'", name);
    EXPECT_SENTENCE(said);
    expect_text(name, "two");
    expect_text(in_folder("a"), "one");
    cr_assert_eq(unlink(name), 0);
    /* A temporary file that was removed is not named. */
    fr_atomic_file f;
    cr_assert_eq(mkdir(in_folder("sub"), 0777), 0);
    OK(fr_atomic_open(in_folder("sub/a"), 0666, &f));
    cr_assert_eq(unlink(f.temporary), 0);
    fail_rename = ENOENT;
    cr_expect_eq(fr_atomic_commit(&f), FR_EIO);
    cr_expect_null(strstr(fr_last_error(), "complete"), "%s", fr_last_error());
}

/* Sizes around the buffer of a stream: a loss before the last flush leaves no errno. */
Test(atomic_file, a_loss_on_the_way_has_its_reason) {
    for (int n = 4090; n < 4110; n++) {
        fr_atomic_file f;
        OK(fr_atomic_open("/dev/full", 0666, &f));
        OK(fr_atomic_stream(&f));
        for (int i = 0; i < n; i++) fputs("x", f.stream);
        cr_expect_eq(fr_atomic_commit(&f), FR_EIO);
        EXPECT_SENTENCE("No space left on device");
    }
}

Test(atomic_file, a_file_keeps_its_mode_and_a_new_one_has_the_umask) {
    umask(027);
    OK(write_text(in_folder("new"), "one"));
    cr_expect_eq(mode_of(in_folder("new")), 0640);
    cr_assert_eq(chmod(in_folder("new"), 0604), 0);
    OK(write_text(in_folder("new"), "two"));
    cr_expect_eq(mode_of(in_folder("new")), 0604);
    expect_text(in_folder("new"), "two");
}

Test(atomic_file, links_are_followed) {
    struct stat st;
    cr_assert_eq(mkdir(in_folder("sub"), 0777), 0);
    OK(write_text(in_folder("sub/real"), "old"));
    cr_assert_eq(symlink("sub/real", in_folder("link")), 0);
    cr_assert_eq(symlink("link", in_folder("link2")), 0);
    OK(write_text(in_folder("link2"), "new"));
    expect_text(in_folder("sub/real"), "new");
    cr_expect(lstat(in_folder("link2"), &st) == 0 && S_ISLNK(st.st_mode), "the link was replaced");
    /* Links to a missing file, to themselves, and into a missing folder. */
    cr_assert_eq(symlink("sub/later", in_folder("dangling")), 0);
    OK(write_text(in_folder("dangling"), "made"));
    expect_text(in_folder("sub/later"), "made");
    cr_assert_eq(symlink("circle", in_folder("circle")), 0);
    cr_expect_eq(write_text(in_folder("circle"), "x"), FR_EIO);
    cr_assert_eq(symlink("none/file", in_folder("nowhere")), 0);
    cr_expect_eq(write_text(in_folder("nowhere"), "x"), FR_EIO);
    EXPECT_SENTENCE("No such file");
}

Test(atomic_file, a_planted_temporary_name_is_not_followed) {
    char name[600];
    write_bytes(in_folder("victim"), "safe", 4);
    snprintf(name, sizeof name, "%s.%ld-0.tmp", in_folder("a"), (long)getpid());
    cr_assert_eq(symlink("victim", name), 0);
    OK(write_text(in_folder("a"), "one"));
    expect_text(in_folder("victim"), "safe");
    expect_text(in_folder("a"), "one");
}

Test(atomic_file, fifos_are_written_to_and_waited_for_by_nobody) {
    char got[16] = "";
    struct stat st;
    const char *path = in_folder("fifo");
    cr_assert_eq(mkfifo(path, 0666), 0);
    cr_expect_eq(write_text(path, "x"), FR_EIO);
    EXPECT_SENTENCE("nobody reads");
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    OK(write_text(path, "hello"));
    cr_expect_eq(read(reader, got, sizeof got), 5);
    cr_expect_str_eq(got, "hello");
    cr_expect(stat(path, &st) == 0 && S_ISFIFO(st.st_mode), "the FIFO was replaced");
    cr_expect_eq(strchr(calls, 'r'), NULL);
    close(reader);
}

Test(atomic_file, devices_and_sockets_stay) {
    struct stat st;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", in_folder("socket"));
    cr_assert_eq(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    cr_expect_eq(write_text(in_folder("socket"), "x"), FR_EIO);
    cr_expect(stat(in_folder("socket"), &st) == 0 && S_ISSOCK(st.st_mode));
    close(fd);
    if (mknod(in_folder("null"), S_IFCHR | 0666, makedev(1, 3)) != 0) cr_skip("this user cannot make device nodes");
    OK(write_text(in_folder("null"), "x"));
    cr_expect(stat(in_folder("null"), &st) == 0 && S_ISCHR(st.st_mode), "the device was replaced");
}

Test(atomic_file, standard_output_is_written_to_where_it_stands) {
    int keep = dup(STDOUT_FILENO), fd = open(in_folder("out"), O_WRONLY | O_CREAT, 0666);
    dup2(fd, STDOUT_FILENO);
    (void)!write(STDOUT_FILENO, "first ", 6);
    fr_status s = write_text(in_folder("out"), "second ");
    (void)!write(STDOUT_FILENO, "third", 5);
    dup2(keep, STDOUT_FILENO);
    OK(s);
    expect_text(in_folder("out"), "first second third");
}

Test(atomic_file, what_cannot_be_written_is_told) {
    fr_atomic_file f;
    cr_expect_eq(fr_atomic_open(folder, 0666, &f), FR_EIO);
    EXPECT_SENTENCE("is a folder, not a file");
    cr_expect_eq(fr_atomic_open(in_folder("none/a"), 0666, &f), FR_EIO);
    EXPECT_SENTENCE("cannot be written: No such file");
    cr_expect_eq(f.fd, -1);
}

Test(atomic_file, targets_of_one_file_are_one) {
    char a[FRI_TARGET_BYTES], b[FRI_TARGET_BYTES];
    cr_assert_eq(mkdir(in_folder("sub"), 0777), 0);
    cr_assert_eq(symlink("sub", in_folder("other")), 0);
    cr_assert_eq(symlink("../new", in_folder("sub/link")), 0);
    cr_assert(fri_file_target(in_folder("sub/../new"), a) && fri_file_target(in_folder("other/link"), b));
    cr_expect_str_eq(a, b);
    cr_expect_not(fri_file_target(in_folder("none/new"), a));
}

Test(atomic_file, only_regular_files_are_read) {
    uint64_t bytes = 0;
    char to[8] = "";
    int fd = -1;
    write_bytes(in_folder("a"), "12345", 5);
    OK(fr_file_open(in_folder("a"), &fd, &bytes));
    cr_expect_eq(bytes, 5);
    OK(fr_file_read(fd, to, 3, 2));
    cr_expect_str_eq(to, "345");
    cr_expect_eq(fr_file_read(fd, to, 4, 2), FR_EIO);
    EXPECT_SENTENCE("shrank from at least 6 to 5 bytes");
    close(fd);
    cr_assert_eq(mkfifo(in_folder("fifo"), 0666), 0);
    const char *const others[] = {in_folder("fifo"), folder, "/dev/zero"};
    for (size_t i = 0; i < COUNT(others); i++) {
        cr_expect_eq(fr_file_open(others[i], &fd, &bytes), FR_EIO, "%s", others[i]);
        EXPECT_SENTENCE("is not a regular file");
    }
    cr_expect_eq(fr_file_open(in_folder("none"), &fd, &bytes), FR_EIO);
    EXPECT_SENTENCE("cannot be opened: No such file");
}

/* ---- text --------------------------------------------------------------------------------------------------- */

Test(text, control_characters_and_bytes_that_are_no_text_are_escaped) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain name.jpg", "plain name.jpg"},
        {"\x1b[31mred\a", "\\x1b[31mred\\x07"},
        {"two\nlines\ttab\x7f", "two\\x0alines\\x09tab\\x7f"},
        {"gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x90\x88", "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x90\x88"},
        {"c1 \xc2\x9b"
         "31m",
         "c1 \\xc2\\x9b31m"},
        {"\xc2\xa0", "\xc2\xa0"},
        {"stray \x9b \xff \xc3", "stray \\x9b \\xff \\xc3"},
        {"overlong \xc0\x8a \xe0\x80\x8a", "overlong \\xc0\\x8a \\xe0\\x80\\x8a"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char out[200];
        cr_expect_str_eq(fr_text_printable(cases[i].in, false, out, sizeof out), cases[i].out, "case %zu: %s", i, out);
        (void)fr_fail(FR_EIO, "file %s: reason", cases[i].in);
        cr_expect(strstr(fr_last_error(), cases[i].out) != NULL, "case %zu: %s", i, fr_last_error());
        (void)fr_fail_prefix(FR_EIO, "%s: ", cases[i].in);
        cr_expect_eq(strchr(fr_last_error(), '\x1b'), NULL);
        cr_expect_eq(strchr(fr_last_error(), '\n'), NULL);
    }
    (void)fri_fail_report(FR_ENOMEM, "first\nsecond \x1b");
    (void)fr_fail_prefix(FR_ENOMEM, "layer: ");
    cr_expect_str_eq(fr_last_error(), "layer: first\nsecond \\x1b");
}

Test(text, a_long_name_leaves_its_ends_and_the_reason) {
    char name[5001], out[64];
    memset(name, 'a', sizeof name - 1);
    name[0] = 'b';
    name[sizeof name - 1] = '\0';
    (void)fr_fail(FR_EIO, "--data %s: cannot be opened: File name too long", name);
    cr_expect_eq(strncmp(fr_last_error(), "--data ba", 9), 0);
    EXPECT_SENTENCE("a...a");
    EXPECT_SENTENCE("a: cannot be opened: File name too long");
    (void)fr_fail(FR_EIO, "cannot be opened: File name too long");
    (void)fr_fail_prefix(FR_EIO, "loading '%s': ", name);
    EXPECT_SENTENCE("a': cannot be opened: File name too long");
    cr_expect_str_eq(fr_text_printable("0123456789abcdefghijklmnopqrstuvwxyz", false, out, 16), "012345...uvwxyz");
    cr_expect_str_eq(fr_text_printable("0123456789abcde", false, out, 16), "0123456789abcde");
    /* No escape is cut in two. */
    cr_expect_str_eq(fr_text_printable("\x1b\x1b\x1b\x1b\x1b", false, out, 16), "\\x1b...\\x1b");
}
