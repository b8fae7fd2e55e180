/* tools.h - headers for add-ons and tools, beside frugal.h: files, events of memory, layers, weights, numbers as text.
 *
 * The calls expect arguments that are not NULL, and may change in any release. */
#ifndef FRUGAL_TOOLS_H
#define FRUGAL_TOOLS_H

#include <frugal/events.h>
#include <frugal/files.h>
#include <frugal/layers.h>
#include <frugal/number.h>
#include <frugal/try.h>
#include <frugal/weights.h>

#endif
