/* casts.h - the casts of a training step's weights in a few launches.
 *
 * Autocast casts a weight where an op reads the weight: a launch each, which takes longer than its work. A list holds
 * the weights that earlier forwards cast; where casts are kept for backward (cache_casts), a forward begins with one
 * call for the whole list. The bits are those of single casts. */
#ifndef FRI_OPS_CASTS_H
#define FRI_OPS_CASTS_H

#include <frugal/tensor.h>

/* Zeroed: no weight is known. */
typedef struct fri_casts {
    struct fri_casts_weight *weight; /* retained, in the order of the first forward */
    int n, room;
} fri_casts;

/* Makes the list's copies if the thread records under autocast and keeps casts; always pair with fri_casts_end, which
 * releases what no op took. */
fr_status fri_casts_begin(fri_casts *c);
void fri_casts_end(fri_casts *c);
void fri_casts_release(fri_casts *c);

/* *y = x cast for autocast: the list's copy, or fr_cast; a weight joins the list. */
fr_status fri_casts_take(fr_tensor *x, fr_dtype to, fr_tensor **y);
/* A cast of x with the result `given` (cast.c). */
fr_status fri_cast_given(fr_tensor *x, fr_tensor *given, fr_tensor **y);

#endif
