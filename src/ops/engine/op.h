/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator table. An operator is described once: name, inputs, attributes, shape and dtype
 * rule, kernels, gradient, a line of documentation. The public function is one line that calls
 * coi_apply; co_op_call, the reference documentation, tests and bindings read the table.
 *
 * To add an operator: write its coi_op (const, named initialisers, coi_op_NAME) in the file of its
 * family and declare its public function in include/cohort/ops.h. The build makes the table from
 * all symbols of that form, in whichever folder they are (cmake/CohortOpTable.cmake). There are no
 * operators outside the table: scripts/check-layers rejects a static one.
 */
#ifndef COI_OPS_ENGINE_OP_H
#define COI_OPS_ENGINE_OP_H

#include <cohort/ops.h>
#include <stddef.h>

#include "context/context.h"
#include "context/tape.h"

#define COI_MAX_OUTPUTS     5
#define COI_MAX_INPUT_NAMES 6
#define COI_MAX_ATTRS       512 /* bytes of attributes; COI_ATTRS_SIZE checks it */

/* What an operator will produce; filled by its rule. */
typedef struct coi_out {
    co_dtype dtype;
    int      ndim;
    int64_t  dims[CO_MAX_DIMS];
} coi_out;

/* One call of an operator. Inputs are tensors on the device that it runs on. */
typedef struct coi_call {
    co_context          *ctx;
    const struct coi_op *op;
    co_device           *device;
    co_value           **in;
    int                  num_in;
    const void          *attrs; /* of op->attrs_rule.size bytes */
    co_value            *out[COI_MAX_OUTPUTS];
    int                  num_out;
    /* Of operands, then results, for kernels that take strided ones (coi_op.strided_in): elements
     * from a row, which is the last dimension, to the next; 0: dense. NULL: all are. */
    const int64_t *row_strides;
    /* A chain of a plan that goes on with parts of result 0 as they are finished, for kernels that
     * have epilogues (ops/kernels/fused_elementwise.h); NULL: none. */
    const struct coi_fused *epilogue;
} coi_call;

/* A backward step. in, out and upstream are borrowed; the gradients are values of ctx's block (made
 * by public operators), NULL where there is none. An entry of upstream is NULL when nothing flows
 * into that output. */
typedef struct coi_grad {
    co_context          *ctx;
    const struct coi_op *op;
    const void          *attrs;
    co_value *const     *in;
    int                  num_in;
    co_value *const     *out;
    int                  num_out;
    co_value *const     *upstream;
    bool                 owns_upstream; /* nobody uses upstream after this step */
    const bool          *needed;        /* which inputs want one */
    co_value           **grads;         /* num_in of them, NULL at first */
} coi_grad;

/* An attribute: where it is in the attribute struct and how text and values become it. */
typedef enum coi_attr_type {
    COI_ATTR_INT,    /* int64_t */
    COI_ATTR_FLOAT,  /* double */
    COI_ATTR_BOOL,   /* bool */
    COI_ATTR_DTYPE,  /* uint8_t co_dtype, by name */
    COI_ATTR_INTS,   /* coi_ints */
    COI_ATTR_CHOICE, /* int32_t: position in `choices` */
    COI_ATTR_SCALAR, /* coi_scalar: a host number that keeps its kind */
    COI_ATTR_MANY,   /* coi_many: one number, or more of them than there are dimensions */
    COI_ATTR_STRING  /* char[COI_MAX_STRING], terminated */
} coi_attr_type;
typedef struct coi_ints {
    int32_t n; /* -1: not given (null) */
    int64_t at[CO_MAX_DIMS];
} coi_ints;
typedef struct coi_scalar {
    uint8_t kind; /* CO_KIND_INT, FLOAT, BOOL */
    int64_t i;
    double  f;
} coi_scalar;
/* A host number as an attribute; false if the value is something else. (creation_ops.c) */
bool coi_host_scalar(const co_value *value, coi_scalar *out);
#define COI_MAX_MANY   32
#define COI_NO_INT     INT64_MIN /* of an attribute with the default null */
#define COI_MAX_STRING 256
typedef struct coi_many {
    int32_t n;
    bool    is_one; /* given as a number, not as a list of one */
    int64_t at[COI_MAX_MANY];
} coi_many;
typedef struct coi_attr {
    const char        *name;
    coi_attr_type      type;
    size_t             offset;
    const char        *default_text; /* NULL: required; "null" for INTS: not given */
    const char *const *choices;      /* COI_ATTR_CHOICE, NULL-terminated */
} coi_attr;

/*
 * Attributes are written once, as a list from which the table and the texts of co_op_describe are
 * made:
 *
 *     typedef struct reduce_attrs {
 *         coi_ints axis;
 *         bool     keepdims;
 *     } reduce_attrs;
 *     #define REDUCE_ATTRS(X)                        \
 *         X(reduce_attrs, axis, INTS, "=null", NULL) \
 *         X(reduce_attrs, keepdims, BOOL, "=false", NULL)
 *     COI_ATTR_TABLE(reduce_attrs, REDUCE_ATTRS)
 *
 * and in the operator COI_ATTRS(reduce_attrs). The default is "=text", or "" for what must be
 * given.
 */
#define COI_ATTR_TEXT_INT    "int"
#define COI_ATTR_TEXT_FLOAT  "float"
#define COI_ATTR_TEXT_BOOL   "bool"
#define COI_ATTR_TEXT_DTYPE  "dtype"
#define COI_ATTR_TEXT_INTS   "ints"
#define COI_ATTR_TEXT_CHOICE "choice"
#define COI_ATTR_TEXT_SCALAR "scalar"
#define COI_ATTR_TEXT_MANY   "ints"
#define COI_ATTR_TEXT_STRING "string"
#define COI_ATTR_ENTRY(type, field, kind, given, choices)                                          \
    { #field, COI_ATTR_##kind, offsetof(type, field), sizeof(given) > 1 ? &(given)[1] : NULL,      \
      choices },
#define COI_ATTR_LINE(type, field, kind, given, choices) #field ":" COI_ATTR_TEXT_##kind given,
#define COI_ATTR_TABLE(type, list)                                                                 \
    static const coi_attr    type##_table[] = { list(COI_ATTR_ENTRY){ NULL, COI_ATTR_INT, 0, NULL, \
                                                                      NULL } };                    \
    static const char *const type##_texts[] = { list(COI_ATTR_LINE) NULL };
#define COI_ATTRS(type)                                                                            \
    .attrs_rule.size = COI_ATTRS_SIZE(type), .attrs = type##_table, .attr_texts = type##_texts
/* The size of attributes, which are copied into fixed room: too large ones do not compile. Every
 * entry with attributes has its size from here. */
#define COI_ATTRS_SIZE(type) (sizeof(type) + COI_ATTRS_FIT(type, COI_MAX_ATTRS))
/* 0 for attributes of at most so many bytes; others do not compile. */
#define COI_ATTRS_FIT(type, most)                                                                  \
    (0 * sizeof(struct {                                                                           \
         _Static_assert(sizeof(type) <= (most), "attributes of an operator are too large");        \
         int unused;                                                                               \
     }))

typedef struct coi_effect coi_effect; /* ops/engine/execute.h */
struct coi_needs;                     /* function/graph.h */
struct coi_program_step;              /* function/program.h */

/* See coi_op.plan_key. */
typedef struct coi_plan_key {
    int64_t at[2];
} coi_plan_key;

typedef struct coi_op {
    coi_attrs_rule attrs_rule;                  /* first: the tape knows no more of an operator */
    const char    *name;                        /* as messages have it */
    const char    *doc;                         /* one line */
    const char    *inputs[COI_MAX_INPUT_NAMES]; /* names, in order */
    uint8_t        num_inputs;
    bool           variadic;    /* inputs[0] stands for one or more tensors */
    uint8_t        num_outputs; /* 1 to COI_MAX_OUTPUTS; 0: a tuple, see infer_result */
    uint32_t       dtypes;      /* COI_DTYPE_BITs that input 0 may have; 0: any */
    bool same_dtype; /* all inputs must have the dtype of input 0; host numbers are converted to it
                      */
    bool
        upcasts; /* its kernels have no half precision: operands are upcast to float32 (upcast.h) */
    uint8_t kind; /* which of its family, for kernels that serve several */
    bool    internal;
    uint8_t reads, writes;      /* bits of co_resource: what it acts on besides its operands */
    bool    not_differentiable; /* never recorded: integer results, random numbers, stop_gradient */
    bool    takes_tape;         /* of recorded calls: it works on a tape, and ends it unless it is
                                 * persistent */
    bool               sets_context; /* of recorded calls: later calls of the context see it */
    const coi_attr    *attrs;        /* ends with a NULL name */
    const char *const *attr_texts;   /* "axis:ints=null", in the same order, ends with NULL */
    /*
     * Check inputs and attributes, fill outs[num_outputs]. Errors: coi_invalid. Every operator has
     * a rule, and every rule works on types with unknowns too (type_rules.h): inputs are tensors,
     * or specs of which rank and dimensions may be -1.
     */
    co_code (*infer)(coi_call *call, coi_out *outs);
    /* Composite operators whose number of results depends on the call: `infer` sets call->num_out,
     * -1 if the number is not known, and this gives the type of result i. */
    void (*infer_result)(coi_call *call, int64_t i, coi_out *out);
    /* Outputs share the data of input 0 and need no kernel (reshape, identity, ...). */
    bool view;
    /*
     * Instead of rule and kernels: what an entry does that acts on a resource. It belongs to the
     * folder of that resource, which alone starts it (coi_execute).
     */
    co_code (*effect)(co_context *ctx, coi_effect *effect);
    /* The effect holds locks of variables: entries that it starts are part of it and not shown,
     * because an observer may read those variables. */
    bool holds_locks;
    /* Kernels. `ref` is the plain readable one; `run` the optimised one, NULL: ref serves. They may
     * fail (bad index). */
    co_code (*ref)(coi_call *call);
    co_code (*run)(coi_call *call);
    /* Bits of operands and results whose rows `run` takes at a distance from each other. */
    uint8_t strided_in, strided_out;
    /* Gradient; NULL: none flows. Written with public operators, so that it can be differentiated
     * again. */
    co_code (*grad)(coi_grad *grad);
    /*
     * Fused backward: the gradients of this operator, which has one input, and of the operator that
     * produced the input. Sets *done and fills the grads of both that are needed, or leaves both to
     * their own gradients. Only operands and attributes may decide that, and not what is needed or
     * whether a tape records: the bits of a gradient would depend on it. `grad` needs one where the
     * user asks for the gradient of the input; it does not flow on through the producer.
     */
    const struct coi_op *fused_producer;
    co_code (*fused_grad)(const coi_grad *grad, coi_grad *fused_producer, bool *done);
    /*
     * Instead of kernels: the result, a tensor or a tuple of them, made of public operators from
     * call->in. Gradients come by the tape, operator by operator; where `grad` is there too, the
     * parts stay off the tape and `grad` stands for the whole, which then is one new tensor.
     */
    co_value *(*composite)(coi_call *call);
    bool composes_checked; /* `composite` refuses what `infer` does: it need not run before */
    /*
     * The training variant, which coi_apply_many runs while a tape is open: the same inputs and
     * results, followed by the tensors that the gradient needs.
     */
    const struct coi_op *training;
    /*
     * Over types: whether `grad` takes the same steps for all tensors that fit; NULL: it does.
     * Where it does not, one entry stands for it until there are tensors (deferred_gradient.c).
     */
    bool (*grad_is_known)(const coi_grad *grad);
    /*
     * Over types: whether `composite` has the same parts for all tensors that fit; NULL: where all
     * shapes are known. Where it has not, the operator is recorded as one entry.
     */
    bool (*parts_are_known)(const coi_call *call);
    /* Which inputs a gradient can reach, where it is deferred: the first so many, or, below 0, all
     * but the last so many; 0: all. */
    int8_t num_reached;
    /* Of a variant of a public operator, whose name messages have: its own, by which the table,
     * observers and backends know it. NULL: `name`. */
    const char *entry;
    /* Started by code of the library alone: the rule trusts its operands, or attributes are
     * pointers. */
    bool not_by_name;
    /* Of recorded calls: whether two captures of one have the same attributes. An error in ctx
     * tells what differs inside of them. NULL: whether their bytes are the same. */
    bool (*same_attrs)(co_context *ctx, const void *a, const void *b);
    /* Of an entry that captured functions hold as a call (call_recording.h): makes the call again.
     * A value of the block, or NULL with an error in ctx. */
    co_value *(*replay)(co_context *ctx, const void *attrs, co_value *const *in, int num_in);
    /* Of such an entry, where a session may want a part of its results: want the operands that this
     * part takes (function/graph.h); the others are none when it is made. False without memory.
     * NULL: it takes all. */
    bool (*want_operands)(struct coi_needs *needs, const struct coi_program_step *step);
    /* Of such an entry: it starts kernels and has no other effect, so that a plan has them in its
     * place (function/plan.h). */
    bool is_planned;
    /* Of such an entry that has an effect: it does the same whether a tape is open or not, and what
     * a tape would note of it only matters to those who use its results. So a plan can make the
     * call between its kernels, where none of them uses the results. */
    bool is_plan_call;
    /* Of such an entry: begins the call, once its operands are there, and waits for nothing; it has
     * no error, and `replay` makes the call at its place with or without it. False: it did not, and
     * the calls after it may not begin before it. NULL: there is nothing to begin. */
    bool (*start)(co_context *ctx, const void *attrs, co_value *const *in, int num_in);
    /* With `start`: does what can be done of the calls that began, and waits for nothing. */
    void (*go_on)(co_context *ctx);
    /* Of an entry that is planned, where the numbers of the host that its kernels get depend on
     * more than its operands: writes what they depend on. Another key, another plan. */
    void (*plan_key)(co_context *ctx, coi_plan_key *key);
    /* An effect that happens while kernels are recorded, too: it reads variables or numbers of the
     * host alone, or its result is in the attributes of a kernel, which renews them. */
    bool is_recordable;
    /* Of a kernel whose attributes hold state of ctx: brings them up to date, in every run of a
     * plan. */
    void (*renew)(co_context *ctx, void *attrs);
} coi_op;

static inline const char *
coi_entry_name(const coi_op *op)
{
    return op->entry != NULL ? op->entry : op->name;
}
/* Whether co_op_call may call it. */
static inline bool
coi_is_by_name(const coi_op *op)
{
    return op->effect == NULL && !op->not_by_name;
}

/* Declares an entry that another file defines. */
#define COI_USES_OP(name) extern const coi_op coi_op_##name;
/* Every entry, by name order; made by the build. */
extern const coi_op *const coi_op_table[];
extern const size_t        coi_num_ops;
const coi_op              *coi_op_find(const char *name);

/* apply.c: convert operands, run, record on the tape, give the results to the block. NULL with an
 * error in ctx. */
co_value *coi_apply(co_context *ctx, const coi_op *op, co_value *const *operands, int num_operands,
                    const void *attrs);
co_value *coi_apply1(co_context *ctx, const coi_op *op, co_value *x, const void *attrs);
co_value *coi_apply2(co_context *ctx, const coi_op *op, co_value *x, co_value *y,
                     const void *attrs);
/* The first gradient of an element-wise operator, by an operator of two operands: x, and what flows
 * in. Where nobody else has the memory of the latter and it is large, the result takes it. */
co_value *coi_apply_backward(const coi_grad *grad, const coi_op *op, co_value *x);
/* The same when there are several outputs: outs[op->num_outputs] are values of the block. */
co_code coi_apply_many(co_context *ctx, const coi_op *op, co_value *const *operands,
                       int num_operands, const void *attrs, co_value **outs);

/* A composite operator, whatever its operands are: a value of the block, or NULL with an
 * error in ctx. */
co_value *coi_apply_composite(co_context *ctx, const coi_op *op, co_value *const *operands,
                              int num_operands, const void *attrs);
/* The same with a list or tuple of operands, for operators that take any number. */
co_value *coi_apply_composite_list(co_context *ctx, const coi_op *op, co_value *xs,
                                   const void *attrs);

/* The type of the result, without running anything (type_inference.c): a spec, a tuple of specs, or
 * none where even their number is unknown. Operands are specs, or whatever converts to a tensor. A
 * value of the block, or NULL with an error in ctx. */
co_value *coi_infer(co_context *ctx, const coi_op *op, co_value *const *operands, int num_operands,
                    const void *attrs);
/* The same for an operator with kernels: outs[op->num_outputs] are specs of the block. */
co_code coi_infer_many(co_context *ctx, const coi_op *op, co_value *const *operands,
                       int num_operands, const void *attrs, co_value **outs);
/* The gradient of an operator over types: in, out and upstream are specs, and so are the gradients.
 * Operators of specs give specs meanwhile. */
co_code coi_infer_gradient(coi_grad *grad);
/* The same by one entry, which takes the gradient where there are tensors (deferred_gradient.c).
 * The gradients are dense. */
co_code coi_defer_gradient(coi_grad *grad);
/* A composite operator over types. With a recorder it is taken apart where its parts are known and
 * it has no gradient of its own; else it is one entry. */
co_value *coi_infer_composite(co_context *ctx, const coi_op *op, co_value *const *operands,
                              int num_operands, const void *attrs);
/*
 * Is shown every entry that operators of specs start, in order, while ctx->type_recorder is set: a
 * list of them is a program for all tensors that fit the specs. Operands are as they were given;
 * those that are no specs are constants. The result is a spec, a tuple of specs, or none. What
 * record returns is the result of the operator: this one, or another in its place; NULL with an
 * error in ctx.
 */
typedef struct coi_type_recorder {
    void *data;
    co_value *(*record)(co_context *ctx, void *data, const coi_op *op, const void *attrs,
                        co_value *const *operands, int num_operands, co_value *result);
} coi_type_recorder;
/* For grad_is_known: all ranks of inputs, and of what flows in, are known. */
bool coi_grad_with_ranks(const coi_grad *grad);
/* For parts_are_known: always, and where all ranks are known. */
bool coi_parts_of_any(const coi_call *call);
bool coi_parts_with_ranks(const coi_call *call);
/* Whether the context works on types, and these are some. */
bool coi_are_types(const co_context *ctx, co_value *const *operands, int num_operands);
/* Whether a value may be an operand where ctx runs (apply.c): per-replica values may not always
 * (DV-USE-5). False with an error. */
bool coi_may_be_operand(const coi_call *call, const co_value *value);
/* What every call is checked for before its rule (apply.c): how many operands, and their dtypes. */
bool coi_check_count(coi_call *call);
bool coi_check_dtypes(coi_call *call);
/* The dtype that host numbers take beside the operands that have one; those are NULL in
 * `converted`. */
co_dtype coi_dtype_beside(co_value *const *given, int n, co_value *const *converted);
/* The operands that are still NULL in call->in, host values, as tensors of the block; false
 * with an error. */
bool coi_convert_host_operands(coi_call *call, co_value *const *given);

/* A nested list of numbers and tensors as one tensor, by operators, so that gradients reach its
 * leaves (to_tensor.c). */
co_value *coi_stack(co_context *ctx, co_value *list);

/* CO_INVALID_ARGUMENT with the operator's name, as GEN-ERR-4 wants it. */
co_code coi_invalid(coi_call *call, const char *format, ...) CO_PRINTF(2, 3);

/* Rules that many operators share (shape_rules.c). */
co_code coi_rule_same(coi_call *call, coi_out *outs); /* output like input 0 */
co_code coi_rule_broadcast(coi_call *call,
                           coi_out  *outs); /* two inputs, NumPy broadcasting, dtype of input 0 */
/* Broadcast of two shapes, which may have unknowns; false if they do not fit. */
bool coi_broadcast(const int64_t *a, int na, const int64_t *b, int nb, coi_out *out);
/* axis in [-ndim, ndim) made non-negative; CO_INVALID_ARGUMENT naming axis and rank otherwise. An
 * unknown rank, -1, takes any axis, and *out is -1. */
co_code coi_rule_axis(coi_call *call, int64_t axis, int ndim, int *out);
/* A host number as an element of dtype, which is one of numbers or bool: integers do not wrap and
 * take no floats. CO_INVALID_ARGUMENT naming attribute, number and limits. */
co_code coi_rule_number(coi_call *call, const char *name, const coi_scalar *scalar, co_dtype dtype);
/* The arrays of public functions as attributes. What is too long or NULL is CO_INVALID_ARGUMENT
 * naming `argument`. */
bool coi_ints_from_dims(co_context *ctx, const char *argument, const int64_t *dims, size_t n,
                        coi_ints *out);
/* The same for int; NULL without elements means: not given. */
bool coi_ints_from_axes(co_context *ctx, const char *argument, const int *axes, size_t n,
                        coi_ints *out);

/* "[2,-1]"; returns out. Unlike shapes, attributes show negative numbers. */
const char *coi_ints_text(const coi_ints *ints, char out[COI_SHAPE_TEXT]);

/* Sum a gradient down to the shape of `like`, undoing broadcasting. */
co_value *coi_unbroadcast(co_context *ctx, co_value *grad, co_value *like);

/* Split the work of a kernel: fn(arg, chunk) for chunk 0 .. n-1 on the device's workers. What a
 * chunk is must depend on the shape alone. Small work: call with n = 1. */
static inline void
coi_parallel(coi_call *call, int64_t n, coi_chunk_fn fn, void *arg)
{
    if (n == 1)
        fn(arg, 0);
    else
        coi_team_run(call->device->team, n, fn, arg);
}

/* The same for work of about work_ns, which may be little: it goes to workers that are awake. */
static inline void
coi_parallel_for(coi_call *call, int64_t n, int64_t work_ns, coi_chunk_fn fn, void *arg)
{
    if (n == 1)
        fn(arg, 0);
    else
        coi_team_run_for(call->device->team, n, work_ns, fn, arg);
}

/* Typed access in kernels. */
#define COI_IN(call, i, type)  ((const type *)(call)->in[i]->u.tensor.data)
#define COI_OUT(call, i, type) ((type *)(call)->out[i]->u.tensor.data)

#endif
