/* fake_kernels.cpp - see fake_kernels.h. In C++ because its templates keep the arguments of a function of any type. */
#include "fake_kernels.h"

#include "fake_order.h"

#include <functional>
#include <memory>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <vector>

/* ---- arguments ------------------------------------------------------------------------------------------------- */

typedef std::vector<std::shared_ptr<const void>> owned;

template <typename T> static T keep(owned &, int, T value) {
    return value;
}

template <typename T> static const T *copy_of(owned &o, int count, const T *p) {
    if (p == nullptr) return nullptr;
    std::shared_ptr<T> all(new T[(size_t)count], std::default_delete<T[]>());
    memcpy(all.get(), p, (size_t)count * sizeof(T));
    o.push_back(all);
    return all.get();
}

/* Structs that are only read are the host's: descriptions, and lists whose length is the call's only int. */
#define KEPT(type, n)                                             \
    static const type *keep(owned &o, int count, const type *p) { \
        (void)count;                                              \
        return copy_of(o, n, p);                                  \
    }
KEPT(fri_exec, 1)
KEPT(fri_dropout_desc, 1)
KEPT(fri_normalize_desc, 1)
KEPT(fri_conv2d_desc, 1)
KEPT(fri_linear_desc, 1)
KEPT(fri_batchnorm2d_desc, 1)
KEPT(fri_pool2d_desc, 1)
KEPT(fri_upsample_desc, 1)
KEPT(fri_embedding_desc, 1)
KEPT(fri_gather_desc, 1)
KEPT(fri_binary_desc, 1)
KEPT(fri_strided_desc, 1)
KEPT(fri_group_norm_desc, 1)
KEPT(fri_loss_desc, 1)
KEPT(fri_loss_scale_desc, 1)
KEPT(fri_sgd_desc, 1)
KEPT(fri_rmsprop_desc, 1)
KEPT(fri_adam_desc, 1)
KEPT(fri_array, count)
KEPT(fri_step_item, count)

static int length() {
    return 1;
}

template <typename A, typename... B> static int length(A first, B... rest) {
    if constexpr (std::is_same_v<A, int>)
        return first;
    else
        return length(rest...);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* A slot of the table of f32 and halves, or of the other one. */
static const fri_kernels *table[2];

/* Notes the addresses read and written by a kernel. */
template <typename T> static void note(int, T) {
}

template <typename T> static void note(int, T *p) {
    if constexpr (std::is_void_v<T> || std::is_arithmetic_v<T>) fake_order_access(p, 1, !std::is_const_v<T>);
}

static void note(int, const fri_exec *e) {
    if (e != nullptr) fake_order_access(e->workspace, 1, true);
}

static void note(int count, const fri_array *list) {
    for (int i = 0; list != nullptr && i < count; i++) fake_order_access(list[i].data, 1, true);
}

/* Runs once, in turn in the stream. */
static bool run_once(void *ctx) {
    auto *f = (std::function<void()> *)ctx;
    (*f)();
    delete f;
    return true;
}

template <typename R, typename... A> static void defer(void *stream, R (*real)(A...), A... a) {
    auto o = std::make_shared<owned>();
    auto kept = std::make_tuple(keep(*o, length(a...), a)...);
    fake_queue_call((struct CUstream_st *)stream, run_once,
                    new std::function<void()>([real, kept, o] { (void)std::apply(real, kept); }));
}

template <typename... A> static void *stream_of(const fri_exec *e, A...) {
    return e != nullptr ? e->stream : nullptr;
}

template <int TABLE, auto SLOT, typename F> struct wrapped;

template <int TABLE, auto SLOT, typename R, typename... A> struct wrapped<TABLE, SLOT, R (*)(A...)> {
    static R call(A... a) {
        R (*real)(A...) = table[TABLE]->*SLOT;
        if constexpr (!asks_only) {
            const int entered = fake_enter();
            fake_kernel_begins(stream_of(a...));
            (note(length(a...), a), ...);
            if constexpr (std::is_same_v<R, fr_status>) {
                if (fake_defers(stream_of(a...))) {
                    defer(stream_of(a...), real, a...);
                    fake_leave(&entered);
                    return FR_OK;
                }
            }
            fake_leave(&entered);
        }
        return real(a...);
    }
    /* Scratch sizes are answered at once. */
    static constexpr bool asks_only = !std::is_same_v<std::tuple_element_t<0, std::tuple<A...>>, const fri_exec *>;
};

template <int TABLE> static void wrap(const fri_kernels *real, fri_kernels *out) {
    table[TABLE] = real;
    *out = *real;
#define WRAP(name, type, need) \
    if (real->name != nullptr) out->name = wrapped<TABLE, &fri_kernels::name, decltype(fri_kernels::name)>::call;
    FRI_KERNEL_MAP(WRAP)
#undef WRAP
}

extern "C" void fake_kernels_wrap(const fri_kernels *real, const fri_kernels *real_f64, fri_kernels *out,
                                  fri_kernels *out_f64) {
    wrap<0>(real, out);
    wrap<1>(real_f64, out_f64);
}
