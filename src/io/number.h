/* number.h - doubles as text, for files. */
#ifndef FRI_IO_NUMBER_H
#define FRI_IO_NUMBER_H

enum { FRI_NUMBER_BYTES = 40 };

/* 15 digits if they bring the value back, else 17, with a point whatever the program's locale says; "nan", "inf" and
 * "-inf". Returns text or a constant. */
const char *fri_number_text(double value, char text[FRI_NUMBER_BYTES]);

#endif
