/* views.c - the tables of the add-on views. */
#include "addons/views/files.h"

#include <frugal/addon.h>

#define ROW(field) FR_FLAG_TEXT, FR_GROUP_OUTPUT, offsetof(fr_train_opts, field)
#define WRITTEN    .unset = "none", .file = FR_FILE_WRITTEN

static const fr_flag flags[] = {
    {"track", ROW(files.track), "FILE",
     "Write what each phase of the first step adds and frees, a line per kind of tensor.", WRITTEN},
    {"track-lines", ROW(files.track_lines), "FILE",
     "Write what each source line, of the program and of the library, allocates, frees and holds: up to the last step, "
     "and when most lives.",
     WRITTEN},
    {"memory-plot", ROW(files.memory_plot), "FILE",
     "Draw the step that needs most memory, bytes by category over its allocations, as SVG; with --plan too.", WRITTEN,
     .brief = "Draw the memory of a step, as SVG"},
    {"trace", ROW(files.trace), "FILE",
     "Write the first three steps for Perfetto (ui.perfetto.dev): ops as slices, bytes by category as counters.",
     WRITTEN},
    {0},
};

/* Views, in the order of calls. */
static const fr_view *const views[] = {&fri_track_view, &fri_track_lines_view, &fri_trace_view, &fri_memory_plot_view,
                                       NULL};

const fr_addon fr_addon_views = {.name = "views", .flags = flags, .views = views};
