/* fake_nvml.c - NVML for machines without a driver; checks its arguments. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "cuda/fake.h"
#include "cuda/nvml.h"

fake_nvml_state fake_nvml_says = {.processes = 3, .own = 700ull << 20};

enum { INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

static int init(void) {
    fake_nvml_says.calls++;
    return fake_nvml_says.init_error;
}

static int handle(const char *bus, void **device) {
    fake_nvml_says.calls++;
    if (strcmp(bus, "00000001:2a:00.0") != 0) return NOT_FOUND;
    *device = &fake_nvml_says;
    return fake_nvml_says.handle_error;
}

static int processes(void *device, unsigned *n, fri_nvml_process *out) {
    unsigned room = *n;
    fake_nvml_says.calls++;
    if (device != &fake_nvml_says) return INVALID_ARGUMENT;
    if (fake_nvml_says.process_error != 0) return fake_nvml_says.process_error;
    *n = fake_nvml_says.processes;
    if (*n > room) return FRI_NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *n; i++) {
        bool own = i + 1 == *n && !fake_nvml_says.hide_own;
        out[i] = (fri_nvml_process){.pid = own ? (unsigned)getpid() : 0, .used = own ? fake_nvml_says.own : 123456};
    }
    return FRI_NVML_SUCCESS;
}

void *fake_nvml(const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } all[] = {
        {"nvmlInit_v2", (void (*)(void))init},
        {"nvmlDeviceGetHandleByPciBusId_v2", (void (*)(void))handle},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void (*)(void))processes},
    };
    void *p = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) memcpy(&p, &all[i].function, sizeof p);
    return p;
}
