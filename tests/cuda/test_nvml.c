/* test_nvml.c - the driver's counts of the device's memory: a missing library, failing calls, good values; and the
 * lines made for reports. On a fake runtime and a fake NVML. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/tensor.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/fake.h"
#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "memory/report.h"
#include "support/golden.h"

TestSuite(nvml, .init = fake_begin);

static const size_t mib = (size_t)1 << 20;

static fr_memory_use asked(void) {
    fr_memory_use use;
    fri_cuda_memory_use(&use);
    return use;
}

/* A tensor of 4 MiB, with a context and a segment of 20 MiB. */
static fr_tensor *something(void) {
    fr_tensor *t = NULL;
    must(fr_tensor_empty(1, (int64_t[]){1 << 20}, FR_F32, FR_CUDA, &t));
    return t;
}

Test(nvml, device_and_process) {
    fr_memory_use use = asked();
    cr_expect_eq(use.device, 0);
    cr_expect_eq(fake.streams, 0, "asking made a context");
    cr_expect_eq(fake_nvml_says.calls, 0);
    fr_tensor *t = something();
    use = asked();
    cr_expect_eq(use.device, 20 * mib);
    cr_expect_eq(use.total, 1024 * mib);
    cr_expect_eq(use.process, 700 * mib);
    cr_expect_str_eq(use.source, "cudaMemGetInfo");
    fr_tensor_release(&t);
}

Test(nvml, more_processes_than_expected) {
    fr_tensor *t = something();
    fake_nvml_says.processes = 500;
    cr_expect_eq(asked().process, 700 * mib);
    fr_tensor_release(&t);
}

/* The device is known without NVML, the process is not. */
static void expect_without(void) {
    fr_tensor *t = something();
    cr_expect_eq(asked().device, 20 * mib);
    cr_expect_eq(asked().process, 0);
    fr_tensor_release(&t);
}

Test(nvml, a_process_that_is_not_listed) {
    fake_nvml_says.hide_own = true;
    expect_without();
}

Test(nvml, a_process_of_unknown_size) {
    fake_nvml_says.own = ~0ull;
    expect_without();
}

Test(nvml, the_list_of_processes_fails) {
    fake_nvml_says.process_error = 3;
    expect_without();
}

Test(nvml, missing_library) {
    fake_hide("nvidia-ml");
    expect_without();
}

Test(nvml, library_without_a_function) {
    fake_lack("GetComputeRunningProcesses");
    expect_without();
    cr_expect_eq(fake_nvml_says.calls, 0);
}

Test(nvml, driver_not_loaded) {
    fake_nvml_says.init_error = 9;
    expect_without();
    cr_expect_eq(fake_nvml_says.calls, 1, "it was asked again");
}

Test(nvml, device_not_found) {
    fake_nvml_says.handle_error = 6;
    expect_without();
}

Test(nvml, no_device_is_no_number) {
    fake.devices = 0;
    cr_expect_eq(asked().device, 0);
    cr_expect_eq(fake_nvml_says.calls, 0);
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static const char lines[] = "  requested      4.00 MiB\n"
                            "  allocated      4.00 MiB\n"
                            "  reserved      20.00 MiB\n"
                            "  process      700.00 MiB\n"
                            "  context      680.00 MiB  process minus reserved: CUDA's context and libraries\n"
                            "  device        20.00 MiB  of 1.00 GiB (cudaMemGetInfo)\n";

Test(nvml, lines_of_a_report) {
    char buf[FRI_MEMORY_USE_TEXT];
    fr_memory_stats now;
    fr_tensor *t = something();
    must(fr_memory_stats_get(FR_CUDA, &now));
    cr_expect_str_eq(fri_memory_use_text(FR_CUDA, &now, buf), lines);
    cr_expect_str_eq(fri_memory_use_text(FR_META, &now, buf), "");
    cr_expect_str_eq(fri_memory_use_text(FR_CPU, &now, buf), "", "the resident set is no device");
    fake_nvml_says.process_error = 3;
    cr_expect_not_null(strstr(fri_memory_use_text(FR_CUDA, &now, buf), "  process               -\n"), "%s", buf);
    fr_tensor_release(&t);
}

Test(nvml, the_summary_has_them) {
    char *text = NULL;
    size_t bytes = 0;
    fr_tensor *t = something();
    FILE *f = open_memstream(&text, &bytes);
    must(fr_memory_summary(FR_CUDA, f));
    fclose(f);
    cr_expect_not_null(strstr(text, lines), "%s", text);
    free(text);
    fr_tensor_release(&t);
}

Test(nvml, out_of_memory_has_them) {
    fr_tensor *t = something(), *more = NULL;
    cr_expect_eq(fr_tensor_empty(1, (int64_t[]){512 << 20}, FR_F32, FR_CUDA, &more), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), lines), "%s", fr_last_error());
    fr_tensor_release(&t);
}
