/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops with a state over the elements of a dataset, or over what is left of an iterator. A
 * captured function holds the loop as one call, and each run of it reads from the beginning of the
 * dataset.
 */
#include "function/control_flow.h"
#include "function/value_tree.h"

static const char body_name[] = "function of for_each";

/* --- rounds --- */

/* A reference to the next state; NULL at the end of the input, and with an error. */
static co_value *
one_round(co_context *ctx, const coi_flow_body *body, co_value *types, co_value *iterator,
          co_value *state)
{
    co_value *element, *args, *next = NULL;

    co_block_begin(ctx);
    element = ctx->error.code == CO_OK ? coi_kind_of(iterator)->next(ctx, iterator) : NULL;
    args = element != NULL ? coi_for_each_args(ctx, element, state) : NULL;
    if (args != NULL)
        next = coi_round_tuple(ctx, coi_body_run(ctx, body, args));
    if (next != NULL && !coi_check_round(ctx, body_name, types, next))
        next = NULL;
    if (next != NULL)
        coi_ref(next);
    co_block_end(ctx);
    return next;
}

static co_value *
run_elements(co_context *ctx, const coi_flow_body *body, co_value *of, co_value *state)
{
    co_site_info site = ctx->site;
    co_value    *types = coi_types_of_args(ctx, state), *next;
    co_value    *iterator = types != NULL ? coi_kind_of(of)->iterate(ctx, of) : NULL;

    if (iterator == NULL)
        return NULL;
    coi_ref(state);
    while ((next = one_round(ctx, body, types, iterator, state)) != NULL) {
        coi_unref(&ctx->heap, state);
        state = next;
        coi_copy_site(&ctx->site, &site);
    }
    state = coi_own(ctx, state);
    return ctx->error.code == CO_OK ? state : NULL;
}

/* --- in captured functions --- */

static co_value *replay_elements(co_context *ctx, const void *attrs, co_value *const *in,
                                 int num_in);

const coi_op coi_op_element_loop = {
    COI_WITH_BODIES("element_loop",
                    "Runs a captured body for each element of a dataset or iterator; co_for_each.",
                    replay_elements),
};

/* The state that the program of a body was captured with: its arguments without the element. */
static co_value *
state_types(co_context *ctx, const coi_program *program)
{
    const co_value *args = program->args->u.items.items[0];
    co_value       *state = co_tuple(ctx, args->u.items.items + 1, args->u.items.n - 1);

    return state != NULL ? coi_types_of_args(ctx, state) : NULL;
}

static co_value *
record_elements(co_context *ctx, coi_bodies *bodies, co_value *const *in, int num_in)
{
    return coi_bodies_record(ctx, &coi_op_element_loop, bodies, in, num_in,
                             state_types(ctx, bodies->programs[0]));
}

static co_value *
replay_elements(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    coi_bodies   *bodies = ((const coi_bodies_attrs *)attrs)->bodies;
    coi_flow_body body = coi_bodies_at(bodies, 0, in, num_in);

    return coi_is_capturing(ctx) ? record_elements(ctx, bodies, in, num_in)
                                 : run_elements(ctx, &body, in[0], in[1]);
}

static bool
is_tensor_spec(const co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SPEC && !coi_is_dataset_spec(leaf);
}

/* The types of what the body is called with; NULL with an error. */
static co_value *
types_of_body(co_context *ctx, const co_value *of, co_value *state)
{
    co_value *spec = coi_kind_of(of)->element_spec(of), *element, *types;

    if (!coi_tree_all(spec, is_tensor_spec, NULL)) {
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "for_each over elements with datasets in them cannot be captured; loop over them "
                 "outside of captured functions");
        return NULL;
    }
    element = coi_types_of_args(ctx, spec);
    types = element != NULL ? coi_types_of_args(ctx, state) : NULL;
    return types != NULL ? coi_for_each_args(ctx, element, types) : NULL;
}

static co_value *
capture_elements(co_context *ctx, const coi_flow_body *body, co_value *of, co_value *state)
{
    coi_bodies *bodies = coi_bodies_new(ctx, 1);
    co_value   *in[3] = { of, state, NULL }, *outside, *next, *before;
    co_value   *types = bodies != NULL ? types_of_body(ctx, of, state) : NULL;

    if (types == NULL || !coi_bodies_add(ctx, bodies, body, types, &outside) ||
        (next = coi_round_tuple(ctx, bodies->programs[0]->result)) == NULL ||
        (before = state_types(ctx, bodies->programs[0])) == NULL ||
        !coi_check_round(ctx, body_name, before, next) ||
        (in[2] = co_tuple(ctx, &outside, 1)) == NULL)
        return NULL;
    return record_elements(ctx, bodies, in, 3);
}

co_value *
coi_for_each_element(co_context *ctx, co_value *of, co_value *state, co_fn fn, void *user)
{
    coi_flow_body body = { .fn = fn, .user = user, .name = body_name };
    const char   *call = ctx->call;

    state = coi_tensors_of(ctx, state);
    ctx->call = call;
    if (state == NULL)
        return NULL;
    return coi_is_capturing(ctx) ? capture_elements(ctx, &body, of, state)
                                 : run_elements(ctx, &body, of, state);
}
