/* environment.c - the environment on which a plan's numbers depend; compared with that of a saved number.
 *
 * The number of threads, the instructions and the libraries' versions decide which kernels run and how much scratch
 * they ask for; FRUGAL_NO_POOL decides what the allocator does. Numbers from another environment
 * describe another run and are not compared. */
#include "plan/plan.h"

#include "base/env.h"
#include "base/status.h"

#include <string.h>

static void describe(fr_device device, char *buf, size_t bytes) {
    char bits[160], threads[32] = "";
    fri_device_describe_bits(device, FR_F32, bits, sizeof bits);
    if (device == FR_CPU) snprintf(threads, sizeof threads, ", %d threads", fr_threads_get());
    snprintf(buf, bytes, "%s%s%s%s%s", fr_device_name(device), threads, bits[0] ? ", " : "", bits,
             fri_env_get()->no_pool ? ", no pool" : "");
}

void fri_plan_environment(fr_plan *p) {
    describe(p->target, p->environment, sizeof p->environment);
}

fr_status fri_plan_same_environment(const fr_plan *p, fr_device device) {
    char now[sizeof p->environment];
    describe(device, now, sizeof now);
    if (strcmp(p->environment, now) == 0) return FR_OK;
    return fr_fail(FR_EUSAGE, "plan: made for '%s', but this run has '%s'; plan again", p->environment, now);
}
