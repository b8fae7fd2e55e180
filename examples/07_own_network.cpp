/* 07_own_network.cpp - 07_own_network.c in C++, with equal results and bytes. */
#include "digits.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <frugal/frugal.hpp>
#include <unistd.h>

constexpr int side = 8, classes = 10, epochs = 3;

/* MobileNetV2's block: expand, depthwise convolution, project; the input is added where the shapes agree. */
static fr_value block(fr_net *n, const char *name, fr_value x, int64_t out, int64_t stride) {
    const int64_t wide = 4 * fr_net_dim(n, x, -1);
    const auto norm = [n](fr_value v) { return fr_net_batchnorm2d(n, nullptr, v, nullptr); };
    const auto pointwise = [n](fr_value v, int64_t k) {
        return fr_net_conv2d(n, nullptr, v, k, 1, nullptr, FR_NO_BIAS);
    };
    fr_net_scope_begin(n, "%s", name);
    fr_value y = fr_net_relu6(n, nullptr, norm(pointwise(x, wide)));
    y = fr_net_conv2d(n, nullptr, y, wide, 3, FR_CONV2D_OPTS(.stride = stride, .padding = 1, .groups = wide),
                      FR_NO_BIAS);
    y = norm(pointwise(fr_net_relu6(n, nullptr, norm(y)), out));
    if (stride == 1 && fr_net_dim(n, x, -1) == out) y = fr_net_add(n, nullptr, y, x);
    fr_net_scope_end(n);
    return y;
}

/* The library calls the function, so errors are statuses, not exceptions. */
static fr_status network(void *, fr_device device, int64_t kinds, fr_module **out) {
    const int64_t example[] = {1, side, side, 1};
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, example);
    x = fr_net_conv2d(n, "stem", x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = block(n, "block1", x, 16, 1);
    x = block(n, "block2", x, 32, 2);
    x = block(n, "block3", x, 32, 1);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, kinds, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_session_opts options() {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.train.optim.epochs = epochs;
    o.train.data.image_size = side;
    o.train.optim.lr = 0.1;
    o.train.optim.seed = 1;
    return o;
}

static fr_session_info info_of(fr_session *s) {
    fr_session_info info;
    fr::check(fr_session_info_get(s, &info));
    return info;
}

/* Plans the bytes of the training without running a step. */
static size_t plan(fr_dataset *digits) {
    const fr_session_opts o = options();
    fr::session s;
    fr::check(fr_session_create(&o, digits, nullptr, s.slot()));
    return info_of(s).planned;
}

/* Trains within a budget and saves the weights, with the network's name, size and normalization. */
static void train(fr_dataset *digits, fr_dataset *test, size_t budget, const char *path) {
    fr_session_opts o = options();
    fr::session s;
    o.train.memory.budget = budget;
    fr::check(fr_session_create(&o, digits, test, s.slot()));
    fr::check(fr_session_run(s));
    const fr_session_info i = info_of(s);
    std::printf("trained in %zu bytes: loss %.9g, test accuracy %.9g\n", i.planned, i.epoch_loss, i.test_accuracy);
    fr_weights_info about = {"own", "", classes, 1, side, side, {}, {}, nullptr};
    std::copy(std::begin(i.mean), std::end(i.mean), about.mean);
    std::copy(std::begin(i.std), std::end(i.std), about.std);
    fr::check(fr_weights_save(fr_session_module(s), path, FR_WEIGHTS_OPTS(.info = &about)));
}

/* Names an image as another program would: from the network and the file. */
static void predict(fr_dataset *test, const char *path) {
    std::array<uint8_t, 8 * 8> pixels;
    std::array<double, classes> p;
    fr_weights_info about = {};
    fr_image image = {};
    fr_loader_opts as;
    fr::module m;
    int64_t label = 0;
    fr::check(fr_weights_info_read(path, &about));
    fr::check(network(nullptr, FR_CPU, about.classes, m.slot()));
    fr::check(fr_weights_load(m, path, nullptr));
    fr::check(fr_dataset_read(test, 0, pixels.data(), pixels.size(), nullptr, nullptr, nullptr));
    fr::check(fr_dataset_label(test, 0, &label));
    image.pixels = pixels.data();
    image.height = 8;
    image.width = 8;
    image.channels = 1;
    fr_weights_input(&about, &as);
    fr::check(fr_predict(m, &image, &as, p.data(), classes));
    std::printf("the first test image is a %d with probability %.2f\n", static_cast<int>(label), p[label]);
    fr_weights_info_clear(&about);
}

int main() {
    char path[] = "/tmp/own_networkXXXXXX";
    const int file = mkstemp(path);
    int status = file < 0;
    try {
        fr::dataset digits, test;
        fr::check(digits_dataset(FR_SPLIT_TRAIN, digits.slot()));
        fr::check(digits_dataset(FR_SPLIT_TEST, test.slot()));
        const size_t bytes = plan(digits);
        std::printf("training needs %zu bytes\n", bytes);
        train(digits, test, bytes / 4 * 3, path);
        predict(test, path);
    } catch (const fr::error &e) {
        std::fprintf(stderr, "07_own_network: %s\n", e.what());
        status = 1;
    }
    if (file >= 0) {
        unlink(path);
        close(file);
    }
    return status;
}
