/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several steps on an iterator, and their outputs (EXT-STEPS-1); one step is in
 * compat/v1_strategy.c. Outputs are dicts, replaced as a whole when a name is set: there are few,
 * and an older dict that somebody holds stays unchanged.
 */
#include <cohort/dataset.h>
#include <cohort/extended.h>
#include <cohort/v1.h>

#include "data/dataset.h"
#include "strategy/strategy.h"

#include <string.h>

enum { LAST, STEP, OTHER, NUM_DICTS }; /* of the last step; of the step under way; not tensors */

struct co_step_context {
    coi_object object;
    co_value  *dicts[NUM_DICTS]; /* references */
};

static void
destroy_steps(coi_heap *heap, void *object)
{
    co_step_context *steps = object;

    for (int i = 0; i < NUM_DICTS; ++i)
        coi_unref(heap, steps->dicts[i]);
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

static co_code
set_output(co_context *ctx, co_step_context *steps, int which, const char *name, co_value *output,
           co_reduce_op op)
{
    setting s = { steps, which };

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
