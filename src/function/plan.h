/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: a part of a program as a list of kernels, for tensors of given types on given devices.
 *
 * A region is a sequence of calls of a program that start kernels and do nothing else; tapes that
 * begin in it end in it. Before the first run of a region with tensors of some types, its calls are
 * made with meta tensors, and the kernels that they start are recorded: composite operators are
 * taken apart, gradients are the kernels of their backward pass. Runs with such tensors run the
 * kernels, and nothing else: no call, no tape, no shape rule, no allocation for what is dropped
 * before the region ends.
 *
 * Calls with an effect end a region, except under a tape, whose backward pass needs the whole of
 * it. There they are calls of the plan: made between its kernels, with tensors as their operands.
 * Collectives that follow a region are started between its kernels, once their operands are there
 * (coi_op.start), and made at their place all the same.
 *
 * A kernel gets the operands, attributes and shapes that it would get without a plan, so results
 * have the same bits.
 */
#ifndef COI_FUNCTION_PLAN_H
#define COI_FUNCTION_PLAN_H

#include <cohort/function.h>

#include "function/program.h"
#include "ops/engine/kernel_recording.h"
#include "ops/kernels/fused_elementwise.h"

#define COI_MOST_PLANS 32 /* of a region: for as many combinations of types, or threads */

/* Where the data of a value of a plan is. */
typedef enum coi_plan_source {
    COI_PLAN_INPUT,    /* in a slot, when the region begins */
    COI_PLAN_VARIABLE, /* in a variable, then */
    COI_PLAN_CONSTANT, /* in a tensor of the plan */
    COI_PLAN_COMPUTED, /* made by a kernel */
    COI_PLAN_VIEW      /* that of another value: its root */
} coi_plan_source;

typedef struct coi_plan_value {
    co_value cell; /* what kernels get; nobody takes references to it */
    uint8_t  source;
    bool     is_constant; /* the same in every run */
    bool     is_output;   /* of roots: its memory is that of a new tensor in every run */
    uint32_t root;
    uint32_t slot;        /* COI_PLAN_INPUT: the first that has it */
    uint32_t after;       /* COI_PLAN_VARIABLE: it is read after so many calls of the plan */
    uint32_t first, last; /* of roots that are computed: the kernels that make it and use it last */
    bool     is_in_tile;  /* used in one chain alone: it needs no memory */
    co_value *held;       /* a reference to the tensor or variable; NULL: neither */
    uint32_t  place;      /* of roots in the arena: the one whose memory it has, mostly its own */
    size_t    offset;     /* of roots: in the arena */
    size_t    view_offset; /* bytes from the data of its root */
    int64_t   row_stride;  /* of strided views, in elements; 0: dense */
    uint32_t  position;    /* of roots: in plan->bound */
} coi_plan_value;

/* A kernel while it is recorded. */
typedef struct coi_plan_kernel {
    const coi_op *op;
    void         *attrs; /* a copy of its own, NULL without */
    co_device    *device;
    uint32_t      values; /* num_in operands, then num_out results, in plan->operands */
    uint16_t      num_in, num_out;
    uint32_t      step;        /* of the program */
    uint32_t      first, last; /* kernels of its chain; itself if it is in none */
    bool          is_dead;
    bool          is_left_out; /* its results are views */
} coi_plan_kernel;

/* A kernel or a chain that a run starts. */
typedef struct coi_plan_start {
    uint32_t kernel; /* the first of a chain */
    uint32_t chain;  /* UINT32_MAX: none */
} coi_plan_start;

/* A call that a run makes or starts, with the kernels before it done. */
typedef struct coi_plan_call {
    uint32_t step;                  /* of the program */
    bool     is_start;              /* it is made after the region */
    uint32_t end_kernel, end_start; /* the first after it */
    uint32_t end_output;            /* what it takes ends there in plan->outputs */
    uint32_t end_read;              /* variables read after it end there in plan->reads */
} coi_plan_call;

/* A slot that the region finds. */
typedef struct coi_plan_input {
    uint32_t  slot, value;
    co_value *variable; /* that it must be, a reference; NULL: a tensor of the type of the value */
} coi_plan_input;

/* A slot that the region leaves behind, or a call of the plan takes. */
typedef struct coi_plan_output {
    uint32_t  slot, value;
    uint32_t  bound;  /* position of its root in plan->bound; UINT32_MAX: the root is a constant */
    co_value *tensor; /* at the end of a run: a reference */
    bool      is_shared; /* its root is a constant, or another result: it is a tensor of its own */
    bool      is_moved;  /* the tensor of the run goes to the slot, and not a reference to it */
} coi_plan_output;

typedef struct coi_plan {
    coi_memory        *memory;
    const coi_program *program;
    atomic_flag        is_busy;
    atomic_llong       num_runs; /* written by who has it */
    co_device         *device;   /* current, when it was recorded */
    coi_plan_key       key;
    bool               has_tape;
    size_t             num_given; /* the first values: inputs, then constants of the function */
    coi_plan_value    *values;
    size_t             num_values, cap_values;
    coi_plan_kernel   *kernels;
    size_t             num_kernels, cap_kernels;
    uint32_t          *operands;
    size_t             num_operands, cap_operands;
    coi_plan_input    *inputs;
    size_t             num_inputs;
    coi_plan_output   *outputs; /* those that calls take first */
    size_t             num_outputs, cap_outputs;
    coi_plan_call     *stops; /* calls to make, then to start, then the end of the plan */
    size_t             num_stops, cap_stops;
    /* Made when the recording is complete. */
    coi_call       *calls;       /* num_kernels */
    co_value      **cells;       /* of operands, as calls have them */
    int64_t        *row_strides; /* of operands; NULL: all are dense */
    coi_fused      *chains;
    size_t          num_chains, cap_chains;
    coi_fused_step *chain_steps; /* of all chains */
    size_t          num_chain_steps;
    coi_plan_start *starts; /* what a run does, in order */
    size_t          num_starts;
    uint32_t       *bound; /* roots whose data each run brings: inputs, variables, outputs */
    size_t          num_bound;
    co_value *
        *tensors; /* during a run: of variables and outputs, by position in bound; references */
    uint32_t   *reads; /* roots of `bound` that are read after a call, in that order */
    size_t      num_reads;
    uint32_t   *shown;       /* values by root */
    uint32_t   *first_shown; /* by root: position in shown; one more than there are values */
    size_t      arena_bytes, temporary_bytes; /* planned; the sum of what it is planned for */
    char       *small_arena; /* of its own; NULL: each run takes one from the pool */
    char       *arena_data;  /* that cells were bound to last */
    co_context *ctx;         /* the same */
} coi_plan;

/* Slots or steps, in a list that grows. */
typedef struct coi_number_list {
    uint32_t *at;
    size_t    n, capacity;
} coi_number_list;

/* A call in a region, which its plans make, or after it, which they start. */
typedef struct coi_region_call {
    size_t step;
    size_t end; /* of the slots that it is the first to take, in region->taken */
} coi_region_call;

typedef struct coi_region_parts coi_region_parts;

/* A region of a program. */
typedef struct coi_region {
    size_t           first, end; /* steps */
    coi_number_list  ahead;      /* steps of it that are made before the others, in order */
    coi_number_list  in;         /* slots: made before it or ahead, and used by what is planned */
    coi_number_list  taken;      /* made by what is planned in it, and taken by `calls` */
    coi_number_list  out;        /* others that are made by what is planned, and used after it */
    coi_number_list  dropped;    /* of all that it uses or makes: nothing after it uses them */
    coi_region_call *calls;
    size_t           num_calls, cap_calls;
    void (*key)(co_context *ctx, coi_plan_key *key); /* coi_op.plan_key of its calls; or NULL */
    bool                        has_keys;            /* there are several of them: it has no plan */
    bool                        has_tape;            /* a tape begins in it */
    coi_lock                    lock; /* of adding a plan: once it is there it stays */
    atomic_uint                 num_plans, num_failures;
    atomic_bool                 said_most; /* that there are COI_MOST_PLANS */
    _Atomic(coi_region_parts *) parts;    /* where it was cut, and has no plans; NULL: it was not */
    unsigned                    num_cuts; /* of the regions that it is a part of */
    coi_plan                   *plans[COI_MOST_PLANS];
} coi_region;

/* Before a step or tape that no plan can have, the tape with steps made ahead, after it. */
struct coi_region_parts {
    coi_region at[3];
    size_t     n;
};

static inline bool
coi_is_cut(coi_region *region)
{
    return atomic_load_explicit(&region->parts, memory_order_relaxed) != NULL;
}

static inline bool
coi_is_ahead(const coi_region *region, size_t step)
{
    for (size_t i = 0; i < region->ahead.n; ++i)
        if (region->ahead.at[i] == step)
            return true;
    return false;
}

typedef struct coi_plan_recording coi_plan_recording; /* plan_recording.c */

/* Who makes and starts the calls of a plan, with the slots of its run: false with an error. Where a
 * start is false without one, there was nothing to start, and those after it are left out. */
typedef struct coi_plan_caller {
    bool (*make)(void *arg, size_t step);
    bool (*start)(void *arg, size_t step);
    void *arg;
} coi_plan_caller;

/* region.c. Find the regions of a complete program; false with an error. */
bool coi_program_find_regions(co_context *ctx, coi_program *program);
void coi_regions_destroy(coi_heap *heap, coi_program *program);
/* Complete regions of which the steps are set, and those that are made ahead: false without
 * memory. */
bool coi_regions_fill(const coi_program *program, coi_region *regions, size_t n);
/* Give back what a region has. */
void coi_region_clear(coi_heap *heap, coi_memory *memory, coi_region *region);
/* Whether there is something to plan from one step to before another. */
bool coi_has_operator(const coi_program *program, size_t first, size_t end);
bool coi_number_add(coi_memory *memory, coi_number_list *list, uint32_t number);
void coi_number_list_free(coi_memory *memory, const coi_number_list *list);
/*
 * region_cut.c. Let a region without plans have parts, because no plan can have one of its steps:
 * false without memory, or where it was cut too often. `slots` are those of the run.
 */
bool coi_region_cut(co_context *ctx, const coi_program *program, coi_region *region, size_t step,
                    co_value *const *slots);

/* Whether a plan can stand for the calls of ctx. */
bool coi_can_run_plans(const co_context *ctx);
/*
 * Run a region by a plan: whether it was run, or failed with an error in ctx. False without an
 * error: there is no plan for these values, or ctx cannot run one. Where `recording` is not NULL
 * and *recording is not NULL then, a plan may be recorded: make the calls with slots of their own,
 * then call coi_region_end, then try again. What cannot be recorded is an error in ctx from then
 * on, to be forgotten after coi_region_end.
 */
bool coi_region_run(co_context *ctx, const coi_program *program, coi_region *region,
                    co_value **slots, const coi_plan_caller *caller,
                    coi_plan_recording **recording);
/* End a recording: whether the region has a plan more. If not, it may have parts now. An error that
 * a call had stays in ctx. `slots` are those of the calls that were recorded. */
bool coi_region_end(co_context *ctx, const coi_program *program, coi_region *region,
                    co_value *const *slots, co_value *const *slots_of_run,
                    coi_plan_recording *recording);

/* What there is to say about the plans of a program, added to what is there. */
void coi_regions_count(coi_program *program, co_function_stats *stats);

/* plan_recording.c. Begin to record the kernels of ctx, which are not run; NULL without memory, and
 * without an error. */
coi_plan_recording *coi_plan_record(co_context *ctx, const coi_program *program,
                                    const coi_region *region, co_value *const *slots,
                                    const coi_plan_key *key);
/* The calls of this step come next. */
void coi_plan_record_step(coi_plan_recording *recording, size_t step);
/* The call of this step comes next: it is not made. False with an error, and then there is no
 * plan. */
bool coi_plan_record_call(coi_plan_recording *recording, const coi_region *region,
                          const coi_region_call *call, co_value *const *slots);
/* Why there is no plan. */
typedef struct coi_no_plan {
    const char *text;         /* NULL: a call failed */
    uint32_t    step;         /* of the call; UINT32_MAX: none */
    bool        is_of_values; /* the values of this call were in the way, and not their types */
} coi_no_plan;
/* End it: the plan, or NULL with an error in ctx, and the reason. */
coi_plan *coi_plan_recorded(co_context *ctx, coi_plan_recording *recording,
                            const coi_region *region, co_value *const *slots, coi_no_plan *why);

/* plan.c */
/* Make a plan that was recorded ready to run; false without memory. */
bool coi_plan_finish(co_context *ctx, coi_plan *plan);
/* Whether these values of slots are of the types that a plan is for. */
bool coi_plan_fits(const coi_plan *plan, const co_context *ctx, const coi_plan_key *key,
                   co_value *const *slots);
/* Run it, once it is taken (is_busy). False with an error; or with *fits false and without one, and
 * nothing happened, if a variable cannot be read as it was, or there is no memory. */
bool coi_plan_run(co_context *ctx, coi_plan *plan, co_value **slots, const coi_plan_caller *caller,
                  bool *fits);
void coi_plan_destroy(coi_heap *heap, coi_plan *plan);

/* strided_views.c. Let parts of tensors be views where their users and producers can work with
 * them. False without memory. */
bool coi_plan_view_parts(coi_plan *plan);
/*
 * epilogue_order.c. Move element-wise kernels behind the kernel whose result they go on with, where
 * that can have an epilogue and the other operands are there by then. To be called when it is known
 * what is dead, and again afterwards: last uses are others. False without memory.
 */
bool coi_plan_order(coi_plan *plan);
/*
 * fusion.c. Find chains of element-wise kernels: the kernels of a chain follow each other, first
 * and last are set in them, and results that nothing else uses are marked. To be called when it is
 * known what is dead; calls have their operands. False without memory.
 */
bool coi_plan_fuse(coi_plan *plan);

/* early_starts.c. Find the kernels after which calls can be started; the order of kernels does not
 * change any more. */
void coi_plan_find_ready(coi_plan *plan);

/* plan_memory.c. Give blocks that live from step `first` to step `last` offsets in one arena: its
 * size. Their order changes to that of `first`. SIZE_MAX without memory. */
typedef struct coi_plan_block {
    size_t   nbytes, offset;
    uint32_t first, last;
    uint32_t value;
} coi_plan_block;
size_t coi_plan_place(coi_memory *memory, coi_plan_block *blocks, size_t n, size_t num_steps);

#endif
