/* test_devices.c - ranks on CUDA devices, on a fake runtime: each rank of a machine takes a device, and NCCL is named
 * where it cannot be used. */
#include <criterion/criterion.h>
#include <frugal/base.h>
#include <stdlib.h>
#include <string.h>

#include "addons/ranks/links.h"
#include "cuda/context.h"
#include "cuda/fake.h"
#include "support/golden.h"

TestSuite(devices, .init = fake_begin);

Test(devices, ranks_of_a_machine_take_a_device_each) {
    const fri_cuda_device *device = NULL;
    fake.devices = 2;
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "6", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    must(fri_cuda_context(&device));
    cr_expect_eq(device->index, 1);
    cr_expect_str_eq(device->name, "Fake 1");
    fake.devices = 1; /* a launcher may show each rank a single device */
    fri_cuda_use(fri_cudart_table);
    must(fri_cuda_context(&device));
    cr_expect_eq(device->index, 0);
    fake.devices = 2;
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "2", 1);
    fri_cuda_use(fri_cudart_table);
    cr_expect_not(fr_device_available(FR_CUDA));
    cr_expect_str_eq(fr_device_reason(FR_CUDA), "no CUDA device for rank 2 of this machine: the driver sees 2");
}

static void expect_no_nccl(const char *why) {
    const char *reason = NULL;
    cr_expect_null(fri_links_of(FR_CUDA)->name(&reason));
    cr_expect_str_eq(reason, why);
}

Test(devices, nccl_that_is_not_there_is_named) {
    expect_no_nccl("libnccl.so.2 cannot be loaded (set FRUGAL_NCCL to its file or folder)");
    cr_expect_str_eq(getenv("NCCL_MAX_P2P_NCHANNELS"), "4");
    cr_expect_null(fri_links_of(FR_CPU));
}

Test(devices, nccl_without_a_function_is_named) {
    fake_hide(NULL);
    fake_lack("ncclSend");
    expect_no_nccl("libnccl.so.2 lacks ncclSend");
}

Test(devices, nccl_can_be_switched_off) {
    setenv("FRUGAL_NCCL", "off", 1);
    setenv("NCCL_MAX_P2P_NCHANNELS", "9", 1);
    fake_hide(NULL);
    expect_no_nccl("FRUGAL_NCCL=off");
    cr_expect_str_eq(getenv("NCCL_MAX_P2P_NCHANNELS"), "9");
}
