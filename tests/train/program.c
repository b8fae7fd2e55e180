/* program.c - see program.h. */
#define _GNU_SOURCE
#include "program.h"

#include <frugal/addon.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

const char *program_path(const char *name) {
    static char path[1024];
    const char *folder = getenv("FRUGAL_TRAINERS");
    cr_assert_not_null(folder, "FRUGAL_TRAINERS names the folder of the trainers");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

bool matches(const char *text, const char *expression) {
    regex_t r;
    cr_assert_eq(regcomp(&r, expression, REG_EXTENDED | REG_NOSUB), 0, "not an expression: %s", expression);
    bool found = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return found;
}

static void child(how h, const char *path, char **argv, int out, int err) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    const int stops[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for (int i = 0; i < 4; i++) signal(stops[i], SIG_DFL); /* the calling process may ignore signals, as under nohup */
    if (h.prepare != NULL) h.prepare();
    execv(path, argv);
    _exit(127);
}

/* A pair of ends: bytes written by the child to ends[1] are read from ends[0]. */
static void open_ends(bool terminal, int ends[2]) {
    if (!terminal) {
        cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
        return;
    }
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool made = ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0;
    ends[1] = made ? open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (ends[1] < 0) cr_skip("this system gives no terminal: %s", strerror(errno));
    ioctl(ends[1], TIOCSWINSZ, &size);
}

/* Appends the waiting bytes; false at the end. A terminal with its far side closed says EIO. */
static bool take(int from, char *to, size_t capacity) {
    size_t at = strlen(to);
    char lost[4096];
    ssize_t n = at + 1 < capacity ? read(from, to + at, capacity - at - 1) : read(from, lost, sizeof lost);
    if (n <= 0) return n < 0 && errno == EINTR;
    if (at + 1 < capacity) to[at + (size_t)n] = '\0';
    return true;
}

const char *program_device(void) {
    const char *d = getenv("FRUGAL_TEST_DEVICE");
    return d != NULL && strcmp(d, "stand-in") != 0 ? d : "cpu"; /* a new process has no stand-in */
}

outcome program_run_as(how h, const char *name, const char *arguments) {
    enum { WORDS = 64 };
    outcome o = {0};
    char words[4096], *argv[WORDS + 2] = {0};
    int out[2], err[2], n = 1, status = 0;
    const char *path = program_path(name);
    bool signalled = false;
    snprintf(words, sizeof words, "%s", arguments);
    char own[64];
    snprintf(own, sizeof own, "%s", name);
    argv[0] = own;
    for (char *w = strtok(words, " "); w != NULL && n < WORDS; w = strtok(NULL, " ")) argv[n++] = w;
    char device[32], flag[] = "--device";
    snprintf(device, sizeof device, "%s", program_device());
    if (strcmp(device, "cpu") != 0 && strstr(arguments, flag) == NULL && n + 2 <= WORDS) {
        argv[n++] = flag;
        argv[n++] = device;
    }
    open_ends(h.on_terminal, out);
    cr_assert_eq(pipe2(err, O_CLOEXEC), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) child(h, path, argv, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    struct pollfd ends[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends, 2, h.watch != NULL ? 2 : -1) < 0 && errno != EINTR) break;
        if (h.watch != NULL && h.watch()) h.watch = NULL;
        if (ends[0].fd >= 0 && ends[0].revents != 0 && !take(out[0], o.out, sizeof o.out)) ends[0].fd = -1;
        if (ends[1].fd >= 0 && ends[1].revents != 0 && !take(err[0], o.err, sizeof o.err)) ends[1].fd = -1;
        if (h.signal_after != NULL && !signalled && strstr(o.out, h.signal_after) != NULL) {
            signalled = true;
            kill(pid, h.signal != 0 ? h.signal : SIGINT);
        }
    }
    close(out[0]);
    close(err[0]);
    struct rusage use;
    wait4(pid, &status, 0, &use);
    o.resident = use.ru_maxrss;
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return o;
}

outcome program_run(const char *name, const char *arguments) {
    return program_run_as((how){0}, name, arguments);
}

bool program_lacks(const char *arguments) {
    static const struct {
        const char *flag, *addon;
    } rows[] = {{"--trace", "views"},
                {"--track", "views"},
                {"--track-lines", "views"},
                {"--memory-plot", "views"},
                {"--augment strong", "augment"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(arguments, rows[i].flag) != NULL && fr_addon_find(rows[i].addon) == NULL) return true;
    return false;
}
