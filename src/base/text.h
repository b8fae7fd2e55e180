/* text.h - text from files and from the command line, for terminals: tensor names, class names, paths. */
#ifndef FRI_BASE_TEXT_H
#define FRI_BASE_TEXT_H

#include <frugal/base.h>

/* Bytes of the UTF-8 character at the beginning of text[0..n); 0 if invalid (n > 0). */
size_t fri_utf8_length(const char *text, size_t n);

/* True if the dotted path is the prefix, or below the prefix. "fc." is as "fc"; "" is above everything. */
bool fri_path_is_below(const char *path, const char *prefix);

#endif
