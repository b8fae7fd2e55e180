/* net.c - see net.h. */
#include "plan/net.h"

static const int64_t channels[NET_BLOCKS + 1] = {3, 16, 24, 32};

static fr_status leaf(fr_tensor **t) {
    return fr_tensor_set_requires_grad(*t, true);
}

fr_status net_create(net *n, fr_device device) {
    fr_status s = FR_OK;
    *n = (net){.device = device};
    for (int i = 0; i < NET_BLOCKS; i++) {
        fr_tensor **p = n->parameters + 4 * i;
        int64_t c[] = {channels[i + 1]}, w[] = {channels[i + 1], 3, 3, channels[i]};
        FR_TRY(s, fr_tensor_uniform(4, w, -0.2, 0.2, FR_F32, device, &p[0]));
        FR_TRY(s, fr_tensor_uniform(1, c, -0.1, 0.1, FR_F32, device, &p[1]));
        FR_TRY(s, fr_tensor_full(1, c, 1, FR_F32, device, &p[2]));
        FR_TRY(s, fr_tensor_zeros(1, c, FR_F32, device, &p[3]));
        FR_TRY(s, fr_tensor_zeros(1, c, FR_F32, device, &n->running_mean[i]));
        FR_TRY(s, fr_tensor_full(1, c, 1, FR_F32, device, &n->running_var[i]));
    }
    FR_TRY(s, fr_tensor_uniform(2, (int64_t[]){10, 32}, -0.5, 0.5, FR_F32, device, &n->parameters[4 * NET_BLOCKS]));
    for (int i = 0; i < NET_PARAMETERS; i++) FR_TRY(s, leaf(&n->parameters[i]));
done:
    return s;
}

void net_release(net *n) {
    for (int i = 0; i < NET_PARAMETERS; i++) fr_tensor_release(&n->parameters[i]);
    for (int i = 0; i < NET_BLOCKS; i++) {
        fr_tensor_release(&n->running_mean[i]);
        fr_tensor_release(&n->running_var[i]);
    }
}

static fr_status forward(net *n, fr_tensor **x) {
    fr_status s = FR_OK;
    for (int i = 0; i < NET_BLOCKS; i++) {
        fr_tensor **p = n->parameters + 4 * i;
        FR_TRY(s, fr_conv2d(*x, p[0], p[1], FR_CONV2D_OPTS(.padding = 1), x));
        FR_TRY(s, fr_batchnorm2d(*x, p[2], p[3], n->running_mean[i], n->running_var[i], NULL, x));
        FR_TRY(s, fr_relu(*x, x));
        FR_TRY(s, fr_maxpool2d(*x, 2, NULL, x));
        FR_TRY(s, fr_dropout(*x, 0.2, true, x));
    }
    FR_TRY(s, fr_adaptive_avgpool2d(*x, 1, 1, x));
    FR_TRY(s, fr_flatten(*x, 1, x));
    FR_TRY(s, fr_linear(*x, n->parameters[4 * NET_BLOCKS], NULL, x));
done:
    return s;
}

fr_status net_step(net *n, int64_t batch, double *loss) {
    fr_tensor *x = NULL, *target = NULL, *value = NULL;
    fr_step_scope scope;
    fr_status s = FR_OK;
    FR_TRY(s, fr_step_begin(&scope));
    FR_TRY(s, fr_tensor_uniform(4, (int64_t[]){batch, 32, 32, 3}, -1, 1, FR_F32, n->device, &x));
    FR_TRY(s, fr_tensor_full(1, (int64_t[]){batch}, 3, FR_I64, n->device, &target));
    FR_TRY(s, forward(n, &x));
    FR_TRY(s, fr_cross_entropy(x, target, NULL, &value));
    fr_tensor_release(&x);
    FR_TRY(s, fr_backward(value, NULL));
    *loss = 0;
    if (n->device != FR_META) FR_TRY(s, fr_tensor_item(value, loss));
done:
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&value);
    fr_step_end(&scope);
    return s;
}

fr_status net_update(net *n) {
    fr_status s = FR_OK;
    bool was = fr_no_grad_begin();
    for (int i = 0; i < NET_PARAMETERS; i++) {
        fr_tensor *p = n->parameters[i], *step = NULL;
        s = fr_scale(fr_tensor_get_grad(p), -0.1, &step);
        if (s == FR_OK) s = fr_add_inplace(p, step);
        fr_tensor_release(&step);
        if (s < 0) break;
        FR_TRY(s, fr_tensor_set_grad(p, NULL));
    }
done:
    fr_no_grad_end(was);
    return s;
}
