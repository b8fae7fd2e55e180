/* test_control.c - the CUDA backend around its kernels: finding a device, failing calls, staging, waiting. On a fake
 * runtime, so without a GPU. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/plan.h>
#include <frugal/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/cublaslt.h"
#include "cuda/cudnn.h"
#include "cuda/fake.h"
#include "cuda/memory.h"
#include "support/golden.h"

TestSuite(control, .init = fake_begin);

static void expect_absent(const char *word) {
    cr_expect_not(fr_device_available(FR_CUDA));
    cr_expect(strstr(fr_device_reason(FR_CUDA), word) != NULL, "'%s' lacks '%s'", fr_device_reason(FR_CUDA), word);
    cr_expect_null(strchr(fr_device_reason(FR_CUDA), '\n'));
    cr_expect_eq(fake.streams, 0, "a context was made for a device that is not used");
}

/* ---- finding a device ------------------------------------------------------------------------------------------ */

Test(control, a_device_with_its_libraries_is_available) {
    cr_expect(fr_device_available(FR_CUDA), "%s", fr_device_reason(FR_CUDA));
    cr_expect_eq(fake.streams, 0, "asking must not make a context");
}

Test(control, no_driver) {
    fake.count_error = cudaErrorInsufficientDriver;
    fake.driver = 0;
    expect_absent("no NVIDIA driver");
    cr_expect_eq(fake.sticky, cudaSuccess, "the sticky error was left behind");
}

Test(control, a_driver_that_is_too_old_is_named_with_what_the_build_needs) {
    char needed[64];
    fake.count_error = cudaErrorInsufficientDriver;
    fake.driver = 12040;
    snprintf(needed, sizeof needed, "this build's CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    expect_absent("the NVIDIA driver is for CUDA 12.4, too old");
    expect_absent(needed);
    cr_expect_eq(fake.sticky, cudaSuccess, "the sticky error was left behind");
    fake.driver = 12100;
    fri_cuda_use(fri_cudart_table);
    expect_absent("the NVIDIA driver is for CUDA 12.10, too old");
}

Test(control, driver_without_device) {
    fake.count_error = cudaErrorNoDevice;
    expect_absent("fake failure");
}

Test(control, no_device_at_all) {
    fake.devices = 0;
    expect_absent("the driver sees none");
}

Test(control, older_device_than_the_build_is_for) {
    fake.major = 5;
    fake.minor = 2;
    expect_absent("Fake 0 has compute capability 5.2 and cuDNN 9.11 is for 7.5 and newer");
}

Test(control, a_device_without_code_in_the_build) {
    fake.no_code = cudaErrorNoKernelImageForDevice;
    expect_absent("no code for Fake 0, compute capability 9.0 (option gpu_arch)");
}

Test(control, missing_cudnn) {
    fake_hide("cudnn");
    expect_absent("libcudnn.so.9");
    expect_absent("FRUGAL_CUDNN");
}

Test(control, a_cudnn_that_is_too_old_is_named_with_what_is_needed) {
    fake.cudnn = 91099;
    expect_absent("libcudnn.so.9 is cuDNN 9.10.99, and 9.11 or newer is needed");
    expect_absent("FRUGAL_CUDNN");
    fake.cudnn = 91100;
    fri_cuda_use(fri_cudart_table);
    cr_expect(fr_device_available(FR_CUDA), "%s", fr_device_reason(FR_CUDA));
}

Test(control, missing_cublaslt) {
    fake_hide("cublasLt");
    expect_absent("libcublasLt.so");
}

Test(control, library_without_a_function) {
    fake_lack("cudnnBackendExecute");
    expect_absent("libcudnn.so.9 lacks cudnnBackendExecute");
}

Test(control, a_tensor_on_an_absent_device_is_refused) {
    fr_tensor *t = NULL;
    fake.devices = 0;
    expect_refused(fr_tensor_empty(1, (int64_t[]){4}, FR_F32, FR_CUDA, &t), FR_EDEVICE, "cuda", "driver sees none", t);
}

/* ---- failing calls --------------------------------------------------------------------------------------------- */

Test(control, out_of_memory_is_a_status_and_clears_the_sticky_error) {
    void *p = &fake;
    fake.memory = 1 << 20;
    cr_expect_eq(fri_cuda_segment_alloc((size_t)2 << 20, &p), FR_ENOMEM);
    cr_expect_null(p);
    cr_expect_eq(fake.sticky, cudaSuccess);
    must(fri_cuda_segment_alloc(1 << 20, &p));
    fri_cuda_segment_free(p, 1 << 20);
    cr_expect_eq(fake.frees, 1);
}

Test(control, an_arena_leaves_room_for_libraries) {
    const int64_t bytes = 300 << 20;
    const size_t most = 556 << 20; /* 256 MiB are not the arena's */
    fr_plan *plan = NULL;
    fr_tensor *t = NULL;
    fake_kernels();
    must(fr_plan_begin(FR_CUDA, &plan));
    must(fr_plan_section(plan, "all"));
    must(fr_tensor_empty(1, &bytes, FR_U8, FR_META, &t));
    fr_tensor_release(&t);
    must(fr_plan_end(plan));
    fake.memory = most - 1;
    cr_expect_eq(fr_plan_install(plan, FR_CUDA, NULL), FR_ENOMEM);
    cr_expect_str_eq(fr_last_error(), "arena: 314572800 bytes are needed; of the 583008255 free bytes of cuda, "
                                      "libraries need 268435456");
    fake.memory = 1 << 20;
    cr_expect_eq(fr_plan_install(plan, FR_CUDA, NULL), FR_ENOMEM, "less than the libraries take");
    cr_expect_not_null(strstr(fr_last_error(), "libraries need"), "%s", fr_last_error());
    cr_expect_eq(fake.memory, (size_t)1 << 20, "it asked the driver");
    fake.memory = most;
    must(fr_plan_install(plan, FR_CUDA, NULL));
    cr_expect_eq(fake.memory, most - (size_t)bytes);
    must(fr_plan_uninstall(FR_CUDA));
    fr_plan_release(&plan);
}

Test(control, out_of_memory_of_a_tensor_tells_sizes) {
    fr_tensor *t = NULL;
    fake.memory = (size_t)8 << 20;
    expect_refused(fr_tensor_empty(1, (int64_t[]){16 << 20}, FR_F32, FR_CUDA, &t), FR_ENOMEM, "cuda", "MiB", t);
}

Test(control, a_failing_copy_names_the_call_and_the_reason) {
    char bytes[16] = {0};
    void *p = NULL;
    must(fri_cuda_segment_alloc(512, &p));
    fake.copy_error = cudaErrorIllegalAddress;
    cr_expect_eq(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, bytes, p, sizeof bytes), FR_ELIBRARY);
    cr_expect_not_null(strstr(fr_last_error(), "cudaMemcpyAsync"));
    cr_expect_not_null(strstr(fr_last_error(), "fake failure"));
    cr_expect_eq(fake.sticky, cudaSuccess);
    fake.copy_error = cudaSuccess;
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, bytes, p, sizeof bytes));
}

Test(control, a_failed_launch_names_the_kernel) {
    fake.sticky = cudaErrorInvalidConfiguration;
    cr_expect_eq(fri_cuda_launched("relu_forward"), FR_ELIBRARY);
    cr_expect_not_null(strstr(fr_last_error(), "relu_forward"));
    cr_expect_eq(fri_cuda_launched("relu_forward"), FR_OK, "the error was reported twice");
}

static const struct {
    int code;
    bool late;
} codes[] = {{1, false}, {699, false}, {700, true}, {719, true}, {720, false}, {900, false}};

Test(control, an_error_that_an_earlier_kernel_may_have_made_says_how_to_find_it) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        cr_expect_eq(fri_cuda_check(codes[i].code, "cudaMemcpyAsync"), FR_ELIBRARY);
        const char *hint = strstr(fr_last_error(), "an earlier kernel may be at fault; FRUGAL_SYNC=1 names it");
        cr_expect_eq(hint != NULL, codes[i].late, "CUDA error %d: %s", codes[i].code, fr_last_error());
    }
}

Test(control, a_launch_is_waited_for_only_when_asked) {
    must(fri_cuda_launched("add"));
    cr_expect_eq(fake.stream_waits, 0);
}

static void sync_on(void) {
    setenv("FRUGAL_SYNC", "1", 1);
    fake_begin();
}

Test(control, frugal_sync_waits_after_each_launch, .init = sync_on) {
    must(fri_cuda_launched("add"));
    cr_expect_eq(fake.stream_waits, 1);
    fake.sticky = cudaErrorIllegalAddress;
    cr_expect_eq(fri_cuda_launched("relu_forward"), FR_ELIBRARY);
    cr_expect_null(strstr(fr_last_error(), "FRUGAL_SYNC"), "it is on: %s", fr_last_error());
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

enum { LONG = 5 * FRI_STAGING_BYTES + 12345 };

static unsigned char *pattern(void) {
    unsigned char *p = malloc(LONG);
    for (size_t i = 0; i < LONG; i++) p[i] = (unsigned char)(i * 2654435761u >> 13);
    return p;
}

/* Six pieces through three slots: the copies run late, so a slot written too early would show. */
Test(control, staging_reuses_a_slot_only_after_its_transfer) {
    unsigned char *host = pattern(), *want = pattern();
    void *p = NULL;
    must(fri_cuda_segment_alloc(LONG, &p));
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, host, p, LONG));
    cr_expect_eq(fake.copies, 6);
    cr_expect_eq(fake.event_waits, 3, "%d waits for a slot", fake.event_waits);
    cr_expect_eq(fake.spins, 0, "%d of them on a core", fake.spins);
    cr_expect_eq(fake.stream_waits, 0, "the copy waited for the device");
    memset(host, 0, LONG); /* the caller may reuse its memory at once */
    must(fri_cuda_synchronize(NULL));
    cr_expect_eq(memcmp(p, want, LONG), 0);
    fri_cuda_segment_free(p, LONG);
    free(host);
    free(want);
}

Test(control, a_small_copy_waits_for_nothing) {
    float x[4] = {1, 2, 3, 4};
    void *p = NULL;
    must(fri_cuda_segment_alloc(512, &p));
    for (int i = 0; i < FRI_STAGING_SLOTS; i++) must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, x, p, sizeof x));
    cr_expect_eq(fake.event_waits + fake.stream_waits, 0);
    cr_expect_eq(fake.queued, (size_t)FRI_STAGING_SLOTS);
}

Test(control, without_pinned_memory_the_copy_waits_itself) {
    float x[4] = {1, 2, 3, 4}, back[4] = {0};
    void *p = NULL;
    fake.no_pinned = true;
    must(fri_cuda_segment_alloc(512, &p));
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, x, p, sizeof x));
    x[0] = 9;
    must(fri_cuda_copy(NULL, FRI_COPY_DEVICE_TO_HOST, p, back, sizeof back));
    cr_expect_eq(back[0], 1.0f);
}

Test(control, pinning_can_be_turned_off) {
    float x[4] = {1, 2, 3, 4};
    void *p = NULL;
    must(fri_cuda_segment_alloc(512, &p));
    fri_cuda_pin_memory(false);
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, x, p, sizeof x));
    cr_expect_eq(fake.stream_waits, 1, "the copy from ordinary memory must wait");
    fri_cuda_pin_memory(true);
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, x, p, sizeof x));
    cr_expect_eq(fake.stream_waits, 1);
}

Test(control, tensors_come_back_as_they_went) {
    fr_tensor *t = NULL, *u = NULL;
    float x[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    must(fr_tensor_from_host(x, 2, (int64_t[]){2, 3}, FR_F32, FR_CUDA, &t));
    must(fr_tensor_clone(t, &u));
    must(fr_tensor_to_host(u, back));
    cr_expect_eq(memcmp(x, back, sizeof x), 0);
    fr_tensor_release(&t);
    fr_tensor_release(&u);
    must(fr_memory_empty_cache(FR_CUDA));
    cr_expect_eq(fake.frees, 1);
    cr_expect_eq(fake.streams, 1);
}
