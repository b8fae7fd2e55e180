/* nets.h - two small networks of plain ops, run under any switches, with a record of all they computed.
 *
 * Together they hold the hard cases of saved tensors: features read by many later ops (a dense block's list, skips of
 * a U-Net), residual sums, a pool behind a relu, dropout, batch norm, views, products. */
#ifndef TESTS_AUTOGRAD_NETS_H
#define TESTS_AUTOGRAD_NETS_H

#include <frugal/autograd.h>
#include <frugal/memory.h>

enum { NET_TENSORS = 40 };

typedef enum net_kind { NET_DENSE, NET_UNET } net_kind;

/* How the network is cut into checkpoints; both together nest. */
enum { CUT_EACH = 1 /* every unit */, CUT_HALVES = 2 /* two segments */ };

typedef struct net {
    net_kind kind;
    fr_device device;
    int cuts;
    bool autocast; /* bf16 */
    int n_parameters, n_buffers;
    fr_tensor *parameters[NET_TENSORS], *buffers[NET_TENSORS];
} net;

/* Record of a run, byte for byte: losses, gradients, running statistics of every step. */
typedef struct record {
    char *bytes;
    size_t count, capacity;
    size_t activations; /* requested bytes of saved activations after the last forward pass */
} record;

fr_status net_create(net *n, net_kind kind, fr_device device);
void net_release(net *n);

/* Forward and backward on batch number `step`, then a step of gradient descent. r may be NULL; on meta only its
 * numbers of bytes are filled in. Leaves gradients in place, and drops the gradients of the step before. */
fr_status net_step(net *n, int step, record *r);
void net_clear_gradients(net *n);

/* Distance between the points tried by a test of faults: `usual`, three times as much under the address sanitizer,
 * where a point takes longer, or 1 with FRUGAL_FAULTS=all, which takes minutes. */
uint64_t fault_stride(uint64_t usual);
/* Every third allocation of a training step (fault_stride) fails in turn: the step returns FR_OK (it managed without)
 * or FR_ENOMEM, nothing is left behind, and the same step then computes what it computes without failures. Returns the
 * number of failures. */
int net_fault_sweep(net_kind kind, int cuts);

void record_free(record *r);
/* True if both hold equal bytes; a difference is reported with `what`. */
bool record_equal(const record *a, const record *b, const char *what);

#endif
