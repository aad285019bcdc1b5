/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iterators: opening chains of them, the public calls, folds. What a step does is in the files of
 * the kinds.
 */
#include "data/captured_input.h"
#include "ops/engine/call_recording.h"

#include <string.h>

#define FEW_LEAVES 16 /* elements with no more leaves need no room of their own in co_next */

static void
destroy_iterator(coi_heap *heap, void *object)
{
    co_iterator           *iterator = object;
    const coi_dataset_ops *ops = iterator->dataset->ops;

    if (ops->close != NULL)
        ops->close(heap, iterator);
    coi_shared_end(heap, &iterator->untold, false);
    coi_unref(heap, iterator->input);
    coi_unref(heap, iterator->stats);
    coi_unref(heap, iterator->dataset);
    coi_object_free(heap, iterator, ops->iterator_size);
}

const coi_class coi_iterator_class = { "iterator", destroy_iterator, NULL };

/* Distributed datasets have several inputs and open them themselves. */
static bool
open_input(co_context *ctx, co_iterator *iterator)
{
    const co_dataset *dataset = iterator->dataset;

    if (dataset->num_inputs == 0 || dataset->ops->distributed)
        return true;
    iterator->input = coi_iterator_new(ctx, dataset->inputs[0], iterator->stats);
    return iterator->input != NULL;
}

co_iterator *
coi_iterator_new(co_context *ctx, co_dataset *dataset, coi_stats *stats)
{
    const coi_dataset_ops *ops;
    co_iterator           *iterator;

    while (dataset->ops->transparent)
        dataset = dataset->inputs[0];
    ops = dataset->ops;
    iterator = coi_object_new(&ctx->heap, &coi_iterator_class, ops->iterator_size);
    if (iterator == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (%s)", ops->name);
        return NULL;
    }
    coi_ref(dataset);
    iterator->dataset = dataset;
    iterator->step_examples = -1;
    coi_cancel_init(&iterator->cancel);
    if (stats != NULL) {
        coi_ref(stats);
        iterator->stats = stats;
        iterator->counts = coi_stats_find(stats, dataset);
    }
    if (!open_input(ctx, iterator) || (ops->open != NULL && ops->open(ctx, iterator) != CO_OK)) {
        coi_unref(&ctx->heap, iterator);
        return NULL;
    }
    iterator->stacks = ops->rows != NULL && (iterator->input == NULL || iterator->input->stacks);
    return iterator;
}

co_iterator *
coi_iterator_whole(co_context *ctx, co_dataset *dataset)
{
    coi_stats   *stats = coi_stats_new(ctx, dataset);
    co_iterator *iterator = stats != NULL ? coi_iterator_new(ctx, dataset, stats) : NULL;

    coi_unref(&ctx->heap, stats);
    return iterator;
}

/* A number that one thread counts up at a time, as far as datasets are not in a pipeline twice;
 * others may look. */
static inline void
add(atomic_llong *number, int64_t by)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* Elements were made, one or a stack. */
static inline void
count_made(const co_iterator *iterator, int64_t elements, co_value *const *leaves)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < iterator->dataset->num_leaves; ++i)
        bytes += leaves[i]->kind == CO_KIND_TENSOR && leaves[i]->dtype != CO_STRING
                     ? (int64_t)coi_tensor_nbytes(leaves[i])
                     : coi_leaf_bytes(leaves[i]);
    add(&iterator->counts->elements, elements);
    add(&iterator->counts->bytes, bytes);
}

int
coi_iterator_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_dataset_ops *ops = iterator->dataset->ops;
    coi_cancel            *cancel = coi_data_state_of(ctx)->cancel;
    uint64_t               made = cancel != NULL ? cancel->made : 0;
    int                    got;

    if (coi_is_cancelled(cancel))
        return coi_cancelled(ctx);
    got = ops->next(ctx, iterator, leaves);
    if (got > 0) {
        if (cancel != NULL)
            ++cancel->made;
        if (iterator->counts != NULL)
            count_made(iterator, 1, leaves);
        return got;
    }
    /* A distributed dataset holds nothing between two steps: what it drops was made in this one. */
    if (got < 0 && !ops->keeps && coi_was_cancelled(ctx) &&
        (!ops->distributed || cancel->made != made))
        coi_mark_not_checkpointable(ctx, iterator);
    return got;
}

int64_t
coi_iterator_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    int64_t got = iterator->dataset->ops->rows(ctx, iterator, max, leaves);

    if (got > 0 && iterator->counts != NULL)
        count_made(iterator, got, leaves);
    return got;
}

co_code
coi_iterator_restart_input(co_context *ctx, co_iterator *iterator)
{
    co_iterator *fresh = coi_iterator_new(ctx, iterator->input->dataset, iterator->stats);

    if (fresh == NULL)
        return ctx->error.code;
    coi_unref(&ctx->heap, iterator->input);
    iterator->input = fresh;
    return CO_OK;
}

/* --- cancelling --- */

void
coi_cancel_init(coi_cancel *cancel)
{
    atomic_init(&cancel->is_set, false);
    coi_lock_init(&cancel->lock);
    cancel->watched = NULL;
    cancel->made = 0;
    cancel->not_checkpointable_by = NULL;
}

/* Under the lock, so that the event lives while it is signalled. */
void
coi_cancel_set(coi_cancel *cancel)
{
    atomic_store(&cancel->is_set, true);
    coi_lock_take(&cancel->lock);
    if (cancel->watched != NULL)
        coi_event_signal(cancel->watched);
    coi_lock_give(&cancel->lock);
}

void
coi_cancel_watch(coi_cancel *cancel, coi_event *event)
{
    if (cancel == NULL)
        return;
    coi_lock_take(&cancel->lock);
    cancel->watched = event;
    coi_lock_give(&cancel->lock);
}

COI_RARE int
coi_cancelled(co_context *ctx)
{
    coi_fail(ctx, CO_CANCELLED, "the iterator was cancelled; make another to start again");
    return COI_ERROR;
}

COI_RARE bool
coi_was_cancelled(const co_context *ctx)
{
    return ctx->error.code == CO_CANCELLED && coi_is_cancelled(coi_data_state_of(ctx)->cancel);
}

COI_RARE void
coi_mark_not_checkpointable(co_context *ctx, const co_iterator *iterator)
{
    coi_cancel *cancel = coi_data_state_of(ctx)->cancel;

    if (cancel->not_checkpointable_by == NULL)
        cancel->not_checkpointable_by = coi_stage_name(iterator->dataset);
}

COI_RARE void
coi_refuse_own(co_context *ctx)
{
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "the iterator is asked for an element by a function that makes one for it; let "
             "functions of a pipeline use iterators of their own");
}

/* --- elements --- */

void
coi_leaves_release(coi_heap *heap, co_value **leaves, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        coi_unref(heap, leaves[i]);
        leaves[i] = NULL;
    }
}

int64_t
coi_leaves_rows(co_value *const *leaves, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        const co_value *leaf = leaves[i];
        int64_t         rows;

        if (leaf->kind == CO_KIND_TENSOR) /* as nearly all are */
            rows = leaf->ndim > 0 ? leaf->u.tensor.dims[0] : -1;
        else
            rows = coi_rows_of(leaf);
        if (rows >= 0)
            return rows;
    }
    return 1;
}

/* Room for the leaves of one element: on the caller's stack when they are few. */
static co_value **
borrow_room(co_context *ctx, co_value **few, size_t n)
{
    co_value **room = n <= FEW_LEAVES ? few : coi_small_alloc(&ctx->heap, n * sizeof(*room));

    if (room == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an element of %zu components", n);
    return room;
}

static void
return_room(co_context *ctx, co_value **few, co_value **room, size_t n)
{
    if (room != few)
        coi_small_free(&ctx->heap, room, n * sizeof(*room));
}

static int64_t
drop_next(co_context *ctx, co_iterator *iterator)
{
    size_t     n = iterator->dataset->num_leaves;
    co_value  *few[FEW_LEAVES];
    co_value **leaves = borrow_room(ctx, few, n);
    int        got;

    if (leaves == NULL)
        return COI_ERROR;
    got = coi_iterator_next(ctx, iterator, leaves);
    if (got == COI_ELEMENT)
        coi_leaves_release(&ctx->heap, leaves, n);
    return_room(ctx, few, leaves, n);
    return got;
}

int64_t
coi_iterator_skip(co_context *ctx, co_iterator *iterator, int64_t n)
{
    int64_t skipped = 0;

    if (iterator->dataset->ops->skip != NULL) {
        skipped = iterator->dataset->ops->skip(ctx, iterator, n);
        if (skipped < 0 && coi_was_cancelled(ctx)) /* how many were passed over is not known */
            coi_mark_not_checkpointable(ctx, iterator);
        return skipped;
    }
    while (skipped < n) {
        int64_t got = drop_next(ctx, iterator);

        if (got <= 0)
            return got < 0 ? got : skipped;
        ++skipped;
    }
    return skipped;
}

static co_value *
make_packed(co_context *ctx, co_iterator *iterator)
{
    const co_dataset *dataset = iterator->dataset;
    co_value         *few[FEW_LEAVES], *element = NULL;
    co_value        **leaves = borrow_room(ctx, few, dataset->num_leaves);

    if (leaves == NULL)
        return NULL;
    if (coi_iterator_next(ctx, iterator, leaves) == COI_ELEMENT) {
        if (!dataset->ops->distributed)
            iterator->step_examples = coi_leaves_rows(leaves, dataset->num_leaves);
        if (!coi_is_structure(dataset->spec))
            return leaves[0];
        element = coi_pack(&ctx->heap, dataset->spec, leaves, coi_err(ctx));
        if (element == NULL)
            coi_failed(ctx);
        coi_leaves_release(&ctx->heap, leaves, dataset->num_leaves);
    }
    return_room(ctx, few, leaves, dataset->num_leaves);
    return element;
}

typedef struct advance {
    coi_effect   effect;
    const void  *resource;
    co_iterator *iterator;
    co_value    *element;
} advance;

static co_code
next_effect(co_context *ctx, coi_effect *effect)
{
    advance *n = (advance *)(void *)effect;

    n->element = make_packed(ctx, n->iterator);
    return ctx->error.code;
}

const coi_op coi_op_iterator_next = {
    COI_EFFECT("iterator_next", "Reads the next element of an iterator; co_next.", next_effect,
               CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR)
};

/* The same through the executor, which shows it to observers and recorders. Apart from the call
 * above, so that what nobody looks at is not described either. */
COI_RARE static co_value *
next_specially(co_context *ctx, co_iterator *iterator)
{
    advance n = { .resource = iterator, .iterator = iterator };

    n.effect = (coi_effect){
        .resources = &n.resource, .num_resources = 1, .out = &n.element, .num_out = 1
    };
    coi_execute(ctx, &coi_op_iterator_next, &n.effect);
    return n.element;
}

/*
 * One element packed into its structure, as a new reference; NULL at the end and on errors.
 * Functions of the pipeline may drop the iterator, which then lives until it is done, but not ask
 * it for more.
 */
static co_value *
next_packed(co_context *ctx, co_iterator *iterator)
{
    coi_data_state *state = coi_data_state_of(ctx);
    coi_cancel     *before = state->cancel;
    co_value       *element;

    if (iterator->needs_initialize) {
        coi_fail(ctx, CO_FAILED_PRECONDITION,
                 "the iterator has not been initialized; let the session run the operation of "
                 "co_iterator_initialize first");
        return NULL;
    }
    /* All replicas of a step may be here at once, to be refused: nothing is written. */
    if (iterator->dataset->ops->distributed && coi_in_replica(ctx))
        return make_packed(ctx, iterator);
    if (!coi_ref_exclusive(iterator)) {
        coi_refuse_own(ctx);
        return NULL;
    }
    if (iterator->untold != NULL)
        coi_shared_end(&ctx->heap, &iterator->untold, true);
    state->cancel = &iterator->cancel;
    element = coi_is_special(ctx) ? next_specially(ctx, iterator) : make_packed(ctx, iterator);
    state->cancel = before;
    coi_unref_exclusive(&ctx->heap, iterator);
    return element;
}

static inline bool
check_iterator(co_context *ctx, const co_iterator *iterator)
{
    return (iterator != NULL && coi_is_live_object(&ctx->heap, iterator, &coi_iterator_class)) ||
           coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator");
}

co_iterator *
co_iterate(co_context *ctx, co_dataset *dataset)
{
    co_iterator *iterator;

    COI_ENTER(ctx, "iterate", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    if (coi_in_graph(ctx)) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "a dataset cannot be iterated over while a graph is built, which reads nothing; "
                 "use co_make_initializable_iterator, and let a session take elements");
        return NULL;
    }
    iterator = coi_is_capturing(ctx) ? coi_capture_iterate(ctx, dataset)
                                     : coi_iterator_whole(ctx, dataset);
    return iterator != NULL ? coi_own(ctx, iterator) : NULL;
}

co_value *
co_next(co_context *ctx, co_iterator *iterator)
{
    co_value *element;

    COI_ENTER(ctx, "next", NULL);
    if (!check_iterator(ctx, iterator))
        return NULL;
    if (coi_is_capturing(ctx))
        return coi_capture_next(ctx, iterator);
    element = next_packed(ctx, iterator);
    return element != NULL ? coi_own(ctx, element) : NULL;
}

co_value *
co_get_next(co_context *ctx, co_iterator *iterator)
{
    co_value *element;

    COI_ENTER(ctx, "get_next", NULL);
    if (!check_iterator(ctx, iterator))
        return NULL;
    if (coi_is_capturing(ctx))
        return coi_capture_next(ctx, iterator);
    element = next_packed(ctx, iterator);
    if (element != NULL)
        return coi_give(ctx, element);
    if (ctx->error.code == CO_OK)
        coi_fail(ctx, CO_OUT_OF_RANGE, "end of input: the iterator has no further element");
    return NULL;
}

co_value *
co_get_next_as_optional(co_context *ctx, co_iterator *iterator)
{
    co_value *element, *optional;

    COI_ENTER(ctx, "get_next_as_optional", NULL);
    if (!check_iterator(ctx, iterator))
        return NULL;
    if (coi_is_capturing(ctx))
        return coi_capture_optional(ctx, iterator);
    element = next_packed(ctx, iterator);
    if (ctx->error.code != CO_OK)
        return NULL;
    optional = coi_structure_new(&ctx->heap, CO_KIND_TUPLE, element != NULL, NULL, NULL, NULL,
                                 coi_err(ctx));
    if (optional != NULL && element != NULL) {
        optional->u.items.items[0] = element;
        if (coi_structure_seal(optional, coi_err(ctx)) != CO_OK) {
            coi_unref(&ctx->heap, optional);
            optional = NULL;
        }
    } else {
        coi_unref(&ctx->heap, element);
    }
    return coi_give(ctx, optional);
}

static bool
check_optional(co_context *ctx, const co_value *optional)
{
    if (!coi_check_kind(ctx, optional, CO_KIND_TUPLE, 2, "optional"))
        return false;
    if (optional->u.items.n <= 1)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR, "argument 2 (optional) is a tuple of %zu items, not an optional",
             optional->u.items.n);
    return false;
}

bool
co_optional_has_value(co_context *ctx, const co_value *optional)
{
    COI_ENTER(ctx, "optional_has_value", false);
    if (optional != NULL && coi_is_live(&ctx->heap, optional) &&
        optional->kind == CO_KIND_SYMBOLIC) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "optional_has_value reads an optional that has no value or none while the "
                 "function is captured; use co_optional_has_value_tensor, or co_get_next, whose "
                 "end of input is the error CO_OUT_OF_RANGE");
        return false;
    }
    return check_optional(ctx, optional) && optional->u.items.n == 1;
}

co_value *
co_optional_has_value_tensor(co_context *ctx, co_value *optional)
{
    COI_ENTER(ctx, "optional_has_value_tensor", NULL);
    if (coi_is_capturing(ctx) && optional != NULL && coi_is_live(&ctx->heap, optional) &&
        optional->kind == CO_KIND_SYMBOLIC)
        return coi_capture_has_value(ctx, optional);
    return check_optional(ctx, optional) ? co_scalar_bool(ctx, optional->u.items.n == 1) : NULL;
}

co_value *
co_optional_get_value(co_context *ctx, co_value *optional)
{
    COI_ENTER(ctx, "optional_get_value", NULL);
    if (coi_is_capturing(ctx) && optional != NULL && coi_is_live(&ctx->heap, optional) &&
        optional->kind == CO_KIND_SYMBOLIC)
        return coi_capture_get_value(ctx, optional);
    if (!check_optional(ctx, optional))
        return NULL;
    if (optional->u.items.n == 0) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "the optional is empty: the iterator was at its end; ask co_optional_has_value first");
        return NULL;
    }
    coi_ref(optional->u.items.items[0]);
    return coi_give(ctx, optional->u.items.items[0]);
}

COI_RARE co_value *
co_iterator_element_spec(co_context *ctx, co_iterator *iterator)
{
    COI_ENTER(ctx, "iterator_element_spec", NULL);
    if (!check_iterator(ctx, iterator))
        return NULL;
    coi_ref(iterator->dataset->spec);
    return coi_give(ctx, iterator->dataset->spec);
}

COI_RARE int64_t
co_iterator_dropped_rows(co_context *ctx, const co_iterator *iterator)
{
    COI_ENTER(ctx, "iterator_dropped_rows", 0);
    return check_iterator(ctx, iterator) && coi_check_host_state(ctx, "the number of dropped rows")
               ? iterator->dropped_rows
               : 0;
}

int64_t
co_iterator_step_examples(co_context *ctx, const co_iterator *iterator)
{
    COI_ENTER(ctx, "iterator_step_examples", -1);
    return check_iterator(ctx, iterator) && coi_check_host_state(ctx, "the number of examples")
               ? iterator->step_examples
               : -1;
}

COI_RARE co_code
co_iterator_cancel(co_context *ctx, co_iterator *iterator)
{
    COI_ENTER_CODE(ctx, "iterator_cancel");
    if (check_iterator(ctx, iterator))
        coi_cancel_set(&iterator->cancel);
    return ctx->error.code;
}
