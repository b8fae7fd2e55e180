/* app_camera.c - training inside an application: a thread trains on a camera's last 256 frames within 64 MiB while the
 * main thread names each new frame, with a copy of the network that follows the training. The camera is made up.
 *
 *     build/examples/app_camera [SECONDS]          (5; in the middle the training is stopped and gone on with) */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE = 64, FRAMES = 256, KINDS = 4, PER_SECOND = 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next three */
static fr_module *eyes;                                  /* the copy that names frames */
static fr_session_info now;
static fr_session *running; /* NULL before its first step */
static fr_dataset *frames;  /* a ring: camera() pushes, the session's workers read */
static atomic_bool quit;

static int64_t camera(uint8_t *pixels) { /* noise; one quarter of the picture is brighter */
    int64_t kind = rand() % KINDS;
    for (int p = 0; p < SIDE * SIDE; p++)
        pixels[p] = (uint8_t)(rand() % 200 + (p / SIDE / 32 * 2 + p % SIDE / 32 == kind ? 20 : 0));
    return fr_dataset_push(frames, pixels, &kind) == FR_OK ? kind : -1;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 1});
    for (int i = 0; i < 4; i++) {
        x = fr_net_conv2d(n, NULL, x, 16 << i, 3, FR_CONV2D_OPTS(.stride = 2, .padding = 1), FR_NO_BIAS);
        x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    }
    x = fr_net_linear(n, NULL, fr_net_flatten(n, NULL, x, 1), classes, FR_BIAS);
    return (void)ctx, fr_net_end(&n, &x, 1, out);
}

static fr_status follow(void *session, const fr_session_info *info) { /* between two steps */
    pthread_mutex_lock(&lock);
    now = *info, running = *(fr_session **)session;
    fr_status s = fr_module_copy_from(eyes, fr_session_module(running));
    return pthread_mutex_unlock(&lock), s;
}

static void *train(void *status) {
    fr_session *session = NULL;
    fr_session_opts o = fr_session_opts_default();
    o.train.memory_budget = 64 << 20, o.train.epochs = 1 << 20, o.train.lr = 0.01, o.train.threads = 1;
    o.model = network, o.on_step = follow, o.ctx = &session;
    fr_status s = fr_session_create(&o, frames, NULL, &session); /* plans, and fits into the budget */
    while (s == FR_OK && !quit) s = fr_session_run(session);     /* until it is cancelled */
    if (s < 0) fprintf(stderr, "app_camera: %s\n", fr_last_error());
    return fr_session_release(&session), *(fr_status *)status = s, NULL;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 5, right = 0;
    uint8_t pixels[SIDE * SIDE];
    double p[KINDS];
    const fr_image image = {.pixels = pixels, .height = SIDE, .width = SIDE, .channels = 1};
    fr_status s = fr_dataset_create(&(fr_dataset_source){"camera", FRAMES, KINDS, SIDE, SIDE, 1}, &frames);
    pthread_t thread;
    fr_memory_use use = {0};
    for (int i = 0; i < FRAMES && s == FR_OK; i++) s = camera(pixels) < 0;
    if (s || network(NULL, FR_CPU, KINDS, &eyes) < 0 || pthread_create(&thread, NULL, train, &s) != 0) return 1;
    for (int t = 1; t <= seconds * PER_SECOND; t++) {
        usleep(1000000 / PER_SECOND);
        int64_t kind = camera(pixels);
        pthread_mutex_lock(&lock);
        const fr_loader_opts *as = FR_LOADER_OPTS(.mean = {now.mean[0]}, .std = {now.std[0]});
        right += now.step > 0 && fr_predict(eyes, &image, as, p, KINDS) == FR_OK && p[kind] > 0.5;
        if (t % PER_SECOND == 0) printf("step %d, loss %.3f, named %d\n", (int)now.step, now.loss, right), right = 0;
        quit = t == seconds * PER_SECOND;
        if (quit || t == seconds * PER_SECOND / 2) fr_session_cancel(running), fr_memory_use_get(FR_CPU, &use);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(thread, NULL);
    fr_module_release(&eyes), fr_dataset_release(&frames);
    return printf("%zu bytes planned, %zu resident\n", now.planned, use.process) < 0 || s < 0;
}
