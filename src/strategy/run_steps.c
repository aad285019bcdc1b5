/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several steps on an iterator, and their outputs (EXT-STEPS-1); one step is in
 * compat/v1_strategy.c. Outputs are dicts, replaced as a whole when a name is set: there are few,
 * and an older dict that somebody holds stays unchanged.
 */
#include <cohort/dataset.h>
#include <cohort/extended.h>
#include <cohort/v1.h>

#include "data/captured_input.h"
#include "function/function.h"
#include "function/graph.h"
#include "strategy/graph_run.h"

#include <string.h>

enum { LAST, STEP, OTHER, NUM_DICTS }; /* of the last step; of the step under way; not tensors */

struct co_step_context {
    coi_object object;
    co_value  *dicts[NUM_DICTS]; /* references */
    co_value  *operation;        /* a reference; NULL: the steps ran */
};

static void
destroy_steps(coi_heap *heap, void *object)
{
    co_step_context *steps = object;

    for (int i = 0; i < NUM_DICTS; ++i)
        coi_unref(heap, steps->dicts[i]);
    coi_unref(heap, steps->operation);
    coi_object_free(heap, steps, sizeof(*steps));
}

static const coi_class steps_class = { "step context", destroy_steps, NULL };

static void
put_dict(co_context *ctx, co_step_context *steps, int which, co_value *dict)
{
    coi_ref(dict);
    coi_unref(&ctx->heap, steps->dicts[which]);
    steps->dicts[which] = dict;
}

/* The dict with name set to value, in place of the old one. */
static void
put_output(co_context *ctx, co_step_context *steps, int which, const char *name, co_value *value)
{
    const co_value *old = steps->dicts[which];
    size_t       n = old->u.items.n, at = 0, nbytes = (n + 1) * (sizeof(char *) + sizeof(void *));
    const char **keys = coi_small_alloc(&ctx->heap, nbytes);
    co_value   **items, *dict;

    if (keys == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu outputs", n + 1);
        return;
    }
    items = (co_value **)(void *)(keys + n + 1);
    for (size_t i = 0; i < n; ++i) {
        if (strcmp(old->u.items.keys[i + 1], name) == 0)
            continue;
        keys[at] = old->u.items.keys[i + 1];
        items[at++] = old->u.items.items[i];
    }
    keys[at] = name;
    items[at] = value;
    dict = co_dict(ctx, keys, items, at + 1);
    if (dict != NULL)
        put_dict(ctx, steps, which, dict);
    coi_small_free(&ctx->heap, keys, nbytes);
}

static bool
check_steps(co_context *ctx, const co_step_context *steps)
{
    return coi_check_object(ctx, steps, &steps_class, 2, "steps");
}

/* One output on its way. */
typedef struct setting {
    co_step_context *steps;
    int              which;
} setting;

/* All replicas of the step are here: their name, operation and value, merged. */
static co_value *
set_merged(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    const setting   *s = user;
    co_value *const *items = args->u.items.items, *value = items[2];

    if (items[0]->kind != CO_KIND_STRING || items[1]->kind != CO_KIND_INT) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "replicas disagree on the output they set; name and operation must be the same on all");
        return NULL;
    }
    value = s->which == OTHER
                ? co_local_results(ctx, strategy, value)
                : co_reduce(ctx, strategy, (co_reduce_op)items[1]->u.i, value, NULL, 0);
    if (value != NULL)
        put_output(ctx, s->steps, s->which, items[0]->u.string.data, value);
    return NULL;
}

/* In a graph: the values of all replicas are here when the run is. */
static void
set_exported(co_context *ctx, const char *name, int which, co_reduce_op op, co_value *merged,
             void *steps)
{
    merged = which == OTHER ? co_local_results(ctx, co_get_strategy(ctx), merged)
                            : co_reduce(ctx, co_get_strategy(ctx), op, merged, NULL, 0);
    if (merged != NULL)
        put_output(ctx, steps, which, name, merged);
}

static co_code
export_output(co_context *ctx, const setting *s, const char *name, co_value *output,
              co_reduce_op op)
{
    coi_export one = { co_string(ctx, name), output, s->which, op, set_exported, s->steps };

    if (ctx->capture->exports == NULL)
        return coi_fail(
            ctx, CO_UNIMPLEMENTED,
            "%s is called in a replica inside a captured function, condition or loop; "
            "return the output from the step of co_run, and set it in the step function",
            ctx->call);
    if (one.name != NULL)
        coi_graph_export(ctx, &one);
    return ctx->error.code;
}

static co_code
set_output(co_context *ctx, co_step_context *steps, int which, const char *name, co_value *output,
           co_reduce_op op)
{
    setting s = { steps, which };

    if (!ctx->mode.cross && coi_is_capturing(ctx))
        return export_output(ctx, &s, name, output, op);
    if (!ctx->mode.cross) {
        co_merge_call(ctx, set_merged,
                      co_args(ctx, co_string(ctx, name), co_int(ctx, (int64_t)op), output), &s);
    } else {
        if (op != CO_REDUCE_NONE)
            output = co_reduce(ctx, co_get_strategy(ctx), op, output, NULL, 0);
        if (output != NULL)
            put_output(ctx, steps, which, name, output);
    }
    return ctx->error.code;
}

static bool
check_output(co_context *ctx, co_step_context *steps, const char *name, co_value *output,
             int position)
{
    if (!check_steps(ctx, steps))
        return false;
    if (name == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR, "argument 3 (name) of %s is NULL; name the output",
                 ctx->call);
        return false;
    }
    return coi_check_value(ctx, output, position, "output");
}

co_code
co_set_last_step_output(co_context *ctx, co_step_context *steps, const char *name, co_reduce_op op,
                        co_value *output)
{
    COI_ENTER_CODE(ctx, "set_last_step_output");
    if (!check_output(ctx, steps, name, output, 5))
        return ctx->error.code;
    if (op == CO_REDUCE_NONE && !ctx->mode.cross)
        return coi_fail(
            ctx, CO_ASSERTION_ERROR,
            "output '%s' is set in a replica without an operation; replicas have a value "
            "each: say how "
            "they combine, CO_REDUCE_SUM or CO_REDUCE_MEAN",
            name);
    return set_output(ctx, steps, STEP, name, output, op);
}

co_code
co_set_non_tensor_output(co_context *ctx, co_step_context *steps, const char *name,
                         co_value *output)
{
    COI_ENTER_CODE(ctx, "set_non_tensor_output");
    if (!check_output(ctx, steps, name, output, 4))
        return ctx->error.code;
    return set_output(ctx, steps, OTHER, name, output, CO_REDUCE_NONE);
}

static co_value *
look(co_context *ctx, const co_step_context *steps, int which)
{
    return check_steps(ctx, steps) ? coi_own_ref(ctx, steps->dicts[which]) : NULL;
}

co_value *
co_last_step_outputs(co_context *ctx, co_step_context *steps)
{
    COI_ENTER(ctx, "last_step_outputs", NULL);
    return look(ctx, steps, LAST);
}

co_value *
co_run_steps_operation(co_context *ctx, co_step_context *steps)
{
    COI_ENTER(ctx, "run_steps_operation", NULL);
    if (!check_steps(ctx, steps))
        return NULL;
    return steps->operation != NULL ? coi_own_ref(ctx, steps->operation) : co_none(ctx);
}

co_value *
co_non_tensor_outputs(co_context *ctx, co_step_context *steps)
{
    COI_ENTER(ctx, "non_tensor_outputs", NULL);
    return look(ctx, steps, OTHER);
}

/* --- the loop --- */

static bool
check_loop(co_context *ctx, co_strategy *strategy, co_step_fn fn, co_iterator *iterator,
           int64_t iterations, co_value *initial)
{
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_offered(ctx, strategy))
        return false;
    if (fn == NULL)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 3 (fn) of run_steps_on_iterator is NULL; it must be a function");
    else if (iterations < 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 6 (iterations) of run_steps_on_iterator is %lld; it must be 0 or more",
                 (long long)iterations);
    else if (initial != NULL)
        coi_check_kind(ctx, initial, CO_KIND_DICT, 7, "initial_loop_values");
    return ctx->error.code == CO_OK &&
           coi_check_object(ctx, iterator, &coi_iterator_class, 4, "iterator") &&
           coi_check_enter(ctx, strategy);
}

/* A step context of ctx's block, with empty outputs but for those of the step before the first. */
static co_step_context *
steps_new(co_context *ctx, co_value *initial)
{
    co_value        *none = co_dict(ctx, NULL, NULL, 0);
    co_step_context *steps = none != NULL ? coi_object_new(&ctx->heap, &steps_class, sizeof(*steps))
                                          : NULL;

    if (steps == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a step context");
        return NULL;
    }
    for (int i = 0; i < NUM_DICTS; ++i)
        put_dict(ctx, steps, i, i == LAST && initial != NULL ? initial : none);
    return coi_own(ctx, steps);
}

/* One step, in a block of its own. What it leaves open is left by the caller. */
static void
one_step(co_context *ctx, co_step_context *steps, co_step_fn fn, co_iterator *iterator, void *user)
{
    co_value *inputs = co_get_next(ctx, iterator), *fresh;

    if (inputs == NULL || (fresh = co_dict(ctx, NULL, NULL, 0)) == NULL)
        return;
    put_dict(ctx, steps, STEP, fresh);
    coi_function_begin(ctx); /* the floor is there already */
    fn(ctx, steps, inputs, user);
    coi_function_end(ctx, ctx->block_floor);
    if (ctx->error.code == CO_OK)
        put_dict(ctx, steps, LAST, steps->dicts[STEP]);
}

/* --- while a graph is built, or a function captured: the steps are one call --- */

/* What the step function is called with. */
typedef struct capturing {
    co_step_context *steps;
    co_step_fn       fn;
    void            *user;
} capturing;

typedef struct loop_attrs {
    co_strategy *strategy; /* references in a program */
    co_value    *spec;     /* of an element */
    coi_program *step;     /* of the next element: gives the outputs that it sets */
    int64_t      iterations;
} loop_attrs;

static bool
hold_loop(coi_heap *heap, void *to, const void *from)
{
    const loop_attrs *attrs = from;

    (void)heap;
    (void)to;
    coi_ref(attrs->strategy);
    coi_ref(attrs->spec);
    coi_ref(attrs->step);
    return true;
}

static void
drop_loop(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((loop_attrs *)attrs)->step);
    coi_unref(heap, ((loop_attrs *)attrs)->spec);
    coi_unref(heap, ((loop_attrs *)attrs)->strategy);
}

/* The outputs of the last step, and none; in[0]: what the step uses of the graph, in[1]: the
 * outputs before the first one, in[2]: the iterator. */
static co_value *
replay_loop(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const loop_attrs *loop = attrs;
    size_t            entries = ctx->num_entries;
    co_value         *outputs = in[1], *element, *args;

    (void)num_in;
    coi_ref(outputs);
    for (int64_t i = 0; i < loop->iterations && ctx->error.code == CO_OK; ++i) {
        co_scope_begin(ctx, loop->strategy);
        co_block_begin(ctx);
        args = NULL;
        element = in[2]->kind == CO_KIND_SYMBOLIC ? coi_record_next(ctx, in[2], loop->spec)
                                                  : coi_next_in_turn(ctx, in[2]->u.object);
        if (element != NULL && (args = co_tuple(ctx, &element, 1)) != NULL)
            args = co_tuple(ctx, (co_value *[]){ args, in[0] }, 2);
        element = args != NULL ? coi_program_replay(ctx, loop->step, args) : NULL;
        if (element != NULL) {
            coi_ref(element);
            coi_unref(&ctx->heap, outputs);
            outputs = element;
        }
        co_block_end(ctx);
        coi_pop_to(ctx, entries);
    }
    outputs = coi_own(ctx, outputs);
    return ctx->error.code == CO_OK ? co_tuple(ctx, (co_value *[]){ outputs, co_none(ctx) }, 2)
                                    : NULL;
}

static bool
same_loop(co_context *ctx, const void *a, const void *b)
{
    const loop_attrs *first = a, *second = b;

    return first->strategy == second->strategy && first->iterations == second->iterations &&
           coi_check_same_program(ctx, "step function", first->step, second->step);
}

#define LOOP_RESOURCES (CO_RESOURCE_ITERATOR | CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS)
const coi_op coi_op_run_steps = {
    COI_RECORDED("run_steps", "Runs a step on elements of an iterator; co_run_steps_on_iterator.",
                 replay_loop, LOOP_RESOURCES, LOOP_RESOURCES),
    .attrs_rule = { COI_ATTRS_SIZE(loop_attrs), hold_loop, drop_loop },
    .same_attrs = same_loop,
};

static co_value *
capture_fn(co_context *ctx, co_value *args, void *user)
{
    const capturing *c = user;
    co_value        *none = co_dict(ctx, NULL, NULL, 0), *outputs;

    if (none == NULL)
        return NULL;
    put_dict(ctx, c->steps, STEP, none);
    c->fn(ctx, c->steps, args->u.items.items[0], c->user);
    outputs = coi_own_ref(ctx, c->steps->dicts[STEP]);
    if (outputs != NULL)
        put_dict(ctx, c->steps, STEP, none); /* its values are of the step's program */
    return outputs;
}

/* The step as a program of one element; *outside gets what it uses of the graph. A reference. */
static coi_program *
capture_step(co_context *ctx, co_step_context *steps, co_step_fn fn, void *user,
             const loop_attrs *loop, co_value **outside)
{
    capturing    c = { steps, fn, user };
    size_t       entries = ctx->num_entries;
    co_value    *type = coi_types_of_args(ctx, loop->spec), *args;
    coi_program *program = coi_program_new(ctx);

    args = type != NULL ? co_tuple(ctx, &type, 1) : NULL;
    if (program != NULL && args != NULL &&
        (args = coi_symbols_of_types(ctx, program, args)) != NULL) {
        co_scope_begin(ctx, loop->strategy);
        program = coi_capture_part(ctx, program, "step function", capture_fn, &c, args, outside);
        coi_pop_to(ctx, entries);
        return program;
    }
    coi_unref(&ctx->heap, program);
    return NULL;
}

static co_step_context *
capture_steps(co_context *ctx, co_step_context *steps, co_step_fn fn, void *user,
              co_iterator *iterator, loop_attrs *loop)
{
    co_value *in[3] = { NULL, steps->dicts[LAST], coi_iterator_value(ctx, iterator) };
    co_value *types[2], *result = NULL;

    loop->step = in[2] != NULL ? capture_step(ctx, steps, fn, user, loop, &in[0]) : NULL;
    if (loop->step == NULL)
        return NULL;
    ctx->call = "run_steps_on_iterator";
    types[0] = coi_types_of_args(ctx, loop->iterations > 0 ? loop->step->result : in[1]);
    types[1] = coi_operation_type(ctx);
    if (types[0] != NULL && types[1] != NULL)
        result = coi_record_call(ctx, &coi_op_run_steps, loop, in, 3, co_tuple(ctx, types, 2));
    coi_unref(&ctx->heap, loop->step);
    if (result == NULL)
        return NULL;
    put_dict(ctx, steps, LAST, result->u.items.items[0]);
    coi_ref(result->u.items.items[1]);
    steps->operation = result->u.items.items[1];
    return steps;
}

co_step_context *
co_run_steps_on_iterator(co_context *ctx, co_strategy *strategy, co_step_fn fn,
                         co_iterator *iterator, void *user, int64_t iterations,
                         const co_run_steps_options *options)
{
    co_run_steps_options all = CO_RUN_STEPS_OPTIONS_INIT;
    co_step_context     *steps;
    size_t               entries, blocks, floor;

    COI_ENTER(ctx, "run_steps_on_iterator", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 7) ||
        !check_loop(ctx, strategy, fn, iterator, iterations, all.initial_loop_values) ||
        (steps = steps_new(ctx, all.initial_loop_values)) == NULL)
        return NULL;
    if (coi_is_capturing(ctx))
        return capture_steps(ctx, steps, fn, user, iterator,
                             &(loop_attrs){ strategy, iterator->dataset->spec, NULL, iterations });
    coi_ref(strategy); /* a step may give up the last reference of others */
    coi_ref(iterator);
    entries = ctx->num_entries;
    blocks = ctx->num_blocks;
    floor = ctx->block_floor;
    for (int64_t i = 0; i < iterations && ctx->error.code == CO_OK; ++i) {
        co_scope_begin(ctx, strategy);
        co_block_begin(ctx);
        ctx->block_floor = ctx->num_blocks;
        one_step(ctx, steps, fn, iterator, user);
        ctx->block_floor = floor;
        coi_blocks_unwind(ctx, blocks);
        coi_pop_to(ctx, entries);
    }
    coi_unref(&ctx->heap, iterator);
    coi_unref(&ctx->heap, strategy);
    return ctx->error.code == CO_OK ? steps : NULL;
}
