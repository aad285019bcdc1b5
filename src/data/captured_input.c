/* SPDX-License-Identifier: Apache-2.0 */
/* See captured_input.h. */
#include "data/captured_input.h"

#include "function/function.h"
#include "function/value_tree.h"

#include <string.h>

/* The type of what is no tensor: it says no more than that there is a value. */
static co_value *
some_value(co_context *ctx)
{
    return coi_spec(ctx, CO_BOOL, NULL, 0);
}

/* --- iterators that each call makes or brings --- */

/* What stands for one while the function is captured: it has the spec of its elements, and none of
 * them. */
typedef struct captured_iterator {
    co_iterator base;
    co_value   *symbol; /* a reference */
} captured_iterator;

static int
captured_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    (void)iterator;
    (void)leaves;
    coi_fail(ctx, CO_TYPE_ERROR,
             "the iterator was made by a captured function, or is an argument of one, so each call "
             "of that function has its own; use it in the function, or make one outside");
    return COI_ERROR;
}

static void
captured_close(coi_heap *heap, co_iterator *iterator)
{
    coi_unref(heap, ((captured_iterator *)iterator)->symbol);
}

static const coi_dataset_ops captured_ops = {
    .name = "iterator of a captured function",
    .dataset_size = sizeof(co_dataset),
    .iterator_size = sizeof(captured_iterator),
    .next = captured_next,
    .close = captured_close,
};

static co_value *replay_iterate(co_context *ctx, const void *attrs, co_value *const *in,
                                int num_in);

const coi_op coi_op_iterate_captured = {
    COI_RECORDED("iterate_captured", "Begins to read a dataset; co_iterate.", replay_iterate,
                 CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR),
};

static co_value *
record_iterate(co_context *ctx, co_value *dataset)
{
    return coi_record_call(ctx, &coi_op_iterate_captured, NULL, &dataset, 1, some_value(ctx));
}

static co_value *
replay_iterate(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    co_iterator *iterator;

    (void)attrs;
    (void)num_in;
    if (coi_is_capturing(ctx))
        return record_iterate(ctx, in[0]);
    iterator = co_iterate(ctx, in[0]->u.object);
    return iterator != NULL ? coi_iterator_value(ctx, iterator) : NULL;
}

/* A reference, or NULL with an error. */
static co_iterator *
captured_iterator_new(co_context *ctx, co_value *spec, co_value *symbol)
{
    co_dataset  *like;
    co_iterator *iterator;

    coi_ref(spec);
    like = coi_dataset_new(ctx, &captured_ops, NULL, 0, spec, CO_UNKNOWN_CARDINALITY);
    iterator = like != NULL ? coi_iterator_whole(ctx, like) : NULL;
    coi_unref(&ctx->heap, like);
    if (iterator != NULL) {
        coi_ref(symbol);
        ((captured_iterator *)iterator)->symbol = symbol;
    }
    return iterator;
}

co_iterator *
coi_capture_iterate(co_context *ctx, co_dataset *dataset)
{
    co_value *value = coi_dataset_value(ctx, dataset), *symbol;

    if (value == NULL || (symbol = record_iterate(ctx, value)) == NULL)
        return NULL;
    return captured_iterator_new(ctx, dataset->spec, symbol);
}

co_value *
coi_iterator_argument(co_context *ctx, co_value *value, co_value *symbol)
{
    const co_iterator *given = value->u.object;
    co_iterator       *iterator;

    /* That of a graph is initialized by its operation, and is the same in every call. */
    if (given->dataset->ops->next_now != NULL)
        return coi_own_ref(ctx, value);
    iterator = captured_iterator_new(ctx, given->dataset->spec, symbol);
    return iterator != NULL ? coi_iterator_value(ctx, coi_own(ctx, iterator)) : NULL;
}

co_value *
coi_iterator_symbol(const co_iterator *iterator)
{
    return iterator->dataset->ops == &captured_ops ? ((const captured_iterator *)iterator)->symbol
                                                   : NULL;
}

/* --- datasets that are arguments --- */

/* Another dataset with the same elements: stages of it tell that they are made of the argument. */
static co_dataset *
argument_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input)
{
    co_dataset *dataset;

    coi_ref(input->spec);
    dataset = coi_dataset_new(ctx, ops, &input, 1, input->spec, input->cardinality);
    if (dataset != NULL)
        dataset->batch_size = input->batch_size;
    return dataset;
}

static co_dataset *
argument_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return argument_new(ctx, dataset->ops, inputs[0]);
}

static coi_layout
argument_layout(const co_dataset *dataset)
{
    return dataset->inputs[0]->ops->layout(dataset->inputs[0]);
}

static const coi_dataset_ops argument_ops = {
    .name = "argument",
    .dataset_size = sizeof(co_dataset),
    .transparent = true,
    .with_inputs = argument_with_inputs,
    .tracks = COI_KEPT,
};

static const coi_dataset_ops distributed_argument_ops = {
    .name = "argument",
    .dataset_size = sizeof(co_dataset),
    .transparent = true,
    .distributed = true,
    .layout = argument_layout,
};

co_value *
coi_dataset_argument(co_context *ctx, co_value *value, co_value *symbol)
{
    co_dataset            *given = value->u.object, *dataset;
    const coi_dataset_ops *ops = given->ops->distributed ? &distributed_argument_ops
                                                         : &argument_ops;

    (void)symbol;
    if (given->ops->distributed && given->ops->layout == NULL) /* of v1, which iterators hold */
        return coi_own_ref(ctx, value);
    dataset = argument_new(ctx, ops, given);
    return dataset != NULL ? coi_dataset_value(ctx, coi_own(ctx, dataset)) : NULL;
}

/* --- elements --- */

typedef struct element_attrs {
    co_value *spec; /* of one element; a reference in a program */
} element_attrs;

/* The elements are those of the operand, which is compared: a function may make its datasets, and
 * so the spec, each time. */
static bool
same_element(co_context *ctx, const void *a, const void *b)
{
    (void)ctx;
    (void)a;
    (void)b;
    return true;
}

static bool
hold_spec(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const element_attrs *)from)->spec);
    return true;
}

static void
drop_spec(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((element_attrs *)attrs)->spec);
}

bool
coi_turn_take(co_context *ctx, co_iterator *iterator)
{
    if (atomic_load(&iterator->turn_of) == ctx) {
        coi_refuse_own(ctx);
        return false;
    }
    coi_lock_take(&iterator->turn);
    atomic_store(&iterator->turn_of, ctx);
    return true;
}

void
coi_turn_give(co_iterator *iterator)
{
    atomic_store(&iterator->turn_of, NULL);
    coi_lock_give(&iterator->turn);
}

/* Threads that run one session share the iterators of its graph, wherever these were made. */
static co_value *
next_in_turn(co_context *ctx, co_iterator *iterator,
             co_value *(*next)(co_context *ctx, co_iterator *iterator))
{
    co_value *element;

    if (coi_is_capturing(ctx))
        return next(ctx, iterator);
    if (!coi_turn_take(ctx, iterator))
        return NULL;
    element = next(ctx, iterator);
    coi_turn_give(iterator);
    return element;
}

co_value *
coi_next_in_turn(co_context *ctx, co_iterator *iterator)
{
    return next_in_turn(ctx, iterator, co_get_next);
}

/* The iterator that a call of the program reads: where the program becomes part of another one that
 * is being captured, it may be one of that function. */
static co_value *
next_of(co_context *ctx, const void *attrs, co_value *value, const coi_op *op,
        co_value *(*next)(co_context *ctx, co_iterator *iterator))
{
    const element_attrs *given = attrs;

    if (value->kind != CO_KIND_SYMBOLIC)
        return next_in_turn(ctx, value->u.object, next);
    return coi_record_call(ctx, op, given, &value, 1,
                           next == co_get_next ? coi_types_of_args(ctx, given->spec)
                                               : some_value(ctx));
}

static co_value *replay_next(co_context *ctx, const void *attrs, co_value *const *in, int num_in);
static co_value *replay_optional(co_context *ctx, const void *attrs, co_value *const *in,
                                 int num_in);

const coi_op coi_op_next_captured = {
    COI_RECORDED("next_captured", "Reads the next element of an iterator; co_next, co_get_next.",
                 replay_next, CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR),
    .attrs_rule = { COI_ATTRS_SIZE(element_attrs), hold_spec, drop_spec },
    .same_attrs = same_element,
};

/* Its result is one value of the program, whose type says nothing but that there is one: a run has
 * a tuple of one item or none there. */
const coi_op coi_op_optional_captured = {
    COI_RECORDED("optional_captured",
                 "Reads the next element of an iterator, if any; co_get_next_as_optional.",
                 replay_optional, CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR),
    .attrs_rule = { COI_ATTRS_SIZE(element_attrs), hold_spec, drop_spec },
    .same_attrs = same_element,
};

static co_value *
replay_next(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return next_of(ctx, attrs, in[0], &coi_op_next_captured, co_get_next);
}

static co_value *
replay_optional(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return next_of(ctx, attrs, in[0], &coi_op_optional_captured, co_get_next_as_optional);
}

co_value *
coi_record_next(co_context *ctx, co_value *iterator, co_value *spec)
{
    return next_of(ctx, &(element_attrs){ spec }, iterator, &coi_op_next_captured, co_get_next);
}

static bool
is_tensor_spec(const co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SPEC && !coi_is_dataset_spec(leaf);
}

/* Elements that one function may take: a loop until the end of input has no end while capturing. */
#define MOST_NEXT 4096

/* A graph lives long and has as many calls as it is given; only co_next is made for such loops. */
static bool
may_be_endless(const co_context *ctx)
{
    return !ctx->capture->is_graph || strcmp(ctx->call, "next") == 0;
}

static bool
may_capture_next(co_context *ctx, const co_iterator *iterator)
{
    if (!coi_tree_all(iterator->dataset->spec, is_tensor_spec, NULL))
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "%s gives elements with datasets in them, which a captured function cannot take; "
                 "take them outside",
                 ctx->call);
    else if (may_be_endless(ctx) && ++ctx->capture->num_next > MOST_NEXT)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "%s is called more than %d times by one %s; a loop until the end of input, as "
                 "CO_EACH, has no end while it is captured: %s",
                 ctx->call, MOST_NEXT, ctx->capture->is_graph ? "graph" : "captured function",
                 ctx->capture->is_graph
                     ? "add one co_get_next, and let a session run it in the loop"
                     : "use co_for_each, or let the function take one element, and call it in the "
                       "loop");
    return ctx->error.code == CO_OK;
}

/* A program has no end of input: it is CO_OUT_OF_RANGE when the program runs, whichever call asks.
 */
co_value *
coi_capture_next(co_context *ctx, co_iterator *iterator)
{
    const coi_dataset_ops *ops = iterator->dataset->ops;
    element_attrs          attrs = { iterator->dataset->spec };
    co_value              *now = ops->next_now != NULL ? ops->next_now(ctx, iterator) : NULL, *in;

    if (now != NULL || ctx->error.code != CO_OK)
        return now != NULL ? coi_give(ctx, now) : NULL;
    in = may_capture_next(ctx, iterator) ? coi_iterator_value(ctx, iterator) : NULL;
    return in != NULL ? coi_record_call(ctx, &coi_op_next_captured, &attrs, &in, 1,
                                        coi_types_of_args(ctx, attrs.spec))
                      : NULL;
}

co_value *
coi_capture_optional(co_context *ctx, co_iterator *iterator)
{
    element_attrs attrs = { iterator->dataset->spec };
    co_value     *in = may_capture_next(ctx, iterator) ? coi_iterator_value(ctx, iterator) : NULL;

    return in != NULL
               ? coi_record_call(ctx, &coi_op_optional_captured, &attrs, &in, 1, some_value(ctx))
               : NULL;
}

/* --- optionals --- */

static co_value *
replay_get_value(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    return co_optional_get_value(ctx, in[0]);
}

const coi_op coi_op_optional_value_captured = {
    COI_RECORDED("optional_value_captured", "The value of an optional; co_optional_get_value.",
                 replay_get_value, 0, 0),
};

static co_value *
replay_has_value(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    return co_optional_has_value_tensor(ctx, in[0]);
}

const coi_op coi_op_optional_has_value_captured = {
    COI_RECORDED("optional_has_value_captured",
                 "Whether an optional holds a value; co_optional_has_value_tensor.",
                 replay_has_value, 0, 0),
};

/* The spec of the element that a symbolic optional holds, of the program; NULL with an error. */
static co_value *
spec_of_optional(co_context *ctx, co_value *optional)
{
    const coi_program_step *step = NULL;

    if (coi_own_symbol(ctx, optional) == NULL)
        return NULL;
    step = coi_capture_step_of(ctx, optional);
    if (step != NULL && step->op == &coi_op_optional_captured)
        return ((const element_attrs *)step->attrs)->spec;
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (optional) of %s is a symbolic tensor; in a captured function it must be "
             "what co_get_next_as_optional gave in the same function",
             ctx->call);
    return NULL;
}

co_value *
coi_capture_has_value(co_context *ctx, co_value *optional)
{
    return spec_of_optional(ctx, optional) != NULL
               ? coi_record_call(ctx, &coi_op_optional_has_value_captured, NULL, &optional, 1,
                                 some_value(ctx))
               : NULL;
}

co_value *
coi_capture_get_value(co_context *ctx, co_value *optional)
{
    co_value *spec = spec_of_optional(ctx, optional);

    return spec != NULL ? coi_record_call(ctx, &coi_op_optional_value_captured, NULL, &optional, 1,
                                          coi_types_of_args(ctx, spec))
                        : NULL;
}
