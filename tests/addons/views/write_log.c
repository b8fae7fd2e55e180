/* write_log.c - a run of 6 steps that is killed and resumed at step 3, in event files, for test_tensorboard.py.
 *
 *   write_log FOLDER */
#include <frugal/views.h>

#include <stdio.h>

static fr_status steps(const char *folder, int64_t resume, int64_t from, int64_t to, double shift) {
    fr_tensorboard log = {.fd = -1};
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensorboard_open(folder, resume, &log));
    for (int64_t i = from; i <= to; i++) {
        fr_log_step p = {.step = i,
                         .loss = 2.0 / (double)i + shift,
                         .lr = 0.1,
                         .scale = 65536,
                         .skipped = i == 2,
                         .images_per_second = 250,
                         .allocated = 1u << 20,
                         .peak = 1u << 21};
        FR_TRY(s, fr_tensorboard_step(&log, &p));
    }
    FR_TRY(s, fr_tensorboard_scalar(&log, "test/accuracy", to, 0.5 + shift));
done:
    fr_tensorboard_close(&log);
    return s;
}

int main(int argc, char **argv) {
    fr_status s = FR_OK;
    if (argc != 2) {
        fprintf(stderr, "usage: write_log FOLDER\n");
        return 2;
    }
    FR_TRY(s, steps(argv[1], -1, 1, 5, 0));
    FR_TRY(s, steps(argv[1], 3, 4, 6, 100));
done:
    if (s < 0) fprintf(stderr, "write_log: %s: %s\n", fr_status_name(s), fr_last_error());
    return s < 0;
}
