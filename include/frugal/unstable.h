/* unstable.h - what the trainers need beside the public interface, open to every program, without a promise.
 *
 * These calls may change or go in any release, and expect arguments that are not NULL. */
#ifndef FRUGAL_UNSTABLE_H
#define FRUGAL_UNSTABLE_H

#include <frugal/unstable/atomic_file.h>
#include <frugal/unstable/event.h>
#include <frugal/unstable/layers.h>
#include <frugal/unstable/number.h>
#include <frugal/unstable/timeline.h>
#include <frugal/unstable/tracker.h>
#include <frugal/unstable/try.h>
#include <frugal/unstable/weights.h>

#endif
