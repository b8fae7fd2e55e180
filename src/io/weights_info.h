/* weights_info.h - the network's description in a file of weights, as text. */
#ifndef FRI_IO_WEIGHTS_INFO_H
#define FRI_IO_WEIGHTS_INFO_H

#include <frugal/io.h>

#define FRI_WEIGHTS_INFO_KEY "frugal.network"

/* A JSON object, freed by the caller. FR_EINVAL: info cannot be read back. */
fr_status fri_weights_info_text(const fr_weights_info *info, char **out);
/* Parses the text; messages call it `name`. */
fr_status fri_weights_info_parse(const char *name, const char *text, fr_weights_info *out);

#endif
