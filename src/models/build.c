/* build.c - see build.h. */
#include "models/build.h"

#include <string.h>

fr_status fri_add(fr_module *m, const char *name, fr_module **child) {
    return name != NULL ? fr_module_add_child(m, name, child) : fr_nn_append(m, child);
}

fr_status fri_add_conv(fr_module *m, const char *name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                       int64_t padding, bool bias, fri_conv_init init, fr_device device) {
    fr_module *c = NULL;
    fr_conv2d_module_opts o = *FR_CONV2D_MODULE_OPTS(.bias = bias);
    o.conv.stride = stride;
    o.conv.padding = padding;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_conv2d(in, out, kernel, &o, device, &c));
    if (init != FRI_INIT_DEFAULT) {
        FRI_TRY(s, fr_init_kaiming_normal(fr_module_tensor(c, "weight"), init == FRI_INIT_FAN_OUT));
        if (bias) FRI_TRY(s, fr_tensor_fill(fr_module_tensor(c, "bias"), 0));
    }
    FRI_TRY(s, fri_add(m, name, &c));
done:
    fr_module_release(&c);
    return s;
}

fr_status fri_add_batchnorm(fr_module *m, const char *name, int64_t channels, fr_device device) {
    fr_module *b = NULL;
    fr_status s = fr_nn_batchnorm2d(channels, device, &b);
    return s < 0 ? s : fri_add(m, name, &b);
}

fr_status fri_add_linear(fr_module *m, const char *name, int64_t in, int64_t out, fr_device device) {
    fr_module *l = NULL;
    fr_status s = fr_nn_linear(in, out, true, device, &l);
    return s < 0 ? s : fri_add(m, name, &l);
}

fr_status fri_add_relu(fr_module *m, const char *name) {
    fr_module *r = NULL;
    fr_status s = fr_nn_relu(&r);
    return s < 0 ? s : fri_add(m, name, &r);
}

fr_status fri_add_activated_norm(fr_module *m, const char *name, int64_t channels, const fr_model_opts *o) {
    fr_module *b = NULL;
    if (o->abn_slope == 0) return fri_add_batchnorm(m, name, channels, o->device);
    fr_status s = fr_nn_inplace_abn(channels, o->abn_slope, o->device, &b);
    return s < 0 ? s : fri_add(m, name, &b);
}

fr_status fri_add_activation(fr_module *m, const char *name, const fr_model_opts *o) {
    fr_module *i = NULL;
    if (o->abn_slope == 0) return fri_add_relu(m, name);
    fr_status s = fr_nn_identity(&i);
    return s < 0 ? s : fri_add(m, name, &i);
}

fr_status fri_add_maxpool(fr_module *m, const char *name, int64_t kernel, int64_t stride, int64_t padding) {
    fr_module *p = NULL;
    fr_status s = fr_nn_maxpool2d(kernel, FR_POOL2D_OPTS(.stride = stride, .padding = padding), &p);
    return s < 0 ? s : fri_add(m, name, &p);
}

static int index_of(const fr_module *m, const char *name) {
    for (int i = 0; i < m->n_children; i++)
        if (strcmp(m->names[i], name) == 0) return i;
    return -1;
}

fr_module *fri_child(fr_module *m, const char *name) {
    int i = index_of(m, name);
    return i < 0 ? NULL : m->children[i];
}

fr_status fri_run(fr_module *m, const char *name, fr_tensor **x) {
    int i = index_of(m, name);
    if (i < 0) return fri_fail(FR_EINTERNAL, "module %s has no child '%s'", m->class_->name, name);
    return fr_module_run_child(m, i, x);
}

fr_status fri_run_chain(fr_module *m, const char *name, const fri_norm_tail *tail, fr_tensor **x) {
    fr_module *chain = fri_child(m, name);
    if (chain == NULL) return fri_fail(FR_EINTERNAL, "module %s has no child '%s'", m->class_->name, name);
    const char *was = fri_scope_module_push(name);
    fr_status s = fri_module_run_chain(chain, tail, x);
    fri_scope_module_pop(was);
    if (s == FR_OK) fri_module_ran(chain, name, *x);
    return s;
}

fr_status fri_run_norm(fr_module *m, const char *conv, const char *norm, const fri_norm_tail *tail, fr_tensor **x) {
    fr_module *c = conv != NULL ? fri_child(m, conv) : NULL, *n = fri_child(m, norm);
    fr_tensor *sums = NULL;
    fr_status s = FR_OK;
    if (n == NULL || (conv != NULL && c == NULL))
        return fri_fail(FR_EINTERNAL, "module %s has no child '%s'", m->class_->name, n == NULL ? norm : conv);
    fri_norm_tail here = tail != NULL ? *tail : (fri_norm_tail){0};
    here.module = fri_scope_module();
    if (c != NULL) FRI_TRY(s, fri_layer_run(c, conv, &(fri_layer_args){.next = n, .sums = &sums}, x));
    FRI_TRY(s, fri_layer_run(n, norm, &(fri_layer_args){.sums = &sums, .tail = tail != NULL ? &here : NULL}, x));
done:
    fr_tensor_release(&sums);
    return s;
}

fr_status fri_model_opts(const char *model, const fr_model_opts *opts, int64_t stride, fr_model_opts *out) {
    *out = opts != NULL ? *opts : *FR_MODEL_OPTS();
    if (out->classes < 1 || out->in_channels < 1)
        return fri_fail(FR_EINVAL, "%s: %lld classes, %lld input channels; both must be >= 1", model,
                        (long long)out->classes, (long long)out->in_channels);
    if (!(out->abn_slope >= 0))
        return fri_fail(FR_EINVAL, "%s: abn_slope is %g; it must be > 0, or 0 for batch norm and relu", model,
                        out->abn_slope);
    if (out->image_size < stride)
        return fri_fail(FR_EINVAL, "%s: images of %lld pixels are smaller than the network's stride of %lld", model,
                        (long long)out->image_size, (long long)stride);
    return FR_OK;
}

bool fri_global_head(const fr_model_opts *o) {
    enum { SMALL_IMAGE = 64 };
    return o->head == FR_HEAD_GLOBAL || (o->head == FR_HEAD_AUTO && o->image_size < SMALL_IMAGE);
}
