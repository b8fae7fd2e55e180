/* app_camera.c - training inside an application: a thread trains on a camera's last 256 frames within 64 MiB while the
 * main thread names each new frame, with a copy of the network that follows the training. The camera is made up.
 *
 *     build/examples/app_camera [SECONDS]          (5; in the middle the training is stopped and gone on with) */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 64, FRAMES = 256, KINDS = 4, PER_SECOND = 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the ring, the copy, `now` and `running` */
static uint8_t frame[FRAMES][SIDE * SIDE], kind[FRAMES];
static fr_module *eyes;
static fr_session_info now;
static fr_session *running; /* NULL before its first step */
static atomic_bool quit;

static void camera(int64_t i) { /* noise; one quarter of the picture is brighter */
    kind[i] = (uint8_t)(rand() % KINDS);
    for (int p = 0; p < SIDE * SIDE; p++)
        frame[i][p] = (uint8_t)(rand() % 200 + (p / SIDE / 32 * 2 + p % SIDE / 32 == kind[i] ? 20 : 0));
}

static fr_status read_frame(void *ctx, int64_t i, uint8_t *pixels, int64_t *label) {
    (void)ctx, pthread_mutex_lock(&lock);
    memcpy(pixels, frame[i], SIDE * SIDE);
    *label = kind[i];
    return pthread_mutex_unlock(&lock), FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 3});
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
    const fr_dataset_source source = {"camera", FRAMES, KINDS, SIDE, SIDE, 1, read_frame};
    fr_session_opts o = fr_session_opts_default();
    fr_session *session = NULL;
    fr_dataset *d = NULL;
    o.train.memory_budget = 64 << 20, o.train.epochs = 1 << 20, o.train.lr = 0.01, o.train.threads = 1;
    o.model = network, o.on_step = follow, o.ctx = &session;
    fr_status s = fr_dataset_create(&source, &d);
    if (s == FR_OK) s = fr_session_create(&o, d, NULL, &session);
    while (s == FR_OK && !quit) s = fr_session_run(session); /* until it is cancelled */
    if (s < 0) fprintf(stderr, "app_camera: %s\n", fr_last_error());
    fr_session_release(&session);
    return fr_dataset_release(&d), *(fr_status *)status = s, NULL;
}

static bool names(int64_t i) { /* does the copy name this frame? */
    const fr_image image = {.pixels = frame[i], .height = SIDE, .width = SIDE, .channels = 1};
    const fr_loader_opts *as = FR_LOADER_OPTS(.channels = 3, .mean = {now.mean[0], now.mean[1], now.mean[2]},
                                              .std = {now.std[0], now.std[1], now.std[2]});
    double p[KINDS];
    return now.step > 0 && fr_predict(eyes, &image, as, p, KINDS) == FR_OK && p[kind[i]] > 0.5;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 5, right = 0;
    fr_status s = FR_OK;
    pthread_t thread;
    fr_memory_use use = {0};
    for (int i = 0; i < FRAMES; i++) camera(i);
    if (network(NULL, FR_CPU, KINDS, &eyes) < 0 || pthread_create(&thread, NULL, train, &s) != 0) return 1;
    for (int t = 1; t <= seconds * PER_SECOND; t++) {
        usleep(1000000 / PER_SECOND);
        pthread_mutex_lock(&lock);
        camera(t % FRAMES);
        right += names(t % FRAMES);
        if (t % PER_SECOND == 0) printf("step %d, loss %.3f, named %d\n", (int)now.step, now.loss, right), right = 0;
        quit = t == seconds * PER_SECOND;
        if (quit || t == seconds * PER_SECOND / 2) fr_session_cancel(running), fr_memory_use_get(FR_CPU, &use);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(thread, NULL);
    fr_module_release(&eyes);
    return printf("%zu bytes planned, %zu resident\n", now.planned, use.process) < 0 || s < 0;
}
