/* write.c - fr_onnx_save. */
#include "onnx/write.h"

#include <stdlib.h>
#include <string.h>

enum { OLDEST = 13, NEWEST = 18 };

/* Results are "output", "output_1" ...; a value that another one is already keeps its name. */
static void name_values(fri_onnx_writer *w) {
    const fri_list *l = w->list;
    w->name = fri_onnx_block(w, (size_t)l->values * sizeof *w->name);
    for (int i = 0; i < l->values && w->name != NULL; i++) {
        const int made = l->value[i].made_by;
        w->name[i] = made >= 0 ? fri_onnx_text(w, "/%s:%d", l->layer[made].name, i)
                     : i == 0  ? fri_onnx_text(w, "input")
                               : fri_onnx_text(w, "input_%d", i);
    }
    for (int i = l->results - 1; i >= 0 && w->status == FR_OK; i--)
        if (l->value[l->result[i]].made_by >= 0)
            w->name[l->result[i]] = i == 0 ? fri_onnx_text(w, "output") : fri_onnx_text(w, "output_%d", i);
}

static fr_status check(fr_module *m, const fr_onnx_save_opts *o) {
    if (!fri_is_net(m)) return fr_fail(FR_EINVAL, "%s is no network (net.h)", fr_module_class_of(m)->name);
    if (o->opset < OLDEST || o->opset > NEWEST)
        return fr_fail(FR_EINVAL, "opset %lld; %d to %d are written", (long long)o->opset, OLDEST, NEWEST);
    const fri_list *l = fri_list_edit(m);
    for (int i = 0; i < l->values; i++)
        if (!fr_dtype_is_float(l->value[i].dtype) || (l->value[i].shape.rank != 4 && l->value[i].shape.rank != 2))
            return fr_fail(FR_EUNSUPPORTED, "value %d is %s of rank %d; images and rows of floats are written", i,
                           fr_dtype_name(l->value[i].dtype), l->value[i].shape.rank);
    return FR_OK;
}

static fr_status write_layers(fri_onnx_writer *w) {
    for (int i = 0; i < w->list->layers; i++) {
        const fri_net_layer *a = &w->list->layer[i];
        const fri_onnx_writing one = {w,
                                      a,
                                      {w->name[a->in[0]], a->n_in > 1 ? w->name[a->in[1]] : NULL},
                                      w->name[a->out[0]]};
        fr_status s = fri_onnx_write_layer(&one);
        if (s == FR_OK) s = w->status;
        if (s < 0) return fr_fail_prefix(s, "layer '%.200s' (%s): ", a->name, a->module->class_->name);
    }
    return FR_OK;
}

fr_status fr_onnx_save(fr_module *m, const char *path, const fr_onnx_save_opts *opts) {
    FRI_NOT_NULL(m);
    const fr_onnx_save_opts o = opts != NULL ? *opts : *FR_ONNX_SAVE_OPTS();
    fri_onnx_writer w = {.opset = o.opset, .dry = path == NULL};
    fr_status s = FR_OK;
    FR_TRY(s, check(m, &o));
    w.list = fri_list_edit(m);
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
