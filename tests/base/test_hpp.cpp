/* frugal.hpp: handles release exactly once, failures carry status and sentence, scopes end. */
#include <criterion/criterion.h>
#include <cstdio>
#include <cstring>
#include <frugal/frugal.hpp>

static const int64_t shape[] = {2, 3};

static fr::tensor ones() {
    fr::tensor t;
    fr::check(fr_tensor_full(2, shape, 1, FR_F32, FR_CPU, t.slot()));
    return t;
}

static size_t alive() {
    fr_memory_stats s;
    fr::check(fr_memory_stats_get(FR_CPU, &s));
    return s.requested;
}

Test(hpp, a_failure_carries_status_and_sentence) {
    fr::tensor a = ones(), b;
    const int64_t other[] = {2, 4};
    fr::check(fr_tensor_zeros(2, other, FR_F32, FR_CPU, b.slot()));
    bool caught = false;
    try {
        fr::check(fr_add(a, b, a.slot()));
    } catch (const fr::error &e) {
        caught = true;
        cr_expect_eq(e.status(), FR_ESHAPE);
        cr_expect(std::strstr(e.what(), "[2, 3]") != nullptr && std::strstr(e.what(), "[2, 4]") != nullptr, "%s",
                  e.what());
    }
    cr_expect(caught);
    cr_expect_eq(fr::check(FR_END), FR_END);
    cr_expect_eq(fr::check(FR_OK), FR_OK);
}

Test(hpp, a_handle_releases_what_it_owns_once) {
    {
        fr::tensor a = ones(), b = ones();
        cr_expect_eq(alive(), 1024);
        fr::tensor c(std::move(a));
        cr_expect_null(static_cast<fr_tensor *>(a));
        cr_expect_eq(alive(), 1024);
        b = std::move(c);
        cr_expect_eq(alive(), 512);
        fr::tensor &same = b;
        b = std::move(same);
        cr_expect_not_null(static_cast<fr_tensor *>(b));
        fr_tensor *raw = b.take();
        cr_expect_null(static_cast<fr_tensor *>(b));
        fr::tensor first(fr_tensor_retain(raw)), second(raw);
        first = fr::tensor();
        cr_expect_eq(alive(), 512);
        fr::check(fr_relu(second, second.slot()));
        cr_expect_eq(alive(), 512);
    }
    cr_expect_eq(alive(), 0);
}

Test(hpp, scopes_end_with_their_block_and_by_an_exception) {
    const fr_switches before = fr_switches_get();
    try {
        fr::step step;
        fr::no_grad quiet;
        fr_switches_set(fr_switches_all_off());
        cr_expect_not(fr_grad_enabled());
        fr::check(fr_fail(FR_EIO, "gone"));
    } catch (const fr::error &) {
    }
    cr_expect(fr_grad_enabled());
    cr_expect_eq(fr_switches_get().encode, before.encode);
    {
        fr::no_grad quiet;
        cr_expect_not(fr_grad_enabled());
    }
    cr_expect(fr_grad_enabled());
}

Test(hpp, the_version_is_that_of_the_headers) {
    int major = -1, minor = -1, patch = -1;
    cr_expect_eq(std::sscanf(fr_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    cr_expect(major == FR_VERSION_MAJOR && minor == FR_VERSION_MINOR && patch == FR_VERSION_PATCH, "%s", fr_version());
}

Test(hpp, options_reach_the_call) {
    const int64_t image[] = {1, 7, 7, 1}, kernel[] = {1, 3, 3, 1};
    fr::tensor x, w, y;
    fr::check(fr_tensor_full(4, image, 1, FR_F32, FR_CPU, x.slot()));
    fr::check(fr_tensor_full(4, kernel, 1, FR_F32, FR_CPU, w.slot()));
    fr::check(fr_conv2d(x, w, nullptr, FR_CONV2D_OPTS(.stride = 2, .padding = 1), y.slot()));
    cr_expect_eq(fr_tensor_dim(y, 1), 4);
    fr_conv2d_opts opts = fr_conv2d_opts_default();
    opts.padding = 1;
    fr::check(fr_conv2d(x, w, nullptr, &opts, y.slot()));
    cr_expect_eq(fr_tensor_dim(y, 1), 7);
}

Test(hpp, guards_end_with_their_block) {
    const int64_t pixels[] = {1, 4, 4, 2};
    fr::pool pool;
    fr::module m;
    fr::tensor x, y;
    fr::check(fr_pool_create(FR_CPU, pool.slot()));
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value v = fr_net_input(n, FR_F32, 4, pixels);
    v = fr_net_conv2d(n, "conv", v, 2, 1, nullptr, FR_NO_BIAS);
    fr::check(fr_net_end(&n, &v, 1, m.slot()));
    const size_t before = alive();
    try {
        const fr::pool_scope own(pool);
        const fr::evaluation evaluation(m);
        const fr::no_grad no_grad;
        const fr::autocast half(FR_BF16);
        cr_expect(!fr_module_training(m));
        fr::check(fr_tensor_full(4, pixels, 1, FR_F32, FR_CPU, x.slot()));
        cr_expect_eq(alive(), 512, "the pool's own bytes");
        fr::check(fr_module_forward(m, x, y.slot()));
        cr_expect_eq(fr_tensor_dtype(y), FR_BF16);
        throw 1;
    } catch (int) {
    }
    cr_expect(fr_module_training(m));
    cr_expect_eq(alive(), before, "the thread's pool as before");
}

Test(hpp, values_clear_what_they_own) {
    static const unsigned char frame[] = {1, 2, 3};
    fr::image a;
    void *room = nullptr;
    a->pixels = frame;
    a->height = a->width = 1;
    fr::check(fr_image_room(a.slot(), 64, &room));
    fr::image b(std::move(a));
    cr_expect_null((*a).file.data);
    cr_expect_eq(b->file.data, room);
    a = std::move(b);
    cr_expect_eq(a->file.data, room);
    cr_expect_eq(a->pixels, frame);
    fr::classifier c;
    cr_expect_null(c->model);
    const fr::session none;
    cr_expect_null(static_cast<fr_session *>(none));
}
