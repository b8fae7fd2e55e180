/* write.c - fr_onnx_save. */
#include "addons/onnx/write.h"

enum { OLDEST = 13, NEWEST = 18 };

/* Results are "output", "output_1" ...; a repeated result keeps the first name. */
static void name_values(fri_onnx_writer *w) {
    const fr_net_info *net = &w->net;
    w->name = fri_onnx_block(w, (size_t)net->values * sizeof *w->name);
    for (int i = 0; i < net->values && w->name != NULL; i++) {
        const int made = fri_onnx_written_value(w, i).made_by;
        fr_layer l = {0};
        if (made >= 0) (void)fr_module_layer_get(w->network, made, &l);
        w->name[i] = made >= 0 ? fri_onnx_text(w, "/%s:%d", l.name, i)
                     : i == 0  ? fri_onnx_text(w, "input")
                               : fri_onnx_text(w, "input_%d", i);
    }
    for (int i = net->results - 1; i >= 0 && w->status == FR_OK; i--)
        if (fri_onnx_written_value(w, net->result[i]).made_by >= 0)
            w->name[net->result[i]] = i == 0 ? fri_onnx_text(w, "output") : fri_onnx_text(w, "output_%d", i);
}

static fr_status check(const fri_onnx_writer *w) {
    if (w->opset < OLDEST || w->opset > NEWEST)
        return fr_fail(FR_EINVAL, "opset %lld; %d to %d are written", (long long)w->opset, OLDEST, NEWEST);
    for (int i = 0; i < w->net.values; i++) {
        const fr_net_value v = fri_onnx_written_value(w, i);
        if (!fr_dtype_is_float(v.dtype) || (v.shape.rank != 4 && v.shape.rank != 2))
            return fr_fail(FR_EUNSUPPORTED, "value %d is %s of rank %d; images and rows of floats are written", i,
                           fr_dtype_name(v.dtype), v.shape.rank);
    }
    for (int i = 0; i < w->net.results; i++) {
        const fr_net_value v = fri_onnx_written_value(w, w->net.result[i]);
        if (fr_channels_turned(v.piece, v.pieces))
            return fr_fail(FR_EUNSUPPORTED,
                           "result %d comes from a Flatten, whose features have another order in ONNX; give it "
                           "ONNX's with fr_net_channel_shuffle(H W)",
                           i);
    }
    return FR_OK;
}

static fr_status write_layers(fri_onnx_writer *w) {
    for (int i = 0; i < w->net.layers; i++) {
        fr_layer a;
        FRI_TRY(fr_module_layer_get(w->network, i, &a));
        const fri_onnx_writing one = {
            .w = w,
            .layer = &a,
            .in = {w->name[a.in[0]], a.n_in > 1 ? w->name[a.in[1]] : NULL},
            .out = w->name[a.out[0]],
        };
        const fr_status s = fri_onnx_write_layer(&one);
        if (s < 0) return fr_fail_prefix(s, "layer '%.200s' (%s): ", a.name, fr_module_class_of(a.module)->name);
    }
    return FR_OK;
}

fr_net_value fri_onnx_written_value(const fri_onnx_writer *w, int i) {
    fr_net_value v = {0};
    (void)fr_net_value_get(w->network, i, &v);
    return v;
}

fr_status fr_onnx_save(fr_module *m, const char *path, const fr_onnx_save_opts *opts) {
    FRI_NOT_NULL(m);
    const fr_onnx_save_opts o = opts != NULL ? *opts : *FR_ONNX_SAVE_OPTS();
    fri_onnx_writer w = {.network = m, .opset = o.opset, .dry = path == NULL};
    fr_status s = FR_OK;
    if (o.info != NULL) FR_TRY(s, fr_weights_info_text(o.info, &w.info));
    FR_TRY(s, fri_onnx_protobuf_load());
    FR_TRY(s, fr_net_info_get(m, &w.net));
    FR_TRY(s, check(&w));
    FR_TRY(s, fr_entries_collect(m, &w.entries));
    FR_TRY(s, fr_entries_torch_layout(m, FR_WEIGHTS_OPTS(), &w.entries));
    name_values(&w);
    FR_TRY(s, w.status);
    FR_TRY(s, write_layers(&w));
    if (path != NULL) s = fri_onnx_pack(&w, path);
done:
    fri_onnx_writer_free(&w);
    if (s < 0 && path != NULL) return fr_fail_prefix(s, "saving ONNX: file '%.300s': ", path);
    return s < 0 ? fr_fail_prefix(s, "saving ONNX: ") : s;
}
