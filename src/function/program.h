/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program: the calls that a function made while it was captured, in order. Operands and results
 * are values as the function had them, in which symbolic tensors stand for what each run of the
 * program computes. A symbolic tensor has the serial number of its program and a slot: its place
 * among the values of one run.
 *
 * The calls of a program do not change once it is complete, and contexts may run it at the same
 * time. Its regions gain plans as it runs (plan.h); the lock of each region guards them.
 */
#ifndef COI_FUNCTION_PROGRAM_H
#define COI_FUNCTION_PROGRAM_H

#include "ops/engine/call_recording.h"

typedef struct coi_program_step {
    const coi_op *op;
    void         *attrs;  /* a copy of its own, NULL without */
    co_value    **in;     /* num_in, references */
    co_value     *result; /* a reference */
    int           num_in;
    uint32_t      num_dropped;   /* slots that no later step uses */
    uint32_t      first_dropped; /* in program->dropped */
    bool          is_plain;      /* operands are symbolic tensors and constants, no structures */
    const char   *call;          /* the public call that made it */
    co_site_info  site;
    const coi_device_name *device; /* that it was made on; NULL: that of the caller */
    co_value *after; /* results of calls that come before it; a reference, NULL: none (graph.h) */
    coi_mode *mode;  /* of a graph: what it was made under; NULL: the default mode */
    uint32_t  tape;  /* number of the tape that it begins, takes, ends or lets watch; 0: none */
    bool      ends_tape;
} coi_program_step;

/* A value that was computed while capturing, for the initial value of a variable. */
typedef struct coi_program_constant {
    uint64_t  slot;
    co_value *value; /* a reference */
} coi_program_constant;

typedef struct coi_program {
    coi_object  object;
    coi_memory *memory;
    uint64_t    serial;
    uint64_t
        outermost; /* of the outermost function in whose capture this one was made; or itself */
    coi_program_step     *steps;
    size_t                num_steps, cap_steps;
    uint32_t              num_slots;
    uint32_t             *dropped; /* slots, by the last step that uses them */
    size_t                cap_dropped;
    co_value             *args, *result; /* references, once they are known */
    coi_program_constant *constants;
    size_t                num_constants, cap_constants;
    bool                  has_examples; /* of per-replica values, which each run brings */
    struct coi_region    *regions;      /* plan.h; in order */
    size_t                num_regions, cap_regions;
    bool is_tied;    /* it holds a dataset made of one of its arguments: it serves these alone */
    bool asks_place; /* the function asked where it is called: which strategy, which replica */
} coi_program;

extern const coi_class coi_program_class;

/* An empty program: a reference, or NULL with an error. */
coi_program *coi_program_new(co_context *ctx);
/* Let a spec that nobody else has be a value of the program. */
void coi_program_name(coi_program *program, co_value *spec);
/*
 * The same for all specs in a type. Symbolic tensors and tensors in it are results that are values
 * already (an operator that returns its operand); they become others, with the same type. A value
 * of the block, or NULL with an error.
 */
co_value *coi_program_name_all(co_context *ctx, coi_program *program, co_value *type);
/* Append a call. False with an error. */
bool coi_program_add(co_context *ctx, coi_program *program, const coi_op *op, const void *attrs,
                     co_value *const *in, int num_in, co_value *result);
/* Remove the calls i of which drop[i] is set. */
void coi_program_drop_steps(coi_heap *heap, coi_program *program, const bool *drop);
/*
 * compute.c. Compute what stands for the symbolic tensors of a value, which do not depend on
 * arguments: the calls that it takes are made now, and are no calls of the program any more. `what`
 * names it in messages. A value of the block, or NULL with an error.
 */
co_value *coi_program_compute(co_context *ctx, coi_program *program, co_value *value,
                              const char *what);
/* References to the constants of a program in the slots of a run. */
void coi_program_put_constants(const coi_program *program, co_value **slots);
/* The values of a run that makes calls one by one, by slot. */
typedef struct coi_run_values {
    co_value **slots;
    int64_t   *examples; /* of per-replica values; NULL: none */
    bool      *is_one;   /* all replicas gave one value (DV-GROUP-4); NULL: nobody asks */
    bool       has_one;  /* it is set somewhere */
} coi_run_values;
/* replay.c. Make one call of a program outside a run of it: false with an error. `values` holds its
 * operands, and gets its results. */
bool coi_program_run_step(co_context *ctx, const coi_program *program, const coi_program_step *step,
                          coi_run_values *values);
/* What stands for a value of the program there: of the block, or NULL with an error. Slots without
 * a value give none. */
co_value *coi_program_value(co_context *ctx, const coi_program *program, coi_run_values *values,
                            co_value *pattern);
/*
 * When the values of a run are dropped: after the last of some calls that uses them. Find these
 * calls, keep what is used later, and sort the slots by their call: num_dropped and first_dropped
 * of each say which of `dropped`, with room for all slots, are its own.
 */
typedef struct coi_last_uses {
    uint64_t          program; /* serial number */
    coi_program_step *steps;
    size_t            num_steps, num_slots;
    uint32_t         *last; /* by slot: the call + 1, 0 at first: it is not dropped */
} coi_last_uses;
void coi_last_uses_find(const coi_last_uses *uses);
void coi_last_uses_keep(const coi_last_uses *uses, const co_value *value);
void coi_last_uses_sort(const coi_last_uses *uses, uint32_t *dropped);

/* All calls are there: set the result and find the last use of every value. False with an error. */
bool coi_program_finish(co_context *ctx, coi_program *program, co_value *result);

/* control_flow.c. Whether a call of the program, or of one that it holds, reads or writes one of
 * these resources. */
bool coi_program_acts_on(const coi_program *program, unsigned resources);
/* The resources that a call writes, or one of the programs that it holds. */
unsigned coi_step_writes(const coi_program_step *step);

/* Whether there is a symbolic tensor in a value. */
bool coi_has_symbols(const co_value *value);
/* The slot of the first symbolic tensor of the program in a value; UINT64_MAX: there is none. */
uint64_t coi_first_slot(const coi_program *program, const co_value *value);
/* Whether the symbolic tensor of that slot is in a value. */
bool coi_has_slot(const coi_program *program, const co_value *value, uint64_t slot);

/* replay.c. The type of what a call with `args` gives: arguments that the function returns are
 * themselves, what it computes are specs. A value of ctx's block, or NULL with an error. */
co_value *coi_program_result_type(co_context *ctx, const coi_program *program, co_value *args);

/* replay.c. Run a program with `args`, which fit program->args: a value of the block, or NULL with
 * an error. Where ctx captures, the calls become part of what is captured. */
co_value *coi_program_replay(co_context *ctx, const coi_program *program, co_value *args);
/* The same for the calls i of which is_needed[i] is set; results of others are none. NULL: all. */
co_value *coi_program_replay_part(co_context *ctx, const coi_program *program, co_value *args,
                                  const bool *is_needed);
/* Whether there is a per-replica value in it whose examples each run brings. */
bool coi_has_examples(const co_value *value);

/* print.c, dot.c. The texts of co_function_print and co_function_dot. */
size_t coi_program_print(co_context *ctx, const coi_program *program, char *out, size_t capacity);
size_t coi_program_dot(co_context *ctx, const coi_program *program, char *out, size_t capacity);

#endif
