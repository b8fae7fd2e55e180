/* extend.h - writing an op, in one of two forms. The built-in ops have both.
 *
 * A described op (fr_described, at the end of the ops' part) is a list of operands and a kernel per pass: checks,
 * results, saved tensors, gradients, rebuild and the plan's cost follow from the description
 * (examples/04_custom_op.c). An op with a control flow of its own is a forward function that computes a result and
 * calls fr_op_record with a static fr_op, whose backward gets saved tensors by index, whether kept, encoded, rebuilt
 * or recomputed in between. */
#ifndef FRUGAL_EXTEND_H
#define FRUGAL_EXTEND_H

#include <frugal/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_node fr_node;

/* How autocast treats the op (PyTorch's lists). */
typedef enum fr_autocast_class {
    FR_AUTOCAST_NONE,    /* runs in the input's type */
    FR_AUTOCAST_LOW,     /* f32 inputs are cast to the autocast type */
    FR_AUTOCAST_F32,     /* f16 and bf16 inputs are cast to f32 */
    FR_AUTOCAST_PROMOTE, /* casts all inputs to the widest type */
} fr_autocast_class;

typedef struct fr_op {
    const char *name;
    fr_autocast_class autocast;

    /* Computes the gradients of the inputs that fr_node_wants, and passes each to fr_node_grad. *dy is the gradient
     * of the output: the op may take it (set *dy to NULL) or, if fr_tensor_reusable(*dy), write into it. */
    fr_status (*backward)(fr_node *node, fr_tensor **dy);

    /* Recomputes the output, bit for bit, from saved tensors and the inputs with a bit in rebuild_inputs (in[i] is
     * NULL for the rest). NULL: the output cannot be rebuilt cheaply. */
    fr_status (*rebuild)(fr_node *node, fr_tensor *const *in, fr_tensor **y);
    uint64_t rebuild_inputs; /* bit i: input i; UINT64_MAX: all inputs */
    bool rebuild_parts;      /* rebuild is called once per input, with this one alone, and adds the input's part to *y,
                              * which is NULL at the first call: two inputs are never in memory together */
    int rebuild_steps;       /* number of ops that the op counts for in the longest chain of rebuilds; 0: one */
    bool rebuild_alone;      /* rebuild reads much more than the output. Used only if the op saved its output, never as
                             * part of a chain */
    bool rebuild_from_leaf;  /* with leaves alone as inputs cache_casts decides, not rebuild: casts of weights */

    /* Takes over the mask of the relu before this op, which then neither keeps nor applies a mask: dx will be 0
     * wherever the input is <= 0. y is this op's output. FR_OK is a lasting promise. NULL: cannot. */
    fr_status (*absorb_mask)(fr_node *node, fr_tensor *y);

    void (*params_free)(void *params); /* frees members of params, or NULL */
} fr_op;

/* How much of a saved tensor backward needs. */
enum {
    FR_SAVE_VALUE = 0, /* the whole tensor */
    FR_SAVE_SIGN = 1,  /* only where the value is <= 0, for fr_node_mask; may be kept as 1 bit per element */
    FR_SAVE_SMALL = 2, /* a few values: kept even inside a checkpoint */
    FR_SAVE_MASK = 5,  /* SIGN of the op's own output, with dx exactly 0 where the output is <= 0: a single consumer
                        * may take over the mask (absorb_mask) */
    FR_SAVE_RELU6 = 9, /* SIGN, but only values between 0 and 6 pass, and no NaN; slope 0 */
};

typedef struct fr_save {
    fr_tensor *tensor; /* NULL: no tensor under the index */
    unsigned flags;
} fr_save;

/* Enters `out` (new, or an input that the op wrote over) into the graph, if grad mode is on and an input requires grad.
 * Copies params. The caller must hold the only reference to `out`. A negative status (FR_ENOMEM, or the internal stop
 * of a checkpoint) must be passed on. */
FR_API fr_status fr_op_record(const fr_op *op, const void *params, size_t params_bytes, fr_tensor *const *in, int n_in,
                              const fr_save *saves, int n_saves, fr_tensor *out);

/* Inside backward and rebuild: */
FR_API const void *fr_node_params(const fr_node *node);
FR_API bool fr_node_wants(const fr_node *node, int input); /* true if backward needs the gradient of the input */
/* A new reference to a saved tensor (NULL for none), decoded, rebuilt or recomputed if necessary. FR_EUSAGE if the
 * tensor was overwritten since, FR_ENOMEM. */
FR_API fr_status fr_node_saved(fr_node *node, int index, fr_tensor **out);
/* Ends the use of a saved tensor: with early release on, the tensor is freed now. */
FR_API void fr_node_release_saved(fr_node *node, int index);
/* *dx = *dy where the saved tensor is not <= 0 (RELU6: between 0 and 6), else slope * *dy. Takes *dy, and reuses the
 * memory if possible. With FR_SAVE_MASK under index 0, call before reading *dy: the call may add a part of *dy. */
FR_API fr_status fr_node_mask(fr_node *node, int index, double slope, fr_tensor **dy, fr_tensor **dx);
/* Hands over the gradient of an input; *dx becomes NULL, also on failure. A gradient without use is dropped. */
FR_API fr_status fr_node_grad(fr_node *node, int input, fr_tensor **dx);
FR_API int fr_node_inputs(const fr_node *node);

/* True if the op may write the result over t: the caller holds the only reference, and the in-place switch is on. */
FR_API bool fr_tensor_reusable(const fr_tensor *t);

/* ---- described ops ----------------------------------------------------------------------------------------------- */

/* A call of a kernel. */
typedef struct fr_kernel_call {
    /* Operands of the step in the order of the step's words, borrowed. NULL: not given, or a gradient without use. Data
     * by fr_tensor_data, sizes by fr_tensor_shape; all are dense. */
    fr_tensor *const *t;
    const void *options; /* as given to fr_op_call */
    fr_dtype dtype;      /* of the float operands */
    fr_device device;    /* of all operands */
    void *stream;        /* cudaStream_t on CUDA; else NULL */
    void *workspace;     /* of the size that `workspace` below returned */
    size_t workspace_bytes;
} fr_kernel_call;

/* A function that computes operands from others, on the devices for which it is written. */
typedef struct fr_kernel {
    const char *name;
    fr_status (*run)(const fr_kernel_call *c); /* never called in a plan */
    /* Bytes of scratch memory; NULL: none. Called in plans too, so it reads shapes and options only. */
    fr_status (*workspace)(const fr_kernel_call *c, size_t *bytes);
    /* Floating-point operations and memory traffic per element of operand `unit`, for predicted times (traffic in
     * elements; 0: each operand moves once). */
    double flops, moves;
    int unit;
    const void *fri_more; /* NULL */
} fr_kernel;

/* A use of a kernel. The words name the operands that the kernel reads, ">", and those that it writes: "x w > y".
 * After the ">" of a backward step stand gradients, "d" before the input's name; before it, "d" with the result's name
 * is the gradient of the result: "x dy > dw".
 *   dx=dy     dx may be written over dy; dx=dy|x: or over the saved x
 *   da&db     the kernel computes both or none; an unwanted one is dropped
 *   +db       db is computed where the step runs anyway; db alone is no reason for the step
 *   w?        the operand may be absent; a step that reads any other absent operand is left out
 *   .         no operand, where the kernel has one
 * A backward step runs if one of its gradients is wanted and no earlier step has made it. Steps run in order; an
 * operand is saved if a step that will run reads it, and given up after the last step that reads it. */
typedef struct fr_step {
    const char *words;
    const fr_kernel *kernel; /* NULL: the gradient is dy itself */
    unsigned mask;           /* FR_SAVE_SIGN, MASK or RELU6: fr_node_mask takes the kernel's place */
    fr_status (*by)(fr_node *node, const struct fr_step *step, fr_tensor *dy); /* NULL; takes the step's place */
} fr_step;

/* An op as a description. Operands are inputs, ">", and results, of which the first is the op's: "x[*,i] w[o,i] >
 * y[*,o]". A letter is a size, equal wherever it stands; * stands for any dimensions; without brackets any shape is
 * right.
 *   w[o,i]        of the op's float type, which all such operands share
 *   m:real[c]     f32, f64 where the float type is f64
 *   b:bias[o]     the float type or f32
 *   n:i64[*]      i64; a result `bad:i64[]` holds -1, or the position of an index that is out of range
 *   t:any         of any type
 *   b[o]?         the input may be NULL; a result is made only if a backward step will read it
 *   y[*]=x        y may be written over x where nothing needs x any more and the in-place switch is on
 * The description is read at the first call and must stay; two threads may make that call. */
typedef struct fr_described {
    fr_op op; /* name, autocast, absorb_mask, rebuild_...: the rest follows from the description */
    const char *operands;
    fr_step forward[2], backward[3];
    bool rebuilds;           /* the result may be computed again from the inputs, by the forward steps */
    bool costly;             /* at the end of a recomputation a result that nothing reads is not computed */
    const char *keeps, *bad; /* NULL */
    /* Sizes that only results have, by letter from 'a', and checks of the options; NULL: none. */
    fr_status (*sizes)(const void *options, int64_t size[26]);
    void *reading; /* NULL; the library's */
} fr_described;

/* *y = op(in): in holds the inputs in the order of the description. Options of at most 256 bytes are copied for
 * backward. Errors as of all ops (ops.h), and FR_EINVAL for a description that contradicts itself. */
FR_API fr_status fr_op_call(fr_described *op, fr_tensor *const *in, int n_in, const void *options, size_t bytes,
                            fr_tensor **y);

/* Central differences against backward, element by element and signed. fn computes out[0] from in[0..n); inputs with
 * requires_grad are checked. The scalar is sum(out * r) with fixed pseudo-random r, summed in f64. f64 inputs.
 *   |numeric - analytic| <= atol + rtol * |numeric|
 * FR_EINVAL with input, index and both values at the first disagreement. */
typedef struct fr_gradcheck_opts {
    double eps FR_DEFAULT(1e-6), atol FR_DEFAULT(1e-7), rtol FR_DEFAULT(1e-5);
} fr_gradcheck_opts;
#define FR_GRADCHECK_DEFAULTS  .eps = 1e-6, .atol = 1e-7, .rtol = 1e-5
#define FR_GRADCHECK_OPTS(...) FR_OPTS(fr_gradcheck_opts, FR_GRADCHECK_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_gradcheck_opts, FR_GRADCHECK_OPTS())
FR_API fr_status fr_gradcheck(fr_checkpoint_fn *fn, void *ctx, fr_tensor *const *in, int n_in,
                              const fr_gradcheck_opts *opts);

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Calls of the add-on ranks (training by several processes) that a session makes. <frugal/ranks.h> documents each
 * call under the name on the right. */
struct fr_module;
struct fr_optimizer;
struct fr_comm;
struct fr_share;

typedef struct fr_rank_calls {
    /* The communicator. */
    fr_status (*launched)(int *rank, int *size);             /* rank and number of ranks, of a launcher */
    fr_status (*open)(double seconds, struct fr_comm **out); /* fr_comm_open */
    fr_status (*dry)(int rank, int size, struct fr_comm **out);
    void (*release)(struct fr_comm **c);
    fr_status (*connect)(struct fr_comm *c, fr_device device, size_t *bytes);
    fr_status (*timeout)(struct fr_comm *c, double seconds);
    fr_status (*agree)(struct fr_comm *c, const void *mine, size_t bytes, void *all);
    void (*shutdown)(struct fr_comm *c, const char *why, const char **first);
    int (*rank)(const struct fr_comm *c);
    int (*size)(const struct fr_comm *c);
    const char *(*engine)(const struct fr_comm *c);
    const char *(*host)(const struct fr_comm *c, int rank);
    int (*threads)(int threads);
    /* Distributes gradients, optimizer state and running statistics; fr_share_create with these options. */
    fr_status (*share)(struct fr_module *m, struct fr_optimizer *o, struct fr_comm *c, int64_t micro_batches,
                       uint64_t streams, bool sync_batch_norm, struct fr_share **out);
    void (*unshare)(struct fr_share **p); /* fr_share_release */
    int64_t (*rounds)(const struct fr_share *p);
    int64_t (*micro_batch)(const struct fr_share *p, int64_t round);
    fr_status (*round_begin)(struct fr_share *p, int64_t round);
    fr_status (*round_end)(struct fr_share *p, int64_t round);
    fr_status (*clip_grad_norm)(struct fr_share *p, double max_norm, double *norm);
    fr_status (*step_end)(struct fr_share *p);
    fr_status (*ema_swap)(struct fr_share *p);
    fr_status (*check)(struct fr_share *p);
    fr_status (*serve)(struct fr_share *p);
    fr_status (*served)(struct fr_share *p, fr_status outcome);
    uint64_t (*bytes)(const struct fr_share *p); /* sent in a step */
    double (*exchanged)(const struct fr_share *p);
    double (*waited)(const struct fr_share *p);
} fr_rank_calls;

#ifdef __cplusplus
}
#endif
#endif
