/* text.h - text from files and from the command line on its way to a person: tensor names, class names, paths. */
#ifndef FRI_BASE_TEXT_H
#define FRI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the UTF-8 character that text[0..n) begins with; 0 if it begins with none (n > 0). */
size_t fri_utf8_length(const char *text, size_t n);

/* Writes text into out[bytes] so that a terminal shows it and obeys none of it: control characters (below 0x20, 0x7f,
 * U+0080 to U+009F) and bytes that are no UTF-8 become \x1b. With `lines` newlines stay. What is too long loses its
 * middle to "...", so that a reason behind a long name stays readable. bytes >= 16. Returns out. */
const char *fri_text_printable(const char *text, bool lines, char *out, size_t bytes);

/* Levenshtein's distance; words longer than FRI_TEXT_LONGEST count as that far away. */
enum { FRI_TEXT_LONGEST = 64 };
int fri_text_distance(const char *a, const char *b);

/* Is the dotted path the prefix, or below it? "fc." is as "fc"; "" is above everything. */
bool fri_path_is_below(const char *path, const char *prefix);

#endif
