/* plan.h - the exact memory of a training run, before the run.
 *
 * A plan runs the program's own step on FR_META: the same ops, modules and allocator, with shapes and addresses instead
 * of data, and with the library scratch that the target device would ask for. So a planned peak equals the measured one
 * to the byte: requested, allocated, reserved and every category.
 *
 *     fr_plan_begin(FR_CPU, &plan);            from here on FR_META stands for the CPU
 *     build the model and optimizer on FR_META
 *     fr_plan_section(plan, "first step");     run a step
 *     fr_plan_section(plan, "steady step");    run another
 *     fr_plan_end(plan);
 *     fr_plan_report(plan, stdout);
 *     fr_plan_release(&plan); */
#ifndef FRUGAL_PLAN_H
#define FRUGAL_PLAN_H

#include <frugal/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_plan fr_plan;

/* Memory of one section of the plan. */
typedef struct fr_plan_section_stats {
    const char *name;       /* borrowed from the plan */
    fr_memory_stats memory; /* at the end of the section, with the section's own peaks */
} fr_plan_section_stats;

/* Starts a plan for `target`: FR_META gets a fresh allocator and the target's workspaces until fr_plan_end. One plan at
 * a time on a thread; no FR_META tensor may be alive across begin or end. FR_EDEVICE if this build does not hold the
 * target's backend, FR_EUSAGE if a plan is running. */
FR_API fr_status fr_plan_begin(fr_device target, fr_plan **out);
/* Everything up to the next section or the end counts for this one; peaks start from what is alive now. */
FR_API fr_status fr_plan_section(fr_plan *plan, const char *name);
/* Ends the run: all tensors made during it must be released. Also restores FR_META after a failure. */
FR_API fr_status fr_plan_end(fr_plan *plan);
FR_API void fr_plan_release(fr_plan **plan);

FR_API fr_status fr_plan_section_get(const fr_plan *plan, int i, fr_plan_section_stats *out);

/* Watches the ops of this thread on `device` during a run, until end, and keeps the largest one. */
typedef struct fr_largest_op fr_largest_op;
FR_API fr_status fr_largest_op_begin(fr_device device, fr_largest_op **out);
FR_API size_t fr_largest_op_bytes(const fr_largest_op *l); /* so far; 0 for NULL */
FR_API void fr_largest_op_end(fr_largest_op **l);

/* ---- the arena: reserving exactly that ---------------------------------------------------------------------- */

typedef struct fr_placement {
    size_t peak;   /* largest sum of requested bytes alive at one time */
    size_t extent; /* bytes the arena reserves; peak is its lower bound */
    size_t blocks;
    double milliseconds; /* of the placement */
} fr_placement;

/* Makes the numbers of an ended plan those of a run in the arena: no block has a tail, so allocated equals requested,
 * and reserved is the arena's extent. out may be NULL. */
FR_API fr_status fr_plan_use_arena(fr_plan *plan, fr_placement *out);
/* Gives every allocation of an ended plan a fixed offset and reserves the extent on `device`, which must hold no tensor
 * of the run yet. From then on allocations follow the plan; call fr_plan_follow where each section begins. out: or
 * NULL. */
FR_API fr_status fr_plan_install(const fr_plan *plan, fr_device device, fr_placement *out);
/* Begins section i of the plan, which the next allocations follow; each step calls this again. A section that departed
 * and left no block alive is planned again: its next run has fixed places in the arena and, for blocks without a place
 * there, in an extra segment. Up to 8 variants per section. */
FR_API fr_status fr_plan_follow(fr_device device, int section);
/* Gives the arena back. FR_EUSAGE while tensors live in it. */
FR_API fr_status fr_plan_uninstall(fr_device device);

/* The table for people: sections, categories, what is alive at the peak, step memory, floor, environment. */
FR_API fr_status fr_plan_report(const fr_plan *plan, FILE *out);

/* ---- a table of layers -------------------------------------------------------------------------------------- */

/* Summary of a network: its layers, and the bytes that one training step keeps of each:
 *
 *     fr_summary_begin(FR_META, &summary);
 *     fr_step_begin ... forward, fr_backward ... fr_step_end
 *     fr_summary_end(summary);
 *     fr_summary_print(summary, stdout);
 *     fr_summary_release(&summary);
 *
 * Bytes are read from the event log at the instant the step's first backward begins; the step itself is not changed. */
typedef struct fr_summary fr_summary;

typedef struct fr_summary_layer {
    const char *path, *kind; /* "features.0", "Conv2d"; static storage and the class's own. What ran outside any
                              * module: path "", kind "loss" */
    int rank;                /* of the last result; 0: not a module */
    int64_t shape[6];        /* as in memory: images are [N, H, W, C] */
    int64_t parameters;      /* elements of the layer itself, without its parts */
    size_t parameter_bytes;  /* bytes of these elements */
    size_t buffer_bytes;     /* running statistics and the like */
    size_t saved;            /* requested bytes it made that are kept for backward: activations, masks, codes,
                              * statistics, cached casts. What the next layer reads again counts here, once */
    /* The fields below are 0 unless the network ran on FR_META. */
    double flops;          /* of the layer's forward; a multiply-add is two */
    double multiply_adds;  /* of the layer's forward convolutions and linear layers */
    double moved, written; /* bytes read and written by the forward kernels; bytes written */
    double seconds;        /* of the layer's forward on the plan's target: measured by --calibrate, else estimated */
} fr_summary_layer;

/* Watches this thread's next step on `device`: forward and first backward. FR_EUSAGE if another summary is watching,
 * FR_ENOMEM. */
FR_API fr_status fr_summary_begin(fr_device device, fr_summary **out);
/* FR_EUSAGE if there was no step with a forward and a backward, FR_ENOMEM. */
FR_API fr_status fr_summary_end(fr_summary *s);
FR_API void fr_summary_release(fr_summary **s); /* accepts NULL; ends it if need be */

FR_API int fr_summary_layers(const fr_summary *s);
/* Layers are in the order of completion: a network follows its parts. */
FR_API fr_status fr_summary_layer_get(const fr_summary *s, int i, fr_summary_layer *out);
/* The table for people, shapes in PyTorch's order, without layers that own nothing, keep nothing and compute
 * nothing. */
FR_API fr_status fr_summary_print(const fr_summary *s, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
