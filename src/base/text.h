/* text.h - text from files and from the command line on its way to a person: tensor names, class names, paths. */
#ifndef FRI_BASE_TEXT_H
#define FRI_BASE_TEXT_H

#include <frugal/base.h>

/* Bytes of the UTF-8 character that text[0..n) begins with; 0 if it begins with none (n > 0). */
size_t fri_utf8_length(const char *text, size_t n);

/* Is the dotted path the prefix, or below it? "fc." is as "fc"; "" is above everything. */
bool fri_path_is_below(const char *path, const char *prefix);

#endif
