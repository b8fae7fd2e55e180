/* units.h - what planning asks of a network. */
#ifndef FRI_NET_UNITS_H
#define FRI_NET_UNITS_H

#include <frugal/net.h>

/* Weights for fr_segments: each unit's saved bytes when m runs once on x, under the thread's switches; without
 * computation on meta. weight: fr_module_units of m numbers. */
fr_status fri_unit_saved_bytes(fr_module *m, fr_tensor *x, size_t *weight);
/* Number of leading layers without graph and with independent images (FR_LAYER_PER_IMAGE): the layers before the first
 * that trains, normalizes over the batch, or draws random numbers. 0: m is no network. */
int fri_module_frozen_prefix(fr_module *m);
/* The first layer with the name, or below the name ("layer1.0"); -1: none. */
int fri_module_layer_find(fr_module *m, const char *name);

#endif
