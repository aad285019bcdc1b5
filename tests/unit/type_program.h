/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program for tests: the entries that operators of specs started, with their attributes, and how
 * to run them with tensors in the place of the specs. It works on the hook that captured functions
 * work on, ctx->type_recorder, and has nothing that only a test needs to know: an operand is an
 * earlier spec, or a constant.
 */
#ifndef TYPE_PROGRAM_H
#define TYPE_PROGRAM_H

#include "ops_support.h"

#include "ops/engine/op.h"

enum { PROGRAM_MOST_STEPS = 1000, PROGRAM_MOST_BINDINGS = 4000 };

typedef struct program_step {
    const coi_op *op;
    void         *attrs; /* NULL: none */
    co_value    **in;    /* references */
    int           num_in;
    co_value     *result; /* a reference */
} program_step;

/* A spec and the tensor in its place. */
typedef struct program_binding {
    const co_value *spec;
    co_value       *value;
} program_binding;

typedef struct program {
    co_context       *ctx;
    coi_type_recorder recorder;
    program_step      steps[PROGRAM_MOST_STEPS];
    int               num_steps;
    program_binding   bindings[PROGRAM_MOST_BINDINGS];
    int               num_bindings;
} program;

static inline co_value *
program_record(co_context *ctx, void *data, const coi_op *op, const void *attrs,
               co_value *const *given, int num_given, co_value *result)
{
    program      *p = data;
    program_step *step = &p->steps[p->num_steps];
    size_t        size = op->attrs_rule.size;

    CO_REQUIRE(p->num_steps < PROGRAM_MOST_STEPS);
    *step = (program_step){ op, NULL, NULL, num_given, result };
    if (size > 0) {
        step->attrs = aligned_alloc(64, (size + 63) / 64 * 64);
        memcpy(step->attrs, attrs, size);
        if (op->attrs_rule.copy != NULL)
            CO_REQUIRE(op->attrs_rule.copy(&ctx->heap, step->attrs, attrs));
    }
    step->in = malloc((size_t)(num_given + 1) * sizeof(*step->in));
    for (int i = 0; i < num_given; ++i) {
        step->in[i] = given[i];
        coi_ref(given[i]);
    }
    coi_ref(result);
    ++p->num_steps;
    return result;
}

/* Entries that are started over types go into the program from here on, until program_pause. */
static inline void
program_start(co_context *ctx, program *p)
{
    p->ctx = ctx;
    p->recorder = (coi_type_recorder){ p, program_record };
    ctx->type_recorder = &p->recorder;
    ctx->infers_types = true;
}

static inline void
program_pause(program *p)
{
    p->ctx->type_recorder = NULL;
    p->ctx->infers_types = false;
}

static inline void
program_drop(program *p)
{
    coi_heap *heap = &p->ctx->heap;

    for (; p->num_steps > 0; --p->num_steps) {
        program_step *step = &p->steps[p->num_steps - 1];

        if (step->op->attrs_rule.destroy != NULL)
            step->op->attrs_rule.destroy(heap, step->attrs);
        for (int i = 0; i < step->num_in; ++i)
            coi_unref(heap, step->in[i]);
        coi_unref(heap, step->result);
        free(step->in);
        free(step->attrs);
    }
    p->num_bindings = 0;
}

static inline void
program_bind(program *p, const co_value *spec, co_value *value)
{
    CO_REQUIRE(p->num_bindings < PROGRAM_MOST_BINDINGS);
    p->bindings[p->num_bindings++] = (program_binding){ spec, value };
}

/* What stands for a value now: the tensor of a spec, else itself. NULL, with a failure, for a spec
 * that nothing made. */
static inline co_value *
program_value(const program *p, co_value *value)
{
    if (value == NULL || value->kind != CO_KIND_SPEC)
        return value;
    for (int i = p->num_bindings; i > 0; --i)
        if (p->bindings[i - 1].spec == value)
            return p->bindings[i - 1].value;
    test_fail(TEST_AT, "a spec is used that no entry made");
    return NULL;
}

static inline bool
program_bind_results(program *p, const program_step *step, co_value *const *outs)
{
    co_value *specs = step->result;

    if (specs->kind == CO_KIND_SPEC)
        program_bind(p, specs, outs[0]);
    for (size_t i = 0; specs->kind == CO_KIND_TUPLE && i < specs->u.items.n; ++i)
        program_bind(p, specs->u.items.items[i], outs[i]);
    return specs->kind == CO_KIND_SPEC || specs->kind == CO_KIND_TUPLE;
}

static inline bool
program_run_step(program *p, const program_step *step)
{
    const coi_op *op = step->op;
    co_value    **in = malloc((size_t)(step->num_in + 1) * sizeof(*in));
    co_value     *outs[COI_MAX_OUTPUTS], *result = NULL;
    bool          ok = true;

    for (int i = 0; i < step->num_in; ++i)
        ok = (in[i] = program_value(p, step->in[i])) != NULL && ok;
    if (ok && op->composite != NULL) {
        result = coi_apply_composite(p->ctx, op, in, step->num_in, step->attrs);
        ok = result != NULL &&
             program_bind_results(p, step,
                                  result->kind == CO_KIND_TUPLE ? result->u.items.items : &result);
    } else if (ok) {
        ok = coi_apply_many(p->ctx, op, in, step->num_in, step->attrs, outs) == CO_OK &&
             program_bind_results(p, step, outs);
    }
    if (!ok && !co_ok(p->ctx))
        test_fail(TEST_AT, "%s of a program: %s", op->name, co_error(p->ctx)->message);
    free(in);
    return ok;
}

/* All entries in order, on what is bound. */
static inline bool
program_run(program *p)
{
    bool ok = true;

    for (int i = 0; ok && i < p->num_steps; ++i)
        ok = program_run_step(p, &p->steps[i]);
    return ok;
}

/* --- specs with unknowns --- */

/* Which types are tried: bit k of `dims`, dimension k of all inputs is unknown; bit i of `ranks`,
 * the rank of input i is. */
typedef struct type_unknowns {
    uint64_t dims;
    uint32_t ranks;
    bool     recording; /* while a tape is open */
} type_unknowns;

static inline void
type_specs(co_context *ctx, co_value *const *in, int n, const type_unknowns *u, co_value **specs)
{
    int k = 0;

    for (int i = 0; i < n; ++i) {
        const co_value *x = in[i];
        int64_t         dims[CO_MAX_DIMS];

        for (int d = 0; d < x->ndim; ++d, ++k)
            dims[d] = (u->dims >> k & 1) != 0 ? -1 : x->u.tensor.dims[d];
        specs[i] = co_spec(ctx, (co_dtype)x->dtype, dims, (u->ranks >> i & 1) != 0 ? -1 : x->ndim);
    }
}

/* Combinations of n dimensions: all of them if they are few; else none, all, each alone, and any.
 */
static inline int
type_num_combinations(int n)
{
    return n <= 6 ? 1 << n : 64;
}

static inline uint64_t
type_combination(int i, int n)
{
    uint64_t all = n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;

    if (n <= 6)
        return (uint64_t)i;
    if (i < 2)
        return i == 0 ? 0 : all;
    return i - 2 < n ? UINT64_C(1) << (i - 2)
                     : (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15) >> 7 & all;
}

/* --- comparing --- */

static inline bool
same_bits(const co_value *a, const co_value *b)
{
    return a != NULL && b != NULL && a->kind == CO_KIND_TENSOR && b->kind == CO_KIND_TENSOR &&
           a->dtype == b->dtype && coi_same_shape(a, b) &&
           memcmp(a->u.tensor.data, b->u.tensor.data, coi_tensor_nbytes(a)) == 0;
}

/* Whether a spec or slices of specs have the bits of an eager value. A gradient that is taken later
 * is dense, where an eager one may be slices. */
static inline bool
program_agrees(program *p, co_value *recorded, co_value *eager)
{
    bool same = true;

    if (recorded == NULL || eager == NULL)
        return recorded == eager;
    if (recorded->kind != CO_KIND_SLICES)
        return same_bits(program_value(p, recorded),
                         eager->kind == CO_KIND_SLICES ? co_to_tensor(p->ctx, eager, CO_DTYPE_NONE)
                                                       : eager);
    for (int i = 0; same && i < 3; ++i)
        same = eager->kind == CO_KIND_SLICES &&
               same_bits(program_value(p, recorded->u.components[i]), eager->u.components[i]);
    return same;
}

#endif
