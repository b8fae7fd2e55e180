/* progress.c - the output of a run: one line that is redrawn on a terminal, plain lines elsewhere. */
#include "trainer/command.h"

#include "session/flags.h"

#include "backend/backend.h"
#include "base/process.h"
#include "memory/report.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 512 };
static const double REDRAW_SECONDS = 0.1; /* interval of the live line */
static const double PLAIN_SECONDS = 10;   /* interval of plain lines */

static bool on_terminal(const fri_run *r) {
    return isatty(fileno(r->config->out)) == 1;
}

/* "12.3 %", or "-" if value is NAN or infinite. */
static const char *number_text(char *buf, size_t bytes, const char *format, double value) {
    if (isfinite(value))
        fr_snprintf(buf, bytes, format, value);
    else
        snprintf(buf, bytes, "-");
    return buf;
}

static const char *clock_text(char *buf, size_t bytes, double seconds) {
    int64_t s = isfinite(seconds) ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(buf, bytes, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(buf, bytes, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return buf;
}

const char *fri_duration_text(double seconds, char buf[FRI_DURATION_TEXT]) {
    int64_t s = isfinite(seconds) ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(buf, FRI_DURATION_TEXT, "%" PRId64 " h %d min", s / 3600, (int)(s / 60 % 60));
    else if (s >= 60)
        snprintf(buf, FRI_DURATION_TEXT, "%d min %d s", (int)(s / 60), (int)(s % 60));
    else
        fr_snprintf(buf, FRI_DURATION_TEXT, s < 10 ? "%.1f s" : "%.0f s", isfinite(seconds) ? seconds : 0);
    return buf;
}

/* Result of the last evaluation: accuracy, or loss if there is no accuracy. */
static const char *result_of(const fri_run *r, char *buf, size_t bytes) {
    if (r->config->accuracy) return number_text(buf, bytes, "%.2f %%", 100 * r->tested.accuracy);
    return number_text(buf, bytes, "loss %.4g", r->tested.loss);
}

/* Fills in epoch, step, loss and accuracy of the epoch, speed and memory. */
static void describe_progress(const fri_run *r, char line[LINE_BYTES]) {
    char loss[32], accuracy[32], speed[32], now_text[FR_BYTES_TEXT], peak_text[FR_BYTES_TEXT];
    fr_memory_stats m = {0};
    (void)fr_memory_stats_get(r->config->opts.device, &m);
    size_t peak =
        m.peak_allocated > r->memory.training.peak_allocated ? m.peak_allocated : r->memory.training.peak_allocated;
    int length = fr_snprintf(line, LINE_BYTES,
                             "epoch %2" PRId64 "/%" PRId64 "  step %4" PRId64 "/%" PRId64
                             "  loss %s  accuracy %s  %s images/s  memory %s, peak %s",
                             r->at.epoch + 1, fri_epochs_total(r->config), r->at.step, fri_steps_total(r->config),
                             number_text(loss, sizeof loss, "%.4f", fri_epoch_loss(r)),
                             number_text(accuracy, sizeof accuracy, "%5.2f %%", 100 * fri_epoch_accuracy(r)),
                             number_text(speed, sizeof speed, "%.1f", fri_images_per_second(r)),
                             fr_bytes_text(m.allocated, now_text), fr_bytes_text(peak, peak_text));
    size_t at = length > 0 && length < LINE_BYTES ? (size_t)length : strlen(line);
    if (fri_loss_scaled(&r->config->opts) && r->net.scaler != NULL)
        fr_snprintf(line + at, LINE_BYTES - at, "  scale %g, %" PRId64 " skipped", r->numbers.scale,
                    r->numbers.skipped);
}

void fri_progress_said(void *config, fri_saying how, const char *text) {
    const fri_config *c = config;
    if (how == FRI_SAY_STEP && isatty(fileno(c->out)) == 1) fputs("\r\033[K", c->out);
    fri_said_print(how == FRI_SAY_WARNING ? c->err : c->out, c->program->name, how, text);
}

static int terminal_columns(const fri_run *r) {
    struct winsize size = {0};
    if (ioctl(fileno(r->config->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
    return 80;
}

enum { PARTS = 8 + FR_METRICS_MAX, PART = 64 };

/* Prints the parts of a line, most important first, and omits parts that would exceed the terminal's width. */
static void print_fitted(const fri_run *r, char part[][PART], int n) {
    fputs("\r", r->config->out);
    for (int i = 0, used = 1; i < n && (used += (int)strlen(part[i])) <= terminal_columns(r); i++)
        fputs(part[i], r->config->out);
    fputs("\033[K", r->config->out);
}

/* Redraws the live line. */
static void redraw_line(const fri_run *r) {
    char part[PARTS][PART], text[32], size[FR_BYTES_TEXT];
    fr_memory_stats m = {0};
    double left = fri_median_step_ms(r) / 1000 * (double)(fri_steps_total(r->config) - r->at.step);
    (void)fr_memory_stats_get(r->config->opts.device, &m);
    snprintf(part[0], PART, "ETA %s", clock_text(text, sizeof text, left));
    fr_snprintf(part[1], PART, "  loss %s", number_text(text, sizeof text, "%.4f", fri_epoch_loss(r)));
    fr_snprintf(part[2], PART, "  %s", number_text(text, sizeof text, "%.2f %%", 100 * fri_epoch_accuracy(r)));
    snprintf(part[3], PART, "  epoch %" PRId64 "/%" PRId64, r->at.epoch + 1, fri_epochs_total(r->config));
    snprintf(part[4], PART, "  step %" PRId64 "/%" PRId64, r->at.step, fri_steps_total(r->config));
    snprintf(part[5], PART, "  peak %s", fr_bytes_text(m.peak_allocated, size));
    fr_snprintf(part[6], PART, "  %s images/s", number_text(text, sizeof text, "%.1f", fri_images_per_second(r)));
    print_fitted(r, part, 7);
    fflush(r->config->out);
}

/* Prints the final line of an epoch on a terminal. */
static void print_kept_line(const fri_run *r) {
    char part[PARTS][PART], text[32];
    int parts = 6;
    snprintf(part[0], PART, "epoch %2" PRId64 "/%" PRId64, r->at.epoch + 1, fri_epochs_total(r->config));
    fr_snprintf(part[1], PART, "  loss %s", number_text(text, sizeof text, "%.4f", fri_epoch_loss(r)));
    fr_snprintf(part[2], PART, "  accuracy %s", number_text(text, sizeof text, "%.2f %%", 100 * fri_epoch_accuracy(r)));
    snprintf(part[3], PART, "  test %s", result_of(r, text, sizeof text));
    snprintf(part[4], PART, "  %s", clock_text(text, sizeof text, r->at.seconds));
    fr_snprintf(part[5], PART, "  %s images/s", number_text(text, sizeof text, "%.1f", fri_images_per_second(r)));
    if (fri_loss_scaled(&r->config->opts) && r->net.scaler != NULL)
        fr_snprintf(part[parts++], PART, "  scale %g, %" PRId64 " skipped", r->numbers.scale, r->numbers.skipped);
    for (int64_t i = 0; i < r->config->program->n_metrics; i++)
        fr_snprintf(part[parts++], PART, "  %s %g", r->config->program->metric_names[i], r->tested.metric[i]);
    print_fitted(r, part, parts);
    fputc('\n', r->config->out);
}

static void print_begin(const fri_run *r) {
    char library[160], size[FR_FLAG_TEXT_BYTES], smoothing[48] = "";
    if (r->config->opts.optim.label_smoothing > 0) /* the loss then ends above 0 */
        fr_snprintf(smoothing, sizeof smoothing, "; label smoothing %g", r->config->opts.optim.label_smoothing);
    (void)fri_device_describe(r->config->opts.device, library, sizeof library);
    char trained[48] = "";
    const char *no_gpu = ""; /* why --device auto is the CPU in a build with CUDA */
    if (fri_device_built(FR_CUDA) && r->config->opts.device == FR_CPU &&
        !fri_flag_given(fri_flag_find("device"), r->config->argc, r->config->argv))
        no_gpu = fr_device_reason(FR_CUDA);
    if (r->net.trained < r->net.parameters)
        snprintf(trained, sizeof trained, ", %" PRId64 " of them trained", r->net.trained);
    fprintf(r->config->out, "%s, %" PRId64 " parameters%s, on %s%s%s%s%s%s\n", r->config->model_name, r->net.parameters,
            trained, fr_device_name(r->config->opts.device), library[0] ? " (" : "", library, library[0] ? ")" : "",
            no_gpu[0] != '\0' ? "; " : "", no_gpu);
    fprintf(r->config->out,
            "%s: %" PRId64 " training and %" PRId64 " test images, %" PRId64 " %s, %s px; batches of %" PRId64
            ", %" PRId64 " steps per epoch%s\n",
            fri_dataset_name(r->config->opts.data.dataset), r->config->train_count, r->config->test_count,
            r->config->opts.data.classes, r->config->targets == FR_TARGET_VECTOR ? "numbers" : "classes",
            fri_image_text(&r->config->opts, size), r->config->opts.optim.batch_size, fri_steps_per_epoch(r->config),
            smoothing);
    fflush(r->config->out);
}

static void print_step(const fri_run *r, double *last) {
    char line[LINE_BYTES];
    double now = fri_seconds_now();
    if (r->numbers.known == 1) *last = now - (on_terminal(r) ? REDRAW_SECONDS : 0);
    if (now - *last < (on_terminal(r) ? REDRAW_SECONDS : PLAIN_SECONDS)) return;
    *last = now;
    if (on_terminal(r)) {
        redraw_line(r);
        return;
    }
    describe_progress(r, line);
    fprintf(r->config->out, "%s\n", line);
    fflush(r->config->out);
}

static void print_epoch(const fri_run *r) {
    char line[LINE_BYTES], result[32], time[32];
    if (on_terminal(r)) {
        print_kept_line(r);
    } else {
        describe_progress(r, line);
        fprintf(r->config->out, "%s  test %s  %s", line, result_of(r, result, sizeof result),
                clock_text(time, sizeof time, r->at.seconds));
        for (int64_t i = 0; i < r->config->program->n_metrics; i++)
            fr_fprintf(r->config->out, "  %s %g", r->config->program->metric_names[i], r->tested.metric[i]);
        fputc('\n', r->config->out);
    }
    fflush(r->config->out);
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

/* Prints the peak of evaluation and the memory outside of the engine. */
static void print_beside(const fri_run *r) {
    char a[FR_BYTES_TEXT], b[FR_BYTES_TEXT], c[FR_BYTES_TEXT], device[FRI_MEMORY_USE_TEXT];
    size_t training = r->memory.training.peak_allocated, evaluation = r->memory.evaluation.peak_allocated, reserved;
    fr_memory_use use;
    if (r->tested.targets > 0)
        fprintf(r->config->out, "evaluation's peak, without a graph: %s, %s %s than training's\n",
                fr_bytes_text(evaluation, a),
                fr_bytes_text(training > evaluation ? training - evaluation : evaluation - training, b),
                evaluation > training ? "more" : "less");
    size_t outside = fri_watch_outside(r, &use, &reserved);
    if (outside > 0 && use.device == 0)
        fprintf(r->config->out, "outside the engine: %s (%s %s minus reserved %s)\n", fr_bytes_text(outside, a),
                use.source, fr_bytes_text(use.process, b), fr_bytes_text(reserved, c));
    fr_memory_stats now = {0};
    (void)fr_memory_stats_get(r->config->opts.device, &now);
    if (!r->planned && fri_memory_use_text(r->config->opts.device, &now, device)[0] != '\0')
        fprintf(r->config->out, "on the device, at the end:\n%s", device);
}

void fri_progress_arena(const fri_run *r) {
    const fri_train_arena *a = &r->memory.arena;
    char extent[FR_BYTES_TEXT], gap[FR_BYTES_TEXT];
    if (a->reason[0] != '\0') fprintf(r->config->out, "without an arena: %s\n", a->reason);
    if (!a->used) return;
    fr_fprintf(r->config->out, "arena: %s reserved, %s more than the largest live set; %zu blocks placed in %.1f ms",
               fr_bytes_text(a->placement.extent, extent), fr_bytes_text(a->placement.extent - a->placement.peak, gap),
               a->placement.blocks, a->placement.milliseconds);
    if (a->counting)
        fprintf(r->config->out, "; calls to the device's allocator from the second step on: %" PRIu64, a->calls);
    if (a->departures > 0) fprintf(r->config->out, "; %" PRId64 " departures from the plan", a->departures);
    fputc('\n', r->config->out);
}

static void print_categories(const fri_run *r) {
    const fr_memory_stats *m = &r->memory.training;
    char text[FR_BYTES_TEXT];
    fprintf(r->config->out, "%" PRId64 " steps; at the peak, in op %s of %s (%s):\n", r->at.step,
            m->peak_op != NULL && m->peak_op[0] ? m->peak_op : "-",
            m->peak_module != NULL && m->peak_module[0] ? m->peak_module : "-", fr_phase_name(m->peak_phase));
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        if (m->at_peak_allocated[c] > 0)
            fr_fprintf(r->config->out, "  %-12s %12s  %5.1f %%\n", fr_category_name((fr_category)c),
                       fr_bytes_text(m->at_peak_allocated[c], text),
                       100.0 * (double)m->at_peak_allocated[c] / (double)m->peak_allocated);
    fprintf(r->config->out, "  %-12s %12s\n", "allocated", fr_bytes_text(m->peak_allocated, text));
    fprintf(r->config->out, "  %-12s %12s\n", "reserved", fr_bytes_text(m->peak_reserved, text));
    print_beside(r);
    fri_progress_arena(r);
}

static void print_classes(const fri_run *r) {
    char accuracy[32], iou[32], own[24];
    fprintf(r->config->out, "%-24s %10s %10s %10s\n", "class", "targets", "accuracy", "IoU");
    for (int64_t i = 0; i < r->config->outputs; i++) {
        const fri_class_numbers c = fri_class_numbers_of(r, i);
        snprintf(own, sizeof own, "%" PRId64, i);
        fr_fprintf(r->config->out, "%-24.24s %10" PRId64 " %10s %10s\n", c.name != NULL ? c.name : own, c.targets,
                   number_text(accuracy, sizeof accuracy, "%.2f %%", 100 * c.accuracy),
                   number_text(iou, sizeof iou, "%.4f", c.iou));
    }
    fr_fprintf(r->config->out, "mean IoU %s\n", number_text(iou, sizeof iou, "%.4f", fri_mean_iou(r)));
}

static void print_details(const fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    if (o->files.report != NULL) print_categories(r);
    if (fri_loss_scaled(o))
        fr_fprintf(r->config->out,
                   "loss scale %g, %" PRId64 " of %" PRId64 " steps skipped for inf or NaN in the gradients\n",
                   fr_grad_scaler_value(r->net.scaler), fr_grad_scaler_skipped(r->net.scaler), r->at.step);
    if (o->files.export_weights != NULL && r->at.signal == 0)
        fprintf(r->config->out, r->tested.written ? "weights written to %s\n" : "%s has the best weights already\n",
                o->files.export_weights);
}

/* Prints the result last: test accuracy or loss, time, peak memory, and the peak of evaluations, as --plan does, if it
 * is larger. --report adds details of memory. */
static void print_end(const fri_run *r) {
    const char *unit = r->config->accuracy ? " %" : "", *measure = r->config->accuracy ? "accuracy" : "loss";
    const size_t training = r->memory.training.peak_allocated, evaluation = r->memory.evaluation.peak_allocated;
    char result[64] = "not evaluated", time[FRI_DURATION_TEXT], peak[FR_BYTES_TEXT];
    if (!r->config->opts.quiet) print_details(r);
    if (!r->config->opts.quiet && r->tested.confusion != NULL && isfinite(r->tested.accuracy)) print_classes(r);
    if (r->tested.given_up)
        fr_fprintf(r->config->out, "ended after step %" PRId64 " of %" PRId64 ": %g evaluations were no better\n",
                   r->at.step, fri_steps_total(r->config), r->tested.since_best);
    if ((r->tested.given_up || r->config->opts.files.keep_best) && isfinite(r->tested.best))
        fr_fprintf(r->config->out, "best test %s %.4g%s\n", measure, (*unit ? 100 : 1) * r->tested.best, unit);
    if (r->at.signal != 0)
        fprintf(r->config->out, "ended by signal %d (%s) after step %" PRId64 " of %" PRId64 "\n", r->at.signal,
                strsignal(r->at.signal), r->at.step, fri_steps_total(r->config));
    if (!r->config->accuracy && isfinite(r->tested.loss))
        fr_snprintf(result, sizeof result, "%.4g", r->tested.loss);
    else if (isfinite(r->tested.accuracy))
        fr_snprintf(result, sizeof result, "%.2f %% (%" PRId64 " of %" PRId64 ")", 100 * r->tested.accuracy,
                    r->tested.correct, r->tested.targets);
    fprintf(r->config->out, "test %s %s, %s, peak memory %s", measure, result, fri_duration_text(r->at.seconds, time),
            fr_bytes_text(training, peak));
    if (evaluation > training) fprintf(r->config->out, " (evaluation %s)", fr_bytes_text(evaluation, peak));
    fputc('\n', r->config->out);
    fflush(r->config->out);
}

typedef struct progress {
    double last; /* time of the last line in seconds */
} progress;

/* A plan prints its own lines (plan_command.c). */
static fr_status progress_event(void *state, const fri_run *r, fr_run_event e) {
    progress *p = state;
    if (r->planned) return FR_OK;
    if (e == FR_RUN_END) print_end(r);
    if (r->config->opts.quiet) return FR_OK;
    if (e == FR_RUN_BEGIN) print_begin(r);
    if (e == FR_RUN_STEP) print_step(r, &p->last);
    if (e == FR_RUN_EPOCH) print_epoch(r);
    return FR_OK;
}

const fri_view fri_progress_view = {sizeof(progress), NULL, progress_event, NULL};
