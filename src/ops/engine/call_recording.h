/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a function is captured, calls are recorded instead of made: operators by
 * type_inference.c, calls that act on a resource by the folder that makes them, through
 * coi_record_call. src/function keeps what is recorded and makes the calls again.
 */
#ifndef COI_OPS_ENGINE_CALL_RECORDING_H
#define COI_OPS_ENGINE_CALL_RECORDING_H

#include "ops/engine/execute.h"

/* What a context has while it captures a function; src/function has more behind it. */
typedef struct coi_capture {
    uint64_t program; /* serial number, which its symbolic tensors carry */
    /* The value of this program for a symbolic tensor of another one; NULL with an error. */
    co_value *(*adopt)(co_context *ctx, struct coi_capture *capture, co_value *symbol);
    struct coi_capture *outer;       /* during which it began; NULL: none */
    int                 num_inlined; /* captured functions whose calls are being added */
    int                 num_next;    /* elements of iterators that it takes */
    bool                may_create;  /* variables: the first capture of a function (FN-6) */
    bool                has_created; /* one, or tried to without being allowed */
    struct co_graph    *graph;       /* that it adds to, itself or through a step of it (function/
                                      * graph.h); NULL: a function */
    bool is_graph;                   /* it is the capture of the graph itself */
    /* It is a step that is captured once, as a part of the graph or function around it: it may make
     * variables, and is no nested call. */
    bool is_part;
    /* Of a step of co_run in a graph, which may give more than its result (strategy/graph_run.h);
     * NULL: it may not. */
    struct coi_exports *exports;
    bool                has_seed; /* of a graph: co_set_seed was called */
    uint64_t            seed;
    co_value           *after;     /* results of calls that the next ones come after; NULL: none */
    uint32_t            tape;      /* of the next call that takes or ends one: its number, */
    bool                ends_tape; /* and whether it is open no more after the call */
    const void         *stack;     /* from where on the function has its frames; NULL: a graph */
    bool asks_place; /* it asked the host which strategy or replica this is: its program says so for
                      * this place alone */
} coi_capture;

/* The host is told where ctx is: what is being captured holds for this place alone. */
static inline void
coi_note_place(co_context *ctx)
{
    for (coi_capture *c = ctx->capture; c != NULL; c = c->outer)
        c->asks_place = true;
}

/* Whether what ctx calls becomes part of a graph. */
static inline bool
coi_in_graph(const co_context *ctx)
{
    return ctx->in_graph;
}

/* Whether ctx captures a function. */
static inline bool
coi_is_capturing(const co_context *ctx)
{
    return ctx->capture != NULL;
}

/* Whether the host may be told of a state that changes: CO_TYPE_ERROR while a function is captured,
 * whose calls would all have the number of the capture. `what` is "the number of updates". */
bool coi_check_host_state(co_context *ctx, const char *what);

/*
 * An entry that captured functions hold as a call: operands are values of any kind, and `replay`
 * makes the call. More fields may follow. Such an entry is not started by itself: what it calls
 * starts entries of its own.
 */
#define COI_RECORDED(name_, doc_, replay_, reads_, writes_)                                        \
    .name = name_, .doc = doc_, .internal = true, .not_by_name = true, .not_differentiable = true, \
    .reads = (reads_), .writes = (writes_), .effect = coi_recorded_effect, .replay = replay_
co_code             coi_recorded_effect(co_context *ctx, coi_effect *effect);
extern const coi_op coi_op_tape_begin, coi_op_tape_end, coi_op_watch; /* tape_calls.c */

/* Let the next call that ctx captures be about the tape at a place; COI_NO_TAPE: about none. */
static inline void
coi_capture_tape(co_context *ctx, size_t place)
{
    const coi_tape *tape = place != COI_NO_TAPE ? &ctx->tapes->tapes[place] : NULL;

    ctx->capture->tape = tape != NULL ? tape->captured : 0;
    ctx->capture->ends_tape = tape != NULL && !tape->persistent;
}

/* What coi_op_tape_begin is recorded with. */
typedef struct coi_tape_begin_attrs {
    bool persistent;
} coi_tape_begin_attrs;

/*
 * Record a call. `result` is its type: specs that nobody else has, in the structure of the result,
 * with other values where these are known now. Returns the result, in which symbolic tensors stand
 * for the specs: a value of the block, or NULL with an error.
 */
co_value *coi_record_call(co_context *ctx, const coi_op *op, const void *attrs, co_value *const *in,
                          int num_in, co_value *result);

/* A symbolic tensor of the program that is being captured: this one, or what stands for it there.
 * NULL with an error, also where nothing is being captured. Borrowed, or of the block. */
co_value *coi_own_symbol(co_context *ctx, co_value *symbol);

/* The same for all symbolic tensors of a structure; other leaves stay. A value of the block. */
co_value *coi_own_symbols(co_context *ctx, co_value *value);

/*
 * Put a call on the tape of types. It may compute each floating spec of `result` from each floating
 * one of `in` (symbolic tensors, tensors, variables), so that a gradient reaches what is watched
 * there. The gradient of `op` is coi_grad_of_call. False with an error; true without an open tape.
 */
bool coi_tape_call(co_context *ctx, const coi_op *op, const void *attrs, co_value *const *in,
                   size_t num_in, co_value *result);
/* Over types alone: a gradient of the type of each operand. */
co_code coi_grad_of_call(coi_grad *grad);
/* Whether a call is on the open tapes: some of the gradients that it promises there may be missing
 * when it runs. */
bool coi_tape_has_calls(const co_context *ctx);

/* The type of a value, in specs of its own: a value of the block. What is neither a tensor nor a
 * structure of them is returned as it is. */
co_value *coi_fresh_type(co_context *ctx, co_value *value);

#endif
