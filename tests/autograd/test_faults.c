/* test_faults.c - every third device allocation of a training step (with FRUGAL_FAULTS=all each) fails in turn.
 *
 * The step reports the failure (or does without, where only a code could not be made), nothing leaks, and the step
 * repeated gives the usual bytes. */
#include <criterion/criterion.h>

#include "autograd/nets.h"
#include "support/golden.h"

static void sweep(fr_switches switches, int cuts) {
    int points = 0;
    for (int kind = NET_DENSE; kind <= NET_UNET; kind++) {
        fr_switches_set(switches);
        int failures = net_fault_sweep((net_kind)kind, cuts);
        /* CUDA asks for no workspace for depthwise convolutions. */
        cr_expect_gt(failures * (int)fault_stride(3), test_device() == FR_CPU ? 100 : 80, "only %d points", failures);
        points += failures;
        fr_switches_set(fr_switches_default());
        expect_nothing_left();
    }
    fprintf(stderr, "device faults: %d points tried, 0 leaks, 0 crashes\n", points);
}

Test(faults, default_switches, .timeout = 120) {
    sweep(fr_switches_default(), 0);
}

Test(faults, all_off, .timeout = 120) {
    sweep(fr_switches_all_off(), 0);
}

static fr_switches everything(void) {
    fr_switches s = fr_switches_default();
    s.offload = true;
    return s;
}

Test(faults, rebuild_and_offload, .timeout = 120) {
    sweep(everything(), 0);
}

Test(faults, every_unit_a_checkpoint, .timeout = 120) {
    sweep(fr_switches_default(), CUT_EACH);
}

Test(faults, nested_checkpoints_and_rebuild, .timeout = 120) {
    sweep(everything(), CUT_EACH | CUT_HALVES);
}
