/* app_camera.c - trains inside an application. A background thread trains on a camera's last 256 frames within 64 MiB;
 * meanwhile the main thread names each new frame with a copy of the network. The camera is simulated.
 *
 *     build/examples/app_camera [SECONDS]     5 without it; halfway the training is stopped and continued */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE = 64, FRAMES = 256, KINDS = 4, FRAMES_PER_SECOND = 20 };

/* State that both threads share. `lock` guards the fields below it. */
typedef struct app {
    fr_dataset *frames; /* ring: the main thread pushes frames, the session's workers read */
    atomic_bool quit;
    fr_status trained; /* result of the training thread */
    pthread_mutex_t lock;
    fr_module *copy;       /* network that names frames */
    fr_session *session;   /* NULL before the first step */
    fr_session_info state; /* of the session, after its last step */
} app;

/* Makes a frame of noise, one quarter of which is brighter, and pushes it into the ring. */
static fr_status next_frame(app *a, uint8_t *pixels, int64_t *kind) {
    *kind = rand() % KINDS;
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int quarter = 2 * (y / (SIDE / 2)) + x / (SIDE / 2);
            pixels[y * SIDE + x] = (uint8_t)(rand() % 200 + (quarter == *kind ? 20 : 0));
        }
    }
    return fr_dataset_push(a->frames, pixels, kind);
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 1});
    for (int i = 0; i < 4; i++) {
        x = fr_net_conv2d(n, NULL, x, 16 << i, 3, FR_CONV2D_OPTS(.stride = 2, .padding = 1), FR_NO_BIAS);
        x = fr_net_batchnorm2d(n, NULL, x, NULL);
        x = fr_net_relu(n, NULL, x);
    }
    x = fr_net_flatten(n, NULL, x, 1);
    x = fr_net_linear(n, NULL, x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

/* ---- the training thread ------------------------------------------------------------------------------------ */

/* Refreshes the copy after each step. */
static fr_status on_step(void *ctx, const fr_session_info *now) {
    app *a = ctx;
    pthread_mutex_lock(&a->lock);
    a->state = *now;
    fr_status s = fr_module_copy_from(a->copy, fr_session_module(a->session));
    pthread_mutex_unlock(&a->lock);
    return s;
}

static void set_session(app *a, fr_session *session) {
    pthread_mutex_lock(&a->lock);
    a->session = session;
    pthread_mutex_unlock(&a->lock);
}

static void *train(void *ctx) {
    app *a = ctx;
    fr_session *session = NULL;
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.on_step = on_step;
    o.ctx = a;
    o.train.memory.budget = 64 << 20;
    o.train.optim.epochs = 1 << 20;
    o.train.optim.lr = 0.01;
    o.train.threads = 1;

    a->trained = fr_session_create(&o, a->frames, NULL, &session); /* plans, fits, takes the memory */
    set_session(a, session);
    while (a->trained == FR_OK && !a->quit) a->trained = fr_session_run(session); /* returns when cancelled */
    if (a->trained < 0) fprintf(stderr, "app_camera: training: %s\n", fr_last_error());
    set_session(a, NULL);
    fr_session_release(&session);
    return NULL;
}

/* ---- the main thread ---------------------------------------------------------------------------------------- */

/* *right: the copy gives the frame's kind a probability above one half. */
static fr_status name_frame(app *a, const uint8_t *pixels, int64_t kind, bool *right) {
    const fr_image image = {.pixels = pixels, .height = SIDE, .width = SIDE, .channels = 1};
    double p[KINDS] = {0};
    fr_status s = FR_OK;
    pthread_mutex_lock(&a->lock);
    if (a->state.step > 0) {
        fr_loader_opts input = *FR_LOADER_OPTS(.mean = {a->state.mean[0]}, .std = {a->state.std[0]});
        s = fr_predict(a->copy, &image, &input, p, KINDS);
    }
    pthread_mutex_unlock(&a->lock);
    *right = p[kind] > 0.5;
    return s;
}

static void stop_training(app *a) {
    pthread_mutex_lock(&a->lock);
    if (a->session != NULL) fr_session_cancel(a->session); /* train() continues it unless quit is set */
    pthread_mutex_unlock(&a->lock);
}

static void print_second(app *a, int named) {
    pthread_mutex_lock(&a->lock);
    printf("step %d, loss %.3f, named %d of %d frames\n", (int)a->state.step, a->state.loss, named, FRAMES_PER_SECOND);
    pthread_mutex_unlock(&a->lock);
}

static fr_status watch(app *a, int seconds) {
    uint8_t pixels[SIDE * SIDE];
    const int last = seconds * FRAMES_PER_SECOND;
    int named = 0;
    int64_t kind = 0;
    fr_status s = FR_OK;
    for (int frame = 1; frame <= last && s == FR_OK; frame++) {
        bool right = false;
        usleep(1000000 / FRAMES_PER_SECOND);
        s = next_frame(a, pixels, &kind);
        if (s == FR_OK) s = name_frame(a, pixels, kind, &right);
        named += right;
        if (frame % FRAMES_PER_SECOND == 0) {
            print_second(a, named);
            named = 0;
        }
        if (frame == last / 2) stop_training(a);
    }
    return s;
}

int main(int argc, char **argv) {
    app a = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int seconds = argc > 1 ? atoi(argv[1]) : 5;
    uint8_t pixels[SIDE * SIDE];
    int64_t kind = 0;
    pthread_t thread;
    fr_memory_use use = {0};
    fr_status s = FR_OK;

    if (argc > 2 || seconds < 1) {
        fprintf(stderr, "usage: app_camera [SECONDS]\n");
        return 2;
    }
    FR_TRY(s, fr_dataset_create(&(fr_dataset_source){"camera", FRAMES, KINDS, SIDE, SIDE, 1}, &a.frames));
    for (int i = 0; i < FRAMES; i++) FR_TRY(s, next_frame(&a, pixels, &kind));
    FR_TRY(s, network(NULL, FR_CPU, KINDS, &a.copy));
    if (pthread_create(&thread, NULL, train, &a) != 0) FR_TRY(s, fr_fail(FR_EIO, "the training thread cannot start"));

    s = watch(&a, seconds);
    fr_memory_use_get(FR_CPU, &use);
    a.quit = true;
    stop_training(&a);
    pthread_join(thread, NULL);
    printf("%zu bytes planned for training, %zu resident\n", a.state.planned, use.process);
done:
    if (s < 0) fprintf(stderr, "app_camera: %s\n", fr_last_error());
    fr_module_release(&a.copy);
    fr_dataset_release(&a.frames);
    return s < 0 || a.trained < 0; /* train() has printed the sentence of its thread */
}
