/* avgpool2d.c - average pooling; window.c does the work. */
#include "cpu/cpu.h"

fr_status fri_cpu_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) {
    return fri_cpu_window_mean_forward("avgpool2d", d, false, x, y);
}

fr_status fri_cpu_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy, void *dx) {
    return fri_cpu_window_mean_backward("avgpool2d", d, false, dy, dx);
}
