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

using tensor = handle<fr_tensor, fr_tensor_release>;
using module = handle<fr_module, fr_module_release>;
using optimizer = handle<fr_optimizer, fr_optimizer_release>;
using grad_scaler = handle<fr_grad_scaler, fr_grad_scaler_release>;
using dataset = handle<fr_dataset, fr_dataset_release>;
using loader = handle<fr_loader, fr_loader_release>;
using pool = handle<fr_pool, fr_pool_release>;
using plan = handle<fr_plan, fr_plan_release>;
using summary = handle<fr_summary, fr_summary_release>;

/* A training step (fr_step_begin), to the end of the block, also by an exception. */
class step {
public:
    step() {
        check(fr_step_begin(&scope));
    }
    ~step() {
        (void)fr_step_end(&scope);
    }
    step(const step &) = delete;
    step &operator=(const step &) = delete;

private:
    fr_step_scope scope;
};

/* Ops record no graph (fr_no_grad_begin), to the end of the block. */
class no_grad {
public:
    no_grad() noexcept : was(fr_no_grad_begin()) {
    }
    ~no_grad() {
        fr_no_grad_end(was);
    }
    no_grad(const no_grad &) = delete;
    no_grad &operator=(const no_grad &) = delete;

private:
    bool was;
};

} // namespace fr

#endif
