/* weights_info.h - the network's description in a file of weights, from text. */
#ifndef FRI_IO_WEIGHTS_INFO_H
#define FRI_IO_WEIGHTS_INFO_H

#include <frugal/weights.h>

/* Parses the text; messages call it `name`. */
fr_status fri_weights_info_parse(const char *name, const char *text, fr_weights_info *out);

#endif
