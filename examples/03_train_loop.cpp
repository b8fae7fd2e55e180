/* 03_train_loop.cpp - the training loop of 03_train_loop.c in C++, with equal losses and bytes. Handles release
 * their objects, failures are exceptions. */
#include "digits.h"

#include <cstdio>
#include <frugal/frugal.hpp>

constexpr int epochs = 3, batch = 50;

/* conv - relu - pool, twice, then a classifier. */
static fr::module make_model() {
    const int64_t example[] = {1, 8, 8, 1};
    fr::module m;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, example);
    for (int channels : {16, 32}) {
        x = fr_net_conv2d(n, nullptr, x, channels, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        x = fr_net_relu(n, nullptr, x);
        x = fr_net_maxpool2d(n, nullptr, x, 2, nullptr);
    }
    x = fr_net_flatten(n, nullptr, x, 1);
    x = fr_net_linear(n, nullptr, x, 10, FR_BIAS);
    fr::check(fr_net_end(&n, &x, 1, m.slot())); /* reports the first error of any layer */
    return m;
}

/* One step. The scope restores the thread state, also after an error; gradients are freed before the next forward. */
static double train_step(fr_module *m, fr_optimizer *o, fr_tensor *images, fr_tensor *labels) {
    double value = 0;
    fr::step scope;
    fr::tensor y, loss;
    fr::check(fr_module_forward(m, images, y.slot()));
    fr::check(fr_cross_entropy(y, labels, nullptr, loss.slot()));
    y = fr::tensor();
    fr::check(fr_backward(loss, nullptr));
    fr::check(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    fr::check(fr_tensor_item(loss, &value));
    return value;
}

static void train() {
    fr::dataset digits;
    fr::loader loader;
    fr::optimizer o;
    fr::tensor images, labels;
    fr_memory_stats t;
    double loss = 0;
    fr_seed(1);
    fr::check(digits_dataset(FR_SPLIT_TRAIN, digits.slot()));
    const fr_loader_opts opts = *FR_LOADER_OPTS(.batch_size = batch, .channels = 1, .workers = 1);
    fr::check(fr_loader_create(digits, &opts, loader.slot()));
    fr::module m = make_model();
    fr::check(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), o.slot()));
    for (int epoch = 0; epoch < epochs; epoch++) {
        while (fr::check(fr_loader_next(loader, images.slot(), labels.slot())) == FR_OK) /* FR_END ends an epoch */
            loss = train_step(m, o, images, labels);
        std::printf("epoch %d, last loss %.9g\n", epoch + 1, loss);
    }
    fr::check(fr_memory_stats_get(FR_CPU, &t));
    std::printf("peak memory %zu bytes\n", t.peak_allocated);
}

int main() {
    try {
        train();
    } catch (const fr::error &e) {
        std::fprintf(stderr, "03_train_loop: %s\n", e.what());
        return 1;
    }
    return 0;
}
