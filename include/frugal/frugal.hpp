/* frugal.hpp - for C++17 and later: handles that release what they own, and failures as exceptions.
 *
 * Everything else is the C interface, which frugal.h declares and documents:
 *
 *     fr::tensor x, y;
 *     fr::check(fr_relu(x, y.slot()));
 *
 * Callbacks must not let an exception out; callbacks return a status (base.h). */
#ifndef FRUGAL_HPP
#define FRUGAL_HPP

#include <frugal/frugal.h>
#include <frugal/session.h>

#include <stdexcept>
#include <utility>

namespace fr {

/* The status of a failed call; what() returns the sentence. */
class error : public std::runtime_error {
public:
    explicit error(fr_status s) : std::runtime_error(fr_last_error()), status_(s) {
    }
    fr_status status() const noexcept {
        return status_;
    }

private:
    fr_status status_;
};

/* Throws fr::error for a failure; else returns s, FR_OK or FR_END. */
inline fr_status check(fr_status s) {
    if (s < 0) throw error(s);
    return s;
}

/* Owns a reference, or NULL. Handles move; for a second reference: fr::tensor b(fr_tensor_retain(a)). */
template <class T, void (*Release)(T **)> class handle {
public:
    handle() noexcept = default;
    explicit handle(T *owned) noexcept : pointer(owned) {
    }
    handle(handle &&other) noexcept : pointer(other.take()) {
    }
    handle &operator=(handle &&other) noexcept {
        T *owned = other.take();
        Release(&pointer);
        pointer = owned;
        return *this;
    }
    ~handle() {
        Release(&pointer);
    }

    /* Pointer for calls that borrow. */
    operator T *() const noexcept {
        return pointer;
    }
    /* Slot for calls that fill, replace or take the owned handle. */
    T **slot() noexcept {
        return &pointer;
    }
    /* Gives the reference to the caller. */
    T *take() noexcept {
        return std::exchange(pointer, nullptr);
    }

private:
    T *pointer = nullptr;
};

/* Owns a struct of the C interface with everything in it. Values move; *v and v-> reach the members. */
template <class T, void (*Clear)(T *)> class value {
public:
    value() noexcept = default;
    value(value &&other) noexcept : owned(std::exchange(other.owned, T{})) {
    }
    value &operator=(value &&other) noexcept {
        T taken = std::exchange(other.owned, T{});
        Clear(&owned);
        owned = taken;
        return *this;
    }
    ~value() {
        Clear(&owned);
    }

    T &operator*() noexcept {
        return owned;
    }
    T *operator->() noexcept {
        return &owned;
    }
    /* Pointer for calls that fill or read the struct. */
    T *slot() noexcept {
        return &owned;
    }

private:
    T owned = {};
};

#define FR_HANDLE(name) using name = handle<fr_##name, fr_##name##_release>;
FR_HANDLE(tensor)
FR_HANDLE(module)
FR_HANDLE(optimizer)
FR_HANDLE(grad_scaler)
FR_HANDLE(dataset)
FR_HANDLE(loader)
FR_HANDLE(pool)
FR_HANDLE(plan)
FR_HANDLE(summary)
FR_HANDLE(session)
#undef FR_HANDLE

using image = value<fr_image, fr_image_clear>;
using classifier = value<fr_classifier, fr_classifier_clear>;
using weights_info = value<fr_weights_info, fr_weights_info_clear>;

/* Guards: what a pair of calls begins and ends lasts to the end of the block, also by an exception. */
#define FR_GUARD(name, parameters, state, begin, end) \
    class name {                                      \
    public:                                           \
        explicit name parameters {                    \
            begin;                                    \
        }                                             \
        ~name() {                                     \
            end;                                      \
        }                                             \
        name(const name &) = delete;                  \
        name &operator=(const name &) = delete;       \
                                                      \
    private:                                          \
        state was;                                    \
    };
/* A training step. */
FR_GUARD(step, (), fr_step_scope, check(fr_step_begin(&was)), (void)fr_step_end(&was))
/* Ops record no graph. */
FR_GUARD(no_grad, (), bool, was = fr_no_grad_begin(), fr_no_grad_end(was))
/* Ops run in f16 or bf16 where that is safe (torch.autocast). */
FR_GUARD(autocast, (fr_dtype dtype), fr_autocast_state, check(fr_autocast_begin(dtype, &was)), fr_autocast_end(was))
/* The module evaluates: dropout and batch norm behave as after m.eval(). */
FR_GUARD(evaluation, (fr_module * m), fr_module *, fr_module_evaluation_begin(was = m), fr_module_evaluation_end(was))
/* The thread allocates from the pool. */
FR_GUARD(pool_scope, (fr_pool * p), fr_pool_state, check(fr_pool_begin(p, &was)), fr_pool_end(was))
#undef FR_GUARD

} // namespace fr

#endif
