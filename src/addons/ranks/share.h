/* share.h - buckets: which gradients are sent together, and the rank that adds each part.
 *
 * Parameters that train, in reverse order of the module (that is about the order in which backward completes them), are
 * cut into buckets of one type. The elements of a bucket are one range, of which rank k owns the k-th N-th part; cuts
 * lie at multiples of FRI_SHARE_UNIT elements of a parameter. A chunk sum of the CPU's reductions and a block of 8-bit
 * moments lie within one unit, so neither depends on N.
 *
 * A bucket is a list, not a buffer: pieces are sent from where they lie. What arrives lands in one zone that is taken
 * at the start, and is added from there in the order of micro-batches.
 *
 * The running values of batch norms are a bucket too. The owner updates a part of the values, sample by sample. A
 * micro-batch's forward begins with running values of -0 and so leaves the step (fri_running_update). */
#ifndef FRI_RANKS_SHARE_H
#define FRI_RANKS_SHARE_H

#include "addons/ranks/comm.h"
#include "backend/kernels.h"
#include "base/clock.h"
#include "net/module.h"
#include "optim/optimizer.h"

#include <frugal/ranks.h>

enum { FRI_SHARE_UNIT = FRI_NORM_UNIT }; /* parts of gradients have whole units for the norm */

typedef struct fri_member {
    struct fri_bucket *bucket;
    fr_tensor *tensor;        /* the parameter or running value */
    int64_t n;                /* elements */
    fri_parameter *parameter; /* NULL of a running value */
    double momentum;          /* of a running value; else 0 */
    bool ready;               /* the round's gradient is complete */
    void *from, *to;          /* the round's addend; the rank's part of the sum. NULL: none */
} fri_member;

/* Rank k's part begins at element `at` of member `member` and ends where rank k + 1's begins. */
typedef struct fri_cut {
    int member;
    int64_t at;
} fri_cut;

typedef struct fri_bucket {
    struct fr_share *share;
    fr_dtype dtype;
    fri_member *member;
    int n, ready;
    int64_t elements, largest; /* all, and of the largest part */
    fri_cut *cut;              /* [ranks + 1] */
    fr_tensor *moved;          /* running values: the rank's part */
    /* of the running round */
    int64_t present;  /* ranks with a micro-batch in the round */
    bool first;       /* sums begin here */
    fri_fence before; /* on a device: fences after the program's earlier work, and after the lane's work */
    fri_fence after;
    uint64_t ticket;
} fri_bucket;

struct fr_share {
    fr_module *module;       /* retained */
    fr_optimizer *optimizer; /* borrowed, as c */
    fr_comm *comm;
    fr_share_opts opts;
    int rank, size;
    bool dry; /* no transfers */
    fr_device device;
    fri_sharing sharing;
    fri_bucket *bucket;
    int buckets;
    fri_bucket statistics; /* without members: no batch norm trains */
    fri_bucket found;      /* the loss scaler's flag, 1 element */
    fr_module **norm;      /* borrowed: owners of the statistics */
    fr_tensor *counts;     /* i64 [2][norms]: num_batches_tracked before the step, and of the last round */
    int64_t *counted;      /* counts, on the host */
    int norms;
    fri_statistics_sync sync; /* with sync_batch_norm */
    struct {
        double *of[2]; /* the rank's, and all ranks' */
        int64_t room;
    } numbers;          /* buffers of sync */
    fr_tensor *landing; /* NULL: a single rank */
    /* device.c */
    const fri_streams *streams; /* NULL: synchronous device */
    fri_exec exec;              /* of the lane's kernels */
    const fri_links *links;     /* between the devices; NULL: */
    void *staging[2];           /* as large as the landing zone: outgoing, arriving */
    /* scratch of the lane */
    fr_piece *piece[2], *staged[2];
    char *gathered; /* [size] */
    int *first[2];
    /* of the step */
    int64_t round;
    fr_rng rng; /* at the step's begin */
    int queued, finished;
    uint64_t bytes; /* sent by the last step's jobs */
    uint64_t sending;
    double exchanged, waited; /* seconds, of the lane and of the program */
};

/* bucket.c. make: buckets of all training parameters, and of the statistics. */
fr_status fri_buckets_make(fr_share *p);
void fri_buckets_free(fr_share *p);
fr_status fri_bucket_add(fri_bucket *b, fri_member m);
int64_t fri_bucket_part(const fri_bucket *b, int rank); /* elements */
/* The elements [*first, *first + result) of member i of the rank; 0: none. */
int64_t fri_bucket_overlap(const fri_bucket *b, int rank, int i, int64_t *first);

/* exchange.c: jobs of the lane. Sums or updates the parts; sends the results to all ranks. ctx: an fri_bucket. */
fr_status fri_share_exchange(void *bucket, fr_comm *c);
fr_status fri_share_gather(void *bucket, fr_comm *c);
/* Room of the lane for pieces of the largest bucket. */
fr_status fri_share_make_scratch(fr_share *p);

/* device.c: on an asynchronous device the lane uses a separate stream. */
fr_status fri_share_device_begin(fr_share *p);
void fri_share_device_end(fr_share *p);
/* Queues the job after the program's work on the device. */
fr_status fri_share_queue(fri_bucket *b, fri_comm_job *job);
/* Makes later work of the program follow the finished job of the bucket. */
fr_status fri_share_follow(const fri_bucket *b);
/* Around a job. */
fr_status fri_share_job_begin(const fri_bucket *b);
fr_status fri_share_job_end(fri_bucket *b, fr_comm *c);
/* Wait, in a job, until the device has passed f; devices of further ranks may delay f. */
fr_status fri_comm_passed(fr_comm *c, const fri_backend *b, fri_fence f);
/* Exchange, in a job, of the pieces of p->piece and p->first; same: all ranks get equal pieces. */
fr_status fri_share_carry(fr_share *p, bool same, fr_comm *c);

/* statistics.c */
fr_status fri_statistics_find(fr_share *p);
fr_status fri_statistics_memory(fr_share *p);
fr_status fri_statistics_begin(fr_share *p, bool first, bool mine);
fr_status fri_statistics_end(fr_share *p);

/* sync.c: switches the exchange of batch norms' statistics on for the round; off: switches off. */
void fri_share_sync_begin(fr_share *p);
void fri_share_sync_end(fr_share *p);

/* share.c: until the bucket's job is over. */
fr_status fri_share_wait(fr_share *p, const fri_bucket *b);

/* state.c */
extern const fri_sharing fri_share_calls;

static inline int64_t fri_share_present(const fr_share *p, int64_t round) {
    const int64_t left = p->opts.micro_batches - round * p->size;
    return left < p->size ? left : p->size;
}

static inline void *fri_share_at(const fr_tensor *t, int64_t element) {
    return (char *)fri_data(t) + (size_t)element * fr_dtype_size(t->dtype);
}

/* fr_optimizer_ema_swap, by all ranks: each rank exchanges a part, and gets the whole. */
fr_status fri_share_ema_swap(fr_share *p);
/* Checks that all ranks hold equal parameters and buffers. FR_EPEER names a different rank (a flipped byte). Reads all
 * tensors. */
fr_status fri_share_check(fr_share *p);
/* While rank 0 reads the optimizer's state (fri_optimizer_state_to_host), all further ranks call serve; serve returns
 * with the status of rank 0's call of served. */
fr_status fri_share_serve(fr_share *p);
fr_status fri_share_served(fr_share *p, fr_status outcome);
/* Bytes sent per step from the rank; seconds of exchange, and seconds of waiting for exchange, in all steps so far. */
uint64_t fri_share_bytes(const fr_share *p);
double fri_share_exchanged(const fr_share *p);
double fri_share_waited(const fr_share *p);

#endif
