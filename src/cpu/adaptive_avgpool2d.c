/* adaptive_avgpool2d.c - average pooling to a given size (1 x 1: global); window.c does the work. */
#include "cpu/cpu.h"

fr_status fri_cpu_adaptive_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) {
    return fri_cpu_window_mean_forward("adaptive_avgpool2d", d, true, x, y);
}

fr_status fri_cpu_adaptive_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy, void *dx) {
    return fri_cpu_window_mean_backward("adaptive_avgpool2d", d, true, dy, dx);
}
