/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input iterators of the v1 surface (ITER1-*). One is an iterator over an iterator: the inner one
 * is that of a distributed dataset, and going back to the beginning puts a new one in its place.
 * Functions that make elements themselves, callables, are datasets of a single component that may
 * be anything.
 *
 *     input iterator ---> distributed dataset's iterator ---> ...
 *     input iterator ---> callable's iterator, asked once for each replica
 */
#include <cohort/v1.h>

#include "data/dataset.h"
#include "ops/engine/call_recording.h"
#include "strategy/distributed_input.h"
#include "strategy/placement.h"
#include "strategy/regroup.h"

typedef struct callable_dataset {
    co_dataset           base;
    co_input_callable_fn fn;
    void                *user;
} callable_dataset;

typedef struct input_dataset {
    co_dataset
        base; /* one input: distributed, or plain under the default strategy, or a callable */
    co_strategy *strategy; /* a reference */
} input_dataset;

/* --- callables --- */

/* What the function left open is left; its values, the result aside, die here. */
static int
callable_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const callable_dataset *self = (const callable_dataset *)iterator->dataset;
    size_t    entries = ctx->num_entries, blocks = ctx->num_blocks, floor = ctx->block_floor;
    co_value *made;

    co_block_begin(ctx);
    ctx->block_floor = ctx->num_blocks;
    coi_function_begin(ctx); /* which has this floor too */
    made = self->fn(ctx, self->user);
    coi_function_end(ctx, ctx->block_floor);
    if (made == NULL && ctx->error.code == CO_OK)
        made = co_none(ctx);
    if (ctx->error.code == CO_OK && coi_check_result(ctx, made, "next", "input callable"))
        coi_ref(made);
    ctx->block_floor = floor;
    coi_blocks_unwind(ctx, blocks);
    coi_pop_to(ctx, entries);
    if (ctx->error.code != CO_OK)
        return COI_ERROR;
    leaves[0] = made;
    return COI_ELEMENT;
}

static const coi_dataset_ops callable_ops = {
    .name = "callable",
    .dataset_size = sizeof(callable_dataset),
    .iterator_size = sizeof(co_iterator),
    .distributed = true, /* not to be transformed: its elements have no spec */
    .next = callable_next,
};

co_dataset *
co_input_callable(co_context *ctx, co_input_callable_fn fn, void *user)
{
    co_dataset *dataset;

    COI_ENTER(ctx, "input_callable", NULL);
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (fn) of input_callable is NULL; it must be a function");
        return NULL;
    }
    dataset = coi_dataset_new(ctx, &callable_ops, NULL, 0,
                              coi_spec_new(ctx, CO_DTYPE_NONE, NULL, -1), CO_INFINITE);
    if (dataset != NULL) {
        ((callable_dataset *)dataset)->fn = fn;
        ((callable_dataset *)dataset)->user = user;
    }
    return coi_dataset_give(ctx, dataset);
}

/* --- one step --- */

static co_value *
place_leaf(co_context *ctx, co_value *leaf, void *user)
{
    if (coi_is_type(leaf) || coi_is_on(leaf, user)) /* a value of a graph is on none yet */
        return leaf;
    return coi_give(ctx, coi_copy_value(ctx, leaf, user));
}

/* The tensors of what a callable made for a replica, on its device. Takes a reference and returns
 * one; NULL with an error. */
static co_value *
place(co_context *ctx, const coi_device_name *where, co_value *made)
{
    co_device *device;
    co_value  *placed = NULL;

    co_block_begin(ctx);
    if (coi_devices_find(ctx->runtime->devices, where, &device, coi_err(ctx)) != CO_OK)
        coi_failed(ctx);
    else if ((placed = coi_map_leaves(ctx, made, place_leaf, device)) != NULL)
        coi_ref(placed);
    co_block_end(ctx);
    coi_unref(&ctx->heap, made);
    return placed;
}

/* One call of the callable for each local replica (ITER1-FN-3). */
static int
call_each(co_context *ctx, co_iterator *iterator, const co_strategy *strategy, co_value **leaves)
{
    co_value *parts[COI_MAX_LOCAL_REPLICAS], *whole = NULL;
    int       made = 0;

    for (; made < strategy->num_local; ++made) {
        if (coi_iterator_next(ctx, iterator->input, &parts[made]) != COI_ELEMENT)
            break;
        if (strategy->policy->has_devices &&
            (parts[made] = place(ctx, &strategy->devices[made], parts[made])) == NULL)
            break;
    }
    if (made == strategy->num_local) {
        bool wrap = strategy->num_local > 1 || strategy->num_workers > 1;

        whole = coi_regroup(ctx, strategy, parts, made, CO_KIND_PER_REPLICA, wrap);
    }
    coi_leaves_release(&ctx->heap, parts, (size_t)made);
    leaves[0] = whole;
    return whole != NULL ? COI_ELEMENT : COI_ERROR;
}

/* An iterator over input that is not distributed is an ordinary one: any thread may read it. */
static bool
check_mode(co_context *ctx, const co_strategy *strategy)
{
    return !strategy->policy->distributes_input || coi_check_input_mode(ctx, strategy);
}

static int
input_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const input_dataset   *self = (const input_dataset *)iterator->dataset;
    const coi_dataset_ops *inner = self->base.inputs[0]->ops;
    int                    got;

    if (!check_mode(ctx, self->strategy))
        return COI_ERROR;
    if (inner == &callable_ops)
        return call_each(ctx, iterator, self->strategy, leaves);
    got = coi_iterator_next(ctx, iterator->input, leaves);
    if (got == COI_ELEMENT)
        iterator->step_examples = inner->distributed
                                      ? iterator->input->step_examples
                                      : coi_leaves_rows(leaves, self->base.num_leaves);
    iterator->dropped_rows = iterator->input->dropped_rows;
    return got;
}

/* A callable is called while a graph is built: what it makes is part of the graph. */
static co_value *
input_next_now(co_context *ctx, co_iterator *iterator)
{
    const input_dataset *self = (const input_dataset *)iterator->dataset;
    co_value            *element = NULL;

    if (self->base.inputs[0]->ops == &callable_ops && check_mode(ctx, self->strategy))
        call_each(ctx, iterator, self->strategy, &element);
    return element;
}

static co_code
input_open(co_context *ctx, co_iterator *iterator)
{
    iterator->input = coi_iterator_new(ctx, iterator->dataset->inputs[0], iterator->stats);
    return ctx->error.code;
}

static void
input_destroy(coi_heap *heap, co_dataset *dataset)
{
    coi_unref(heap, ((input_dataset *)dataset)->strategy);
}

static const coi_dataset_ops input_ops = {
    .name = "input iterator",
    .dataset_size = sizeof(input_dataset),
    .iterator_size = sizeof(co_iterator),
    .distributed = true,
    .next = input_next,
    .next_now = input_next_now,
    .open = input_open,
    .destroy = input_destroy,
};

/* --- making --- */

/* An input iterator of the block over a dataset; NULL with the error that making the dataset
 * left. */
static co_iterator *
iterate(co_context *ctx, co_strategy *strategy, co_dataset *input)
{
    co_dataset  *dataset;
    co_iterator *iterator;

    if (input == NULL)
        return NULL;
    coi_ref(input->spec);
    dataset = coi_dataset_new(ctx, &input_ops, &input, 1, input->spec, input->cardinality);
    if (dataset == NULL)
        return NULL;
    coi_ref(strategy);
    ((input_dataset *)dataset)->strategy = strategy;
    iterator = coi_iterator_whole(ctx, dataset);
    coi_unref(&ctx->heap, dataset);
    if (iterator != NULL && coi_in_graph(ctx)) /* ITER1-INIT-2 */
        iterator->needs_initialize = input->ops != &callable_ops;
    return iterator != NULL ? coi_own(ctx, iterator) : NULL;
}

co_iterator *
co_make_dataset_iterator(co_context *ctx, co_strategy *strategy, co_dataset *dataset)
{
    COI_ENTER(ctx, "make_dataset_iterator", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_input(ctx, dataset, 3, "dataset"))
        return NULL;
    return iterate(ctx, strategy, co_distribute_dataset(ctx, strategy, dataset, NULL));
}

/* ITER1-FN-1: looked at before the function is called. */
static bool
check_input_fn(co_context *ctx, co_strategy *strategy, co_dataset_fn input_fn,
               co_input_replication_mode mode)
{
    if (!coi_check_strategy(ctx, strategy, 2))
        return false;
    if (input_fn == NULL)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 3 (input_fn) of make_input_fn_iterator is NULL; it must be a function");
    else if (mode != CO_INPUT_PER_WORKER)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 5 (replication_mode) of make_input_fn_iterator is %d (%s); only "
                 "CO_INPUT_PER_WORKER is supported",
                 (int)mode, mode == CO_INPUT_PER_REPLICA ? "CO_INPUT_PER_REPLICA" : "no mode");
    return ctx->error.code == CO_OK && coi_check_enter(ctx, strategy);
}

/* What an input function gave, as the dataset to iterate over; NULL with an error (ITER1-FN-3). */
static co_dataset *
take_input(co_context *ctx, co_strategy *strategy, co_dataset *made)
{
    if (ctx->error.code != CO_OK) /* its own error is passed on unchanged */
        return NULL;
    ctx->call = "make_input_fn_iterator";
    if (made == NULL || !coi_is_live_object(&ctx->heap, made, &coi_dataset_class) ||
        (made->ops->distributed && made->ops != &callable_ops)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "input_fn returned %s; it must return a dataset, or what co_input_callable makes "
                 "of a function",
                 made == NULL ? "NULL" : "a handle that is not a plain dataset");
        return NULL;
    }
    return made->ops == &callable_ops || !strategy->policy->distributes_input
               ? made
               : coi_distribute_whole_steps(ctx, strategy, made);
}

co_iterator *
co_make_input_fn_iterator(co_context *ctx, co_strategy *strategy, co_dataset_fn input_fn,
                          void *user, co_input_replication_mode replication_mode)
{
    co_input_context input;
    co_dataset      *made = NULL;
    co_scope         scope;

    COI_ENTER(ctx, "make_input_fn_iterator", NULL);
    if (!check_input_fn(ctx, strategy, input_fn, replication_mode))
        return NULL;
    input = coi_input_context_of(strategy);
    scope = co_scope_begin(ctx, strategy);
    if (scope.id != 0)
        made = coi_call_dataset_fn(ctx, strategy, input_fn, user, &input);
    co_scope_end(ctx, &scope);
    return iterate(ctx, strategy, take_input(ctx, strategy, made));
}

co_iterator *
co_make_initializable_iterator(co_context *ctx, co_dataset *dataset)
{
    COI_ENTER(ctx, "make_initializable_iterator", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    if (coi_in_graph(ctx)) {
        co_strategy *strategy = coi_dataset_strategy(dataset);

        return iterate(ctx, strategy != NULL ? strategy : coi_default_strategy(ctx, true), dataset);
    }
    coi_fail(ctx, CO_VALUE_ERROR,
             "an initializable iterator belongs to graph mode, and this program runs eagerly; call "
             "co_iterate");
    return NULL;
}

co_iterator *
co_make_one_shot_iterator(co_context *ctx, co_dataset *dataset)
{
    co_iterator *iterator;

    COI_ENTER(ctx, "make_one_shot_iterator", NULL);
    if (!coi_in_graph(ctx))
        return co_iterate(ctx, dataset);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    if (dataset->ops->distributed) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a distributed dataset has no one-shot iterator in graph mode; use "
                 "co_make_initializable_iterator");
        return NULL;
    }
    iterator = iterate(ctx, coi_default_strategy(ctx, true), dataset);
    if (iterator != NULL)
        iterator->needs_initialize = false;
    return iterator;
}

/* --- using --- */

/* To the first element. */
static bool
restart(co_context *ctx, co_iterator *iterator)
{
    if (!check_mode(ctx, ((const input_dataset *)iterator->dataset)->strategy) ||
        coi_iterator_restart_input(ctx, iterator) != CO_OK)
        return false;
    iterator->step_examples = -1;
    iterator->dropped_rows = 0;
    iterator->needs_initialize = false;
    return true;
}

typedef struct restart_attrs {
    co_iterator *iterator; /* a reference in a program */
} restart_attrs;

static bool
hold_iterator(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const restart_attrs *)from)->iterator);
    return true;
}

static void
drop_iterator(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((restart_attrs *)attrs)->iterator);
}

static co_value *initialize(co_context *ctx, co_iterator *iterator);

static co_value *
replay_restart(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    co_iterator *iterator = ((const restart_attrs *)attrs)->iterator;
    co_value    *done;

    (void)in;
    (void)num_in;
    if (coi_is_capturing(ctx))
        return initialize(ctx, iterator);
    if (!coi_turn_take(ctx, iterator))
        return NULL;
    done = initialize(ctx, iterator);
    coi_turn_give(iterator);
    return done;
}

const coi_op coi_op_initialize_iterator = {
    COI_RECORDED("initialize_iterator",
                 "Returns an iterator to the first element; co_iterator_initialize.",
                 replay_restart, CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR),
    .attrs_rule = { COI_ATTRS_SIZE(restart_attrs), hold_iterator, drop_iterator },
};

static co_value *
initialize(co_context *ctx, co_iterator *iterator)
{
    if (coi_is_capturing(ctx))
        return coi_record_call(ctx, &coi_op_initialize_iterator, &(restart_attrs){ iterator }, NULL,
                               0, coi_none(ctx));
    return restart(ctx, iterator) ? co_none(ctx) : NULL;
}

co_value *
co_iterator_initialize(co_context *ctx, co_iterator *iterator)
{
    COI_ENTER(ctx, "iterator_initialize", NULL);
    if (!coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator"))
        return NULL;
    if (iterator->dataset->ops == &input_ops)
        return initialize(ctx, iterator);
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (iterator) of iterator_initialize was made by co_iterate, and is not "
             "initialized; call co_iterate again to start again");
    return NULL;
}

/* What describes one component: a value of the block. */
typedef co_value *(*describe_fn)(co_context *ctx, const co_value *spec);

static co_value *
describe_type(co_context *ctx, const co_value *spec)
{
    if (spec->dtype == CO_DTYPE_NONE)
        return co_none(ctx);
    return co_string(ctx, co_dtype_name((co_dtype)spec->dtype));
}

static co_value *
describe_shape(co_context *ctx, const co_value *spec)
{
    int64_t ndim = spec->ndim;

    return ndim < 0 ? co_none(ctx) : co_tensor(ctx, CO_INT64, &ndim, 1, spec->u.tensor.dims);
}

static co_value *
describe_class(co_context *ctx, const co_value *spec)
{
    (void)spec;
    return co_string(ctx, "Tensor");
}

static co_value *
describe_leaf(co_context *ctx, const co_value *spec, const void *arg)
{
    co_value *text;

    text = (*(const describe_fn *)arg)(ctx, coi_part_of(spec, 0));
    if (text != NULL)
        coi_ref(text);
    return text;
}

static co_value *
describe(co_context *ctx, const co_iterator *iterator, const char *call, describe_fn how)
{
    COI_ENTER(ctx, call, NULL);
    if (!coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator"))
        return NULL;
    return coi_give(ctx, coi_spec_map(ctx, iterator->dataset->spec, describe_leaf, &how));
}

co_value *
co_iterator_output_types(co_context *ctx, co_iterator *iterator)
{
    return describe(ctx, iterator, "iterator_output_types", describe_type);
}

co_value *
co_iterator_output_shapes(co_context *ctx, co_iterator *iterator)
{
    return describe(ctx, iterator, "iterator_output_shapes", describe_shape);
}

co_value *
co_iterator_output_classes(co_context *ctx, co_iterator *iterator)
{
    return describe(ctx, iterator, "iterator_output_classes", describe_class);
}
