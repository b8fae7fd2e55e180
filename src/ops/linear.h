/* linear.h - the products of a linear layer as kernels for other ops. Options: fri_linear_desc. */
#ifndef FRI_OPS_LINEAR_H
#define FRI_OPS_LINEAR_H

#include "ops/frame.h"

extern const fr_kernel fri_linear_forward; /* "x w b > y": y [n, out] = x [n, in] w [out, in]^T + b; b may be absent */
extern const fr_kernel fri_linear_weight;  /* "x dy > db dw": dw = dy^T x, db = sum of dy over n; db may be absent */
extern const fr_kernel fri_linear_input;   /* "w dy > dx": dx = dy w */

#endif
