/* app.cpp - app.c in C++; prints equal output. */
#include <cstdio>
#include <frugal/frugal.hpp>

static double train(fr_module *m, fr_optimizer *o) {
    const int64_t shape[] = {4, 8, 8, 3};
    double value = 0;
    fr::step scope;
    fr::tensor x, y, loss;
    fr::check(fr_tensor_uniform(4, shape, 0, 1, FR_F32, FR_CPU, x.slot()));
    fr::check(fr_module_forward(m, x, y.slot()));
    fr::check(fr_mse(y, x, loss.slot()));
    fr::check(fr_backward(loss, nullptr));
    fr::check(fr_optimizer_step(o));
    fr::check(fr_tensor_item(loss, &value));
    fr_optimizer_zero_grad(o);
    return value;
}

int main() try {
    const int64_t shape[] = {1, 8, 8, 3};
    fr::module m;
    fr::optimizer o;
    double loss = 0;
    fr_seed(7);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, shape);
    x = fr_net_relu(n, nullptr, fr_net_conv2d(n, nullptr, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_conv2d(n, nullptr, x, 3, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    fr::check(fr_net_end(&n, &x, 1, m.slot()));
    fr::check(fr_adam(m, FR_ADAM_OPTS(.lr = 0.01), o.slot()));
    for (int step = 0; step < 5; step++) loss = train(m, o);
    std::printf("frugal %s, loss %.9g\n", fr_version(), loss);
    return 0;
} catch (const fr::error &e) {
    std::fprintf(stderr, "app: %s\n", e.what());
    return 1;
}
