/* train_own.c - trains your own network: a small residual network, as a list of layers (net.h), on the digits.
 *
 * A program writes only the list. Plans, budgets, checkpoints, summaries and files work on lists, so every flag of the
 * other trainers works here: train_own plan --memory-budget 1400KiB, train_own --checkpoint-segments sqrt. */
#include <frugal/train.h>
#include <stdio.h>

#if __has_include("digits.h") /* beside the examples; a copy elsewhere names a --dataset */
#include "digits.h"
#else
#define digits_dataset NULL
#endif

enum { STAGES = 3, MAX_DEPTH = 18 };
static int64_t channels = 16; /* --channels, of the first stage */

/* relu(bn2(conv2(relu(bn1(conv1(x))))) + x); where the shape changes, x goes through a 1 x 1 convolution. */
static fr_value block(fr_net *n, fr_value x, int64_t width, int64_t stride) {
    fr_value y = x;
    y = fr_net_conv2d(n, "conv1", y, width, 3, FR_CONV2D_OPTS(.stride = stride, .padding = 1), FR_NO_BIAS);
    y = fr_net_relu(n, "relu1", fr_net_batchnorm2d(n, "bn1", y, NULL));
    y = fr_net_conv2d(n, "conv2", y, width, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    y = fr_net_batchnorm2d(n, "bn2", y, NULL);
    if (stride > 1) {
        x = fr_net_conv2d(n, "downsample.0", x, width, 1, FR_CONV2D_OPTS(.stride = stride), FR_NO_BIAS);
        x = fr_net_batchnorm2d(n, "downsample.1", x, NULL);
    }
    return fr_net_relu(n, "relu", fr_net_add(n, "add", y, x));
}

static fr_status own(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    if (o->model.depth < 1 || o->model.depth > MAX_DEPTH)
        return fr_fail(FR_EINVAL, "%lld blocks a stage are outside 1..%d", (long long)o->model.depth, MAX_DEPTH);
    if (o->model.inplace_abn) return fr_fail(FR_EINVAL, "--inplace-abn: this network has batch norm and relu only");
    snprintf(name, FR_TRAIN_NAME_BYTES, "own%d", (int)o->model.depth);
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->data.image_size, o->data.image_width, 3});
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    x = fr_net_conv2d(n, "conv1", x, channels, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, "relu", fr_net_batchnorm2d(n, "bn1", x, NULL));
    for (int i = 0; i < STAGES; i++)
        for (int k = 0; k < o->model.depth; k++) {
            fr_net_scope_begin(n, "layer%d.%d", i + 1, k);
            x = block(n, x, channels << i, i > 0 && k == 0 ? 2 : 1);
            fr_net_scope_end(n);
        }
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static const char *const examples[] = {
    "--epochs 10",
    "A network of one's own on the digits:",
    "plan --memory-budget 1400KiB",
    "What it would need, and what to switch so that it fits:",
    NULL,
};

static const fr_flag flags[] = {
    {"channels", FR_FLAG_INT, FR_GROUP_MODEL, .value = "N",
     .help = "Channels of the first stage; the next have 2 N and 4 N.", .least = 1, .most = 256, .per_run = true,
     .brief = "Channels of the first stage", .own = &channels},
    {0},
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_own",
        .summary = "train a network of one's own inside a memory budget",
        .description = "Trains a small residual network that the program defines itself, as a list of layers; the file "
                       "is a pattern to copy. Everything but that list is the library's, as in the other trainers. "
                       "--depth is the number of residual blocks in each of three stages.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.05,
        .depths = "1 to 18",
        .digits = digits_dataset,
        .model = own,
        .flags = flags,
    };
    program.defaults.model.depth = 1;
    program.defaults.optim.epochs = 5;
    program.defaults.data.image_size = 8;
    program.defaults.optim.batch_size = 16;
    return fr_train_main(&program, argc, argv);
}
