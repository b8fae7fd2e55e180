/* predict.c - an image's probabilities of classes, or class of each pixel, by a network. */
#include <frugal/models.h>
#include <frugal/try.h>

#include <math.h>
#include <stdlib.h>

/* Device of a network, and the input's type. */
typedef struct place {
    fr_device device;
    fr_dtype dtype;
} place;

static fr_status run_image(fr_module *m, const fr_image *image, const fr_loader_opts *as, place at, bool shares,
                           fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL;
    FRI_TRY(fr_image_preprocess(image, as, at.device, &x));
    FRI_TRY(fr_cast(x, at.dtype, &x));
    FRI_TRY(fr_module_forward(m, x, &x));
    FRI_TRY(fr_cast(x, FR_F32, &x));
    if (shares) FRI_TRY(fr_flatten(x, 0, &x));
    return shares ? fr_softmax(x, y) : fr_cast(x, FR_F32, y);
}

/* Device and type of the first parameter. */
static fr_status place_of(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (!is_parameter) return FR_OK;
    *(place *)ctx = (place){fr_tensor_device(t), fr_tensor_dtype(t)};
    return FR_END;
}

/* Result of the network for the image in host memory, or with `shares` the softmax, in eval mode, without a graph. */
static fr_status answer_of(fr_module *m, const fr_image *image, const fr_loader_opts *as, bool shares, fr_tensor **y,
                           float **values) {
    place at = {FR_CPU, FR_F32};
    fr_status s = fr_module_each_tensor(m, place_of, &at);
    if (s < 0) return s;
    bool grad = fr_no_grad_begin();
    fr_module_evaluation_begin(m);
    FR_TRY(s, run_image(m, image, as, at, shares, y));
    *values = malloc((size_t)fr_tensor_numel(*y) * sizeof **values);
    FR_TRY(s, *values != NULL ? FR_OK : fr_fail(FR_ENOMEM, "predict: out of host memory"));
    FR_TRY(s, fr_tensor_to_host(*y, *values));
    for (int64_t i = 0; i < fr_tensor_numel(*y) && s == FR_OK; i++)
        if (!((*values)[i] < INFINITY))
            s = fr_fail(FR_EINVAL,
                        "predict: result %lld of the network is %s: its weights, or the image's values, "
                        "overflow",
                        (long long)i, isnan((*values)[i]) ? "NaN" : "inf");
done:
    fr_module_evaluation_end(m);
    fr_no_grad_end(grad);
    return s;
}

fr_status fr_predict(fr_module *m, const fr_image *image, const fr_loader_opts *as, double *p, int64_t n) {
    if (m == NULL || image == NULL || p == NULL)
        return fr_fail(FR_EINVAL, "fr_predict: %s is NULL", m == NULL ? "m" : image == NULL ? "image" : "p");
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL;
    FRI_OWNED(fri_free) float *share = NULL;
    FRI_TRY(answer_of(m, image, as, true, &y, &share));
    if (fr_tensor_numel(y) != n)
        return fr_fail(FR_ESHAPE, "predict: the network has %lld results but the caller asks for %lld",
                       (long long)fr_tensor_numel(y), (long long)n);
    for (int64_t i = 0; i < n; i++) p[i] = (double)share[i];
    return FR_OK;
}

/* ---- masks ------------------------------------------------------------------------------------------------- */

/* Refuses to give the network a part of a side of the image. */
static fr_status check_whole(const char *side, int64_t size, int64_t resize, int64_t own) {
    const int64_t window = size == FR_LOADER_AUTO ? own : size;
    const int64_t from = resize == FR_LOADER_AUTO ? window : resize == FR_LOADER_NATIVE ? own : resize;
    if (window == from) return FR_OK;
    return fr_fail(FR_EINVAL,
                   "predict_mask: %s %lld is cut out of %lld, but a mask covers the whole image; leave out "
                   "the resize",
                   side, (long long)window, (long long)from);
}

/* Index of the first maximum, or of the first NaN, as in fr_count_correct. */
static uint8_t largest_of(const float *x, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n && x[at] == x[at]; i++)
        if (x[i] > x[at] || x[i] != x[i]) at = i;
    return (uint8_t)at;
}

fr_status fr_predict_mask(fr_module *m, const fr_image *image, const fr_loader_opts *as, int64_t classes,
                          uint8_t *mask) {
    if (m == NULL || image == NULL || mask == NULL)
        return fr_fail(FR_EINVAL, "fr_predict_mask: %s is NULL", m == NULL ? "m" : image == NULL ? "image" : "mask");
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL;
    FRI_OWNED(fri_free) float *value = NULL;
    const int64_t height = image->height, width = image->width;
    if (classes < 1 || classes > FR_MASK_IGNORED)
        return fr_fail(FR_EINVAL, "predict_mask: %lld classes, must lie in 1..%d", (long long)classes, FR_MASK_IGNORED);
    if (as != NULL) FRI_TRY(check_whole("height", as->height, as->resize_height, height));
    if (as != NULL) FRI_TRY(check_whole("width", as->width, as->resize_width, width));
    FRI_TRY(answer_of(m, image, as, false, &y, &value));
    if (fr_tensor_rank(y) != 4 || fr_tensor_dim(y, 3) != classes)
        return fr_fail(FR_ESHAPE,
                       "predict_mask: the network has %lld results in %d dimensions, not %lld classes for "
                       "each pixel: [1, height, width, classes]",
                       (long long)fr_tensor_numel(y), fr_tensor_rank(y), (long long)classes);
    const int64_t rows = fr_tensor_dim(y, 1), columns = fr_tensor_dim(y, 2);
    for (int64_t i = 0; i < height * width; i++) {
        const int64_t row = (2 * (i / width) + 1) * rows / (2 * height);
        const int64_t column = (2 * (i % width) + 1) * columns / (2 * width);
        mask[i] = largest_of(value + (row * columns + column) * classes, classes);
    }
    return FR_OK;
}
