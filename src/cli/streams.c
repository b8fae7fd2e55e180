/* streams.c - what a program may have inherited: closed standard streams, a limit on the size of files. */
#include "cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* A file opened next takes the lowest free number: with standard output closed, a log would get the progress lines. */
static void open_closed(int number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) return;
    int fd = open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (fd < 0) fd = open("/", O_RDONLY | O_DIRECTORY); /* no /dev here: the number is taken, and writes fail */
    if (fd >= 0 && fd != number) close(fd);
}

void fri_streams_begin(void) {
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++) open_closed(number);
    signal(SIGXFSZ, SIG_IGN); /* write says EFBIG, and the run says which file is too large */
}
