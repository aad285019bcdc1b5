/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops as long as a condition holds. Each round has a block of its own, so that memory does not
 * grow with the number of rounds, unless a tape keeps what it needs.
 */
#include "function/control_flow.h"
#include "function/value_tree.h"

#include "base/text.h"

/* One loop: `types` are those that loop variables have in every round. */
typedef struct loop {
    coi_flow_body cond, body;
    co_value     *types;
    int64_t       limit; /* below 0: none */
} loop;

/* --- rounds --- */

static bool
goes_on(co_context *ctx, const loop *l, co_value *variables, bool *out)
{
    co_value *truth;
    bool      ok;

    co_block_begin(ctx);
    truth = ctx->error.code == CO_OK ? coi_body_run(ctx, &l->cond, variables) : NULL;
    ok = truth != NULL &&
         coi_read_predicate(ctx, truth, "what the condition of while returned", out);
    co_block_end(ctx);
    return ok;
}

/* A reference to the next loop variables, or NULL with an error. */
static co_value *
next_round(co_context *ctx, const loop *l, co_value *variables)
{
    co_value *next;

    co_block_begin(ctx);
    next = ctx->error.code == CO_OK ? coi_body_run(ctx, &l->body, variables) : NULL;
    next = coi_round_tuple(ctx, next);
    if (next != NULL && !coi_check_round(ctx, "body of while", l->types, next))
        next = NULL;
    if (next != NULL)
        coi_ref(next);
    co_block_end(ctx);
    return next;
}

static co_value *
run_rounds(co_context *ctx, const loop *l, co_value *variables)
{
    bool more = true;

    coi_ref(variables);
    for (int64_t i = 0; l->limit < 0 || i < l->limit; ++i) {
        co_value *next;

        if (!goes_on(ctx, l, variables, &more) || !more)
            break;
        next = next_round(ctx, l, variables);
        if (next == NULL)
            break;
        coi_unref(&ctx->heap, variables);
        variables = next;
    }
    variables = coi_own(ctx, variables);
    return ctx->error.code == CO_OK ? variables : NULL;
}

/* --- in captured functions --- */

enum { COND, BODY, NUM_PROGRAMS };

static co_value *replay_while(co_context *ctx, const void *attrs, co_value *const *in, int num_in);

const coi_op coi_op_while = {
    COI_WITH_BODIES("while",
                    "Runs a captured body as long as a captured condition holds; co_while.",
                    replay_while),
};

/* The types of the loop variables, of which the programs were captured. */
static co_value *
types_of_program(const coi_program *program)
{
    return program->args->u.items.items[0];
}

static co_value *
record_while(co_context *ctx, coi_bodies *bodies, co_value *const *in, int num_in)
{
    return coi_bodies_record(ctx, &coi_op_while, bodies, in, num_in,
                             coi_types_of_args(ctx, types_of_program(bodies->programs[BODY])));
}

static co_value *
replay_while(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    coi_bodies *bodies = ((const coi_bodies_attrs *)attrs)->bodies;
    loop        l;

    if (coi_is_capturing(ctx))
        return record_while(ctx, bodies, in, num_in);
    l = (loop){ coi_bodies_at(bodies, COND, in, num_in), coi_bodies_at(bodies, BODY, in, num_in),
                types_of_program(bodies->programs[BODY]), bodies->limit };
    return run_rounds(ctx, &l, in[0]);
}

static co_value *
capture_while(co_context *ctx, const loop *l, co_value *variables)
{
    coi_bodies *bodies = coi_bodies_new(ctx, NUM_PROGRAMS);
    co_value   *outside[NUM_PROGRAMS], *in[2] = { variables, NULL }, *next;

    if (bodies == NULL || !coi_bodies_add(ctx, bodies, &l->cond, l->types, &outside[COND]) ||
        !coi_check_predicate(ctx, bodies->programs[COND]->result,
                             "what the condition of while returned") ||
        !coi_bodies_add(ctx, bodies, &l->body, l->types, &outside[BODY]) ||
        (next = coi_round_tuple(ctx, bodies->programs[BODY]->result)) == NULL ||
        !coi_check_round(ctx, "body of while", l->types, next) ||
        (in[1] = co_tuple(ctx, outside, NUM_PROGRAMS)) == NULL)
        return NULL;
    bodies->limit = l->limit;
    return record_while(ctx, bodies, in, 2);
}

/* --- invariants --- */

static bool
fits_invariant(const co_value *type, const co_value *invariant)
{
    if (invariant->dtype != type->dtype)
        return false;
    if (invariant->ndim < 0 || type->ndim < 0)
        return true;
    if (invariant->ndim != type->ndim)
        return false;
    for (int i = 0; i < type->ndim; ++i) {
        int64_t a = invariant->u.tensor.dims[i], b = type->u.tensor.dims[i];

        if (a >= 0 && b >= 0 && a != b)
            return false;
    }
    return true;
}

/* Give a loop variable's type the shape of its invariant. */
static bool
apply_leaf(co_value *type, co_value *invariant, void *arg)
{
    co_context *ctx = arg;
    char        given[200], allowed[200];

    if (invariant->kind == CO_KIND_NONE)
        return true;
    if (invariant->kind != CO_KIND_SPEC || type->kind != CO_KIND_SPEC)
        return false;
    if (!fits_invariant(type, invariant)) {
        coi_format(&ctx->heap, type, given, sizeof(given));
        coi_format(&ctx->heap, invariant, allowed, sizeof(allowed));
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a loop variable begins as %s, and its invariant is %s; it must fit from the "
                 "beginning",
                 given, allowed);
        return false;
    }
    type->ndim = invariant->ndim;
    for (int i = 0; i < type->ndim; ++i)
        type->u.tensor.dims[i] = invariant->u.tensor.dims[i];
    return true;
}

static co_value *
types_of_variables(co_context *ctx, co_value *variables, co_value *invariants)
{
    co_value *types = coi_types_of_args(ctx, variables);

    if (types == NULL || invariants == NULL)
        return types;
    invariants = coi_check_args(ctx, invariants, 6, "options->invariants", false);
    if (invariants == NULL)
        return NULL;
    if (coi_tree_pair(types, invariants, apply_leaf, ctx))
        return types;
    if (ctx->error.code == CO_OK)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "options->invariants does not have the structure of the loop variables; give a "
                 "spec, or none, for each tensor");
    return NULL;
}

/* --- the public call --- */

co_value *
co_while(co_context *ctx, co_fn cond, co_fn body, co_value *variables, void *user,
         const co_while_options *options)
{
    co_while_options all = CO_WHILE_OPTIONS_INIT;
    loop             l = { { .fn = cond, .user = user, .name = "condition of while" },
                           { .fn = body, .user = user, .name = "body of while" },
                           NULL,
                           -1 };

    COI_ENTER(ctx, "while", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6) ||
        !coi_check_body(ctx, cond, 2, "cond") || !coi_check_body(ctx, body, 3, "body") ||
        (variables = coi_check_args(ctx, variables, 4, "variables", false)) == NULL ||
        (variables = coi_tensors_of(ctx, variables)) == NULL ||
        (l.types = types_of_variables(ctx, variables, all.invariants)) == NULL)
        return NULL;
    ctx->call = "while";
    l.limit = all.max_iterations;
    return coi_is_capturing(ctx) ? capture_while(ctx, &l, variables)
                                 : run_rounds(ctx, &l, variables);
}
