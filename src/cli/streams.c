/* streams.c - repairs inherited process state: closed standard streams, and SIGXFSZ of a file size limit. */
#include "cli/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Opens /dev/null for a closed standard stream, whose descriptor the next opened file would otherwise get. */
static void open_closed(int number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) return;
    int fd = open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (fd < 0) fd = open("/", O_RDONLY | O_DIRECTORY); /* without /dev: any descriptor to which writes fail */
    if (fd >= 0 && fd != number) close(fd);
}

void fri_streams_begin(void) {
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++) open_closed(number);
    signal(SIGXFSZ, SIG_IGN); /* write then fails with EFBIG, and the error sentence names the file */
}
