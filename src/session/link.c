/* link.c - --link: what the exchange between ranks adds to a step, by a model.
 *
 * Sums travel bucket by bucket while backward goes on. They are late by the last bucket, or by as much as they take
 * longer than backward. Parameters come back when they have been updated: with --fused-step bucket by bucket, too, in
 * the last round's backward. A message costs a fixed time on top of its bytes. On a CPU the lane's own work, copies and
 * sums, follows the wire's: a piece is added when all of it has come. What it takes from kernels on the same cores is
 * not counted. */
#include "session/fit.h"

#define MESSAGE_SECONDS  20e-6 /* over TCP */
#define DATA_OF_LINK     0.95  /* what the headers of TCP/IP in Ethernet's frames of 1,500 bytes leave */
#define BACKWARD_OF_STEP (2.0 / 3)
/* What `benchmarks/ranks.py BUILD gigabit` prints for a cable without a limit. */
#define WORK_SECONDS_OF_BYTE 2.3e-9

static double larger(double a, double b) {
    return a > b ? a : b;
}

fri_exchange fri_link_predict(const fri_config *c, const fr_share_traffic *t, double step) {
    const fr_train_opts *o = &c->opts;
    const double byte = 8 / (DATA_OF_LINK * o->link * 1e9) + (c->target == FR_CPU ? WORK_SECONDS_OF_BYTE : 0);
    const double messages = MESSAGE_SECONDS * (c->ranks - 1);
    const double rounds = (double)((o->accumulate + c->ranks - 1) / c->ranks),
                 backward = BACKWARD_OF_STEP * step / rounds;
    const double last = (double)t->last * byte + messages;
    const double sums = (double)t->sums * byte + t->exchanges * messages;
    const double values = (double)t->values * byte + t->exchanges * messages;
    const double round = larger(last, sums - backward);
    const double end =
        o->fused_step != FR_TRAIN_FUSED_OFF ? larger(2 * last, sums + values - backward) : round + values;
    return (fri_exchange){.step = step, .seconds = rounds * sums + values, .exposed = (rounds - 1) * round + end};
}
