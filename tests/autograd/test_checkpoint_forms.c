/* test_checkpoint_forms.c - dropout and batch norm under every form of checkpoint: 20 steps of training on four small
 * networks, with losses, gradients, parameters, running statistics and their counters of every step equal to the plain
 * run's, byte for byte. (In PyTorch the statistics are written twice.) */
#include <criterion/criterion.h>
#include <string.h>

#include "support/golden.h"
#include "support/small_train.h"

enum { STEPS = 20 };

static void expect_equal(const small_bytes *plain, const small_bytes *cut, const char *what, const small_setting *c) {
    cr_assert_eq(plain->n, cut->n);
    if (memcmp(plain->data, cut->data, plain->n) == 0) return;
    size_t at = 0;
    while (plain->data[at] == cut->data[at]) at++;
    cr_expect(false, "%s, %s: %s differ, first in step %zu", small_net_names[c->net], small_form_names[c->form], what,
              at / (plain->n / STEPS));
}

static void all_forms(small_net net) {
    small_setting c = {.net = net, .steps = STEPS, .switches = fr_switches_all_off()};
    small_record plain, cut;
    small_train(&c, test_device(), &plain);
    cr_expect_eq(plain.graph.recomputed_segments, 0u);
    cr_expect_lt(plain.loss[STEPS - 1], plain.loss[0], "%s does not train", small_net_names[net]);
    for (int lossless = 0; lossless < 2; lossless++)
        for (int form = SMALL_TWO; form < SMALL_FORMS; form++) {
            if (lossless && form != SMALL_EACH && form != SMALL_NESTED) continue;
            c.form = (small_form)form;
            c.switches = lossless ? fr_switches_default() : fr_switches_all_off();
            c.switches.rebuild = lossless;
            small_train(&c, test_device(), &cut);
            expect_equal(&plain.state, &cut.state, "losses, parameters and statistics", &c);
            expect_equal(&plain.gradients, &cut.gradients, "gradients", &c);
            cr_expect_geq(cut.graph.recomputed_segments, (uint64_t)STEPS, "%s, %s: nothing ran again",
                          small_net_names[net], small_form_names[form]);
            small_record_free(&cut);
        }
    small_record_free(&plain);
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

Test(checkpoint_forms, vgg, .timeout = 280) {
    all_forms(SMALL_VGG);
}

Test(checkpoint_forms, resnet, .timeout = 280) {
    all_forms(SMALL_RESNET);
}

Test(checkpoint_forms, densenet, .timeout = 280) {
    all_forms(SMALL_DENSENET);
}

Test(checkpoint_forms, unet, .timeout = 280) {
    all_forms(SMALL_UNET);
}
