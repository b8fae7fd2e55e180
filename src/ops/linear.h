/* linear.h - the three products of a linear layer, each with its own scratch; shapes and types as in d. */
#ifndef FRI_OPS_LINEAR_H
#define FRI_OPS_LINEAR_H

#include "ops/op.h"

/* y [n, out] = x [n, in] w [out, in]^T + b; b or NULL. */
fr_status fri_linear_forward(const fri_linear_desc *d, const fr_tensor *x, const fr_tensor *w, const fr_tensor *b,
                             fr_tensor *y);
/* dx [n, in] = dy [n, out] w [out, in] */
fr_status fri_linear_input(const fri_linear_desc *d, const fr_tensor *w, const fr_tensor *dy, fr_tensor *dx);
/* dw [out, in] = dy [n, out]^T x [n, in]; also db if d->bias_gradient is set, else db is NULL. */
fr_status fri_linear_weight(const fri_linear_desc *d, const fr_tensor *x, const fr_tensor *dy, fr_tensor *dw,
                            fr_tensor *db);

#endif
