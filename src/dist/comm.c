/* comm.c - the public face of backend/comm.h. */
#include "backend/comm.h"

#include "backend/backend.h"
#include "backend/launcher.h"

#include <frugal/dist.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fr_status fr_comm_open(double seconds, fr_comm **out) {
    FRI_NOT_NULL(out);
    if (!(seconds > 0)) return fr_fail(FR_EINVAL, "ranks: a wait of %g s; it must be above 0", seconds);
    return fri_comm_open(seconds, out);
}

fr_status fr_comm_patience(fr_comm *c, double seconds) {
    FRI_NOT_NULL(c);
    if (!(seconds > 0)) return fr_fail(FR_EINVAL, "ranks: a wait of %g s; it must be above 0", seconds);
    fri_comm_patience(c, seconds);
    return FR_OK;
}

fr_status fr_comm_dry(int rank, int size, fr_comm **out) {
    FRI_NOT_NULL(out);
    return fri_comm_dry(rank, size, out);
}

void fr_comm_release(fr_comm **c) {
    if (c != NULL) fri_comm_release(c);
}

int fr_comm_rank(const fr_comm *c) {
    return fri_comm_rank(c);
}

int fr_comm_size(const fr_comm *c) {
    return fri_comm_size(c);
}

const char *fr_comm_engine(const fr_comm *c) {
    return c != NULL ? fri_comm_name(c) : NULL;
}

const char *fr_comm_host(const fr_comm *c, int rank) {
    return c != NULL && rank >= 0 && rank < fri_comm_size(c) ? fri_comm_host(c, rank) : NULL;
}

fr_status fr_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all) {
    FRI_NOT_NULL(c, mine, all);
    return fri_comm_agree(c, mine, bytes, all);
}

/* Rank 0's bytes, all of the same number, in `text` of all. */
static fr_status from_first(fr_comm *c, void *text, size_t bytes) {
    char *all = malloc(bytes * (size_t)fri_comm_size(c));
    fr_status s = all != NULL ? fri_comm_agree(c, text, bytes, all) : fr_fail(FR_ENOMEM, "ranks: out of host memory");
    if (s == FR_OK) memcpy(text, all, bytes);
    free(all);
    return s;
}

fr_status fr_comm_follow_first(fr_comm *c, fr_device device) {
    FRI_NOT_NULL(c);
    const fri_backend *be = fri_backend_get(device);
    char *text = NULL;
    size_t bytes = 0;
    fr_status s = FR_OK;
    if (be == NULL || be->choices == NULL || fri_comm_is_dry(c)) return FR_OK;
    if (fri_comm_rank(c) == 0) FR_TRY(s, be->choices(&text, &bytes));
    FR_TRY(s, from_first(c, &bytes, sizeof bytes));
    if (bytes == 0) goto done;
    if (text == NULL && (text = malloc(bytes)) == NULL) {
        s = fr_fail(FR_ENOMEM, "ranks: out of host memory");
        goto done;
    }
    FR_TRY(s, from_first(c, text, bytes));
    if (fri_comm_rank(c) > 0) s = be->choose(text, bytes);
done:
    free(text);
    return s;
}

void fr_comm_goodbye(fr_comm *c, const char *why, const char **first) {
    if (first != NULL) *first = "";
    if (c != NULL) fri_comm_goodbye(c, why != NULL ? why : "", first);
}

fr_status fr_comm_launched(int *rank, int *size) {
    FRI_NOT_NULL(rank, size);
    fri_launcher l;
    fr_status s = fri_launcher_find(&l);
    *rank = l.rank;
    *size = l.size;
    return s;
}

int fr_comm_threads(int threads) {
    fri_launcher l;
    if (fri_launcher_find(&l) < 0 || threads < sysconf(_SC_NPROCESSORS_ONLN)) return threads;
    return threads > l.local_size ? threads / l.local_size : 1;
}
