/* trainer.c - a training program outside of the tree, with the trainers' flags. */
#include <frugal/train.h>
#include <stdio.h>

static fr_status model(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "mine");
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->data.image_size, o->data.image_size, 3});
    for (int i = 0; i < 3; i++)
        x = fr_net_relu(n, NULL, fr_net_conv2d(n, NULL, x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1);
    x = fr_net_linear(n, NULL, x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

int main(int argc, char **argv) {
    fr_train_program program = {.name = "mine",
                                .summary = "train a network of one's own",
                                .description = "Trains on noise.",
                                .examples = (const char *const[]){NULL},
                                .defaults = fr_train_opts_default(),
                                .sgd_lr = 0.05,
                                .model = model};
    program.defaults.data.dataset = FR_TRAIN_SYNTHETIC;
    program.defaults.data.image_size = 8;
    return fr_train_main(&program, argc, argv);
}
