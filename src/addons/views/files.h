/* files.h - the views of the add-on, with a file each. */
#ifndef FRI_VIEWS_FILES_H
#define FRI_VIEWS_FILES_H

#include <frugal/train.h>
#include <frugal/tools.h>
#include <frugal/views.h>

/* Rows of the table in views.c, in the order of calls. */
extern const fr_view fri_track_view, fri_track_lines_view, fri_trace_view, fri_memory_plot_view;

#endif
