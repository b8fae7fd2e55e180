/* predict.c - a classifier's probabilities for an image. */
#include <frugal/models.h>
#include <frugal/try.h>

#include <math.h>
#include <stdlib.h>

/* Device of a network, and the input's type. */
typedef struct place {
    fr_device device;
    fr_dtype dtype;
} place;

static fr_status run_image(fr_module *m, const fr_image *image, const fr_loader_opts *as, place at, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL;
    FRI_TRY(fr_image_preprocess(image, as, at.device, &x));
    FRI_TRY(fr_cast(x, at.dtype, &x));
    FRI_TRY(fr_module_forward(m, x, &x));
    return fr_cast(x, FR_F32, y);
}

/* Device and type of the first parameter. */
static fr_status place_of(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (!is_parameter) return FR_OK;
    *(place *)ctx = (place){fr_tensor_device(t), fr_tensor_dtype(t)};
    return FR_END;
}

fr_status fr_predict(fr_module *m, const fr_image *image, const fr_loader_opts *as, double *p, int64_t n) {
    if (m == NULL || image == NULL || p == NULL)
        return fr_fail(FR_EINVAL, "fr_predict: %s is NULL", m == NULL ? "m" : image == NULL ? "image" : "p");
    place at = {FR_CPU, FR_F32};
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL;
    FRI_OWNED(fri_free) float *logit = NULL;
    double largest = -INFINITY, sum = 0;
    fr_status s = fr_module_each_tensor(m, place_of, &at);
    if (s < 0) return s;
    bool grad = fr_no_grad_begin();
    fr_module_evaluation_begin(m);
    FR_TRY(s, run_image(m, image, as, at, &y));
    if (fr_tensor_numel(y) != n) {
        s = fr_fail(FR_ESHAPE, "predict: the network has %lld results but the caller asks for %lld",
                    (long long)fr_tensor_numel(y), (long long)n);
        goto done;
    }
    logit = malloc((size_t)n * sizeof *logit);
    FR_TRY(s, logit != NULL ? FR_OK : fr_fail(FR_ENOMEM, "predict: out of host memory"));
    FR_TRY(s, fr_tensor_to_host(y, logit));
    for (int64_t i = 0; i < n; i++) largest = (double)logit[i] > largest ? (double)logit[i] : largest;
    for (int64_t i = 0; i < n; i++) {
        p[i] = exp((double)logit[i] - largest);
        sum += p[i];
    }
    for (int64_t i = 0; i < n; i++) p[i] /= sum;
done:
    fr_module_evaluation_end(m);
    fr_no_grad_end(grad);
    return s;
}
