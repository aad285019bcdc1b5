/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages that call a function for every element: map, filter, take_while, scan. An element whose
 * function failed is gone; the next one follows.
 */
#include "data/prefetcher.h"
#include "data/iterator_checkpoint.h"

/* --- map --- */

int
coi_map_apply(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    coi_user_callback     callback;
    co_value             *element;
    bool                  ok;

    coi_user_callback_begin(ctx, &callback);
    element = coi_user_callback_element(ctx, iterator);
    ok = element != NULL &&
         coi_user_callback_result(ctx, iterator->dataset,
                                  args->fn.element(ctx, element, args->user), leaves);
    coi_user_callback_end(ctx, &callback, iterator);
    return ok ? COI_ELEMENT : coi_user_callback_error(ctx, iterator);
}

static int
map_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    int got = coi_stage_pull(ctx, iterator);

    return got > 0 ? coi_map_apply(ctx, iterator, leaves) : got;
}

const coi_dataset_ops coi_map_ops = {
    .name = "map",
    .dataset_size = sizeof(coi_stage),
    .costs = true,
    .iterator_size = sizeof(coi_stage_iterator),
    .next = map_next,
    .keeps = true,
    .checkpoint = coi_checkpoint_stage,
    .open = coi_stage_open,
    .close = coi_stage_close,
    .with_inputs = coi_stage_with_inputs,
    .tracks = COI_KEPT,
};

co_dataset *
coi_map_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input, co_value *spec,
            const coi_stage_args *args)
{
    if (!coi_check_input(ctx, input, 2, "input") ||
        !coi_check_fn(ctx, args->fn.element != NULL, 3, "returns an element") ||
        (spec != NULL && !coi_check_spec(ctx, spec, 5)))
        return NULL;
    return coi_dataset_give(ctx, coi_stage_mapped(ctx, ops, input, spec, args));
}

co_dataset *
co_dataset_map(co_context *ctx, co_dataset *input, co_element_fn fn, void *user, co_value *spec)
{
    coi_stage_args args = { .fn.element = fn, .user = user };

    COI_ENTER(ctx, "dataset_map", NULL);
    return coi_map_new(ctx, &coi_map_ops, input, spec, &args);
}

/* --- filter and take_while --- */

/* What the predicate says of the element that was pulled, which is handed on if it is true. */
static int
judge(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    co_value            **pulled = ((coi_stage_iterator *)iterator)->element;
    size_t                n = iterator->dataset->num_leaves;
    coi_user_callback     callback;
    co_value             *element;
    bool                  yes = false;

    for (size_t i = 0; i < n; ++i) {
        coi_ref(pulled[i]);
        leaves[i] = pulled[i];
    }
    coi_user_callback_begin(ctx, &callback);
    element = coi_user_callback_element(ctx, iterator);
    if (element != NULL)
        yes = args->fn.predicate(ctx, element, args->user);
    coi_user_callback_end(ctx, &callback, iterator);
    if (yes && ctx->error.code == CO_OK)
        return COI_ELEMENT;
    coi_leaves_release(&ctx->heap, leaves, n);
    return ctx->error.code == CO_OK ? COI_END : coi_user_callback_error(ctx, iterator);
}

static int
filter_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    for (;;) {
        int got = coi_stage_pull(ctx, iterator);

        if (got <= 0)
            return got;
        got = judge(ctx, iterator, leaves);
        if (got != COI_END)
            return got;
    }
}

static int
take_while_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;
    int                 got = self->ended ? COI_END : coi_stage_pull(ctx, iterator);

    if (got > 0)
        got = judge(ctx, iterator, leaves);
    self->ended = got == COI_END;
    return got;
}

static const coi_dataset_ops filter_ops = {
    .name = "filter",
    .dataset_size = sizeof(coi_stage),
    .costs = true,
    .iterator_size = sizeof(coi_stage_iterator),
    .next = filter_next,
    .keeps = true,
    .checkpoint = coi_checkpoint_stage,
    .open = coi_stage_open,
    .close = coi_stage_close,
    .with_inputs = coi_stage_with_inputs,
    .count = coi_count_unknown,
};
static const coi_dataset_ops take_while_ops = {
    .name = "take_while",
    .dataset_size = sizeof(coi_stage),
    .costs = true,
    .hides_files = true,
    .iterator_size = sizeof(coi_stage_iterator),
    .next = take_while_next,
    .keeps = true,
    .checkpoint = coi_checkpoint_stage,
    .open = coi_stage_open,
    .close = coi_stage_close,
    .with_inputs = coi_stage_with_inputs,
    .count = coi_count_unknown,
};

static co_dataset *
judged(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input, co_predicate_fn fn,
       void *user)
{
    coi_stage_args args = { .fn.predicate = fn, .user = user };

    if (!coi_check_input(ctx, input, 2, "input") ||
        !coi_check_fn(ctx, fn != NULL, 3, "says true or false of an element"))
        return NULL;
    return coi_stage_like(ctx, ops, input, &args);
}

co_dataset *
co_dataset_filter(co_context *ctx, co_dataset *input, co_predicate_fn fn, void *user)
{
    COI_ENTER(ctx, "dataset_filter", NULL);
    return judged(ctx, &filter_ops, input, fn, user);
}

co_dataset *
co_dataset_take_while(co_context *ctx, co_dataset *input, co_predicate_fn fn, void *user)
{
    COI_ENTER(ctx, "dataset_take_while", NULL);
    return judged(ctx, &take_while_ops, input, fn, user);
}

/* --- scan --- */

typedef struct scan_dataset {
    coi_stage stage;
    co_value *initial; /* a reference */
} scan_dataset;

typedef struct scan_iterator {
    coi_stage_iterator base;
    co_value          *state; /* a reference; NULL before the first element */
} scan_iterator;

static void
scan_close(coi_heap *heap, co_iterator *iterator)
{
    coi_unref(heap, ((scan_iterator *)iterator)->state);
    coi_stage_close(heap, iterator);
}

static void
scan_destroy(coi_heap *heap, co_dataset *dataset)
{
    coi_unref(heap, ((scan_dataset *)dataset)->initial);
}

/* What the function returned: the new state, kept, and the leaves of the output. */
static bool
scan_result(co_context *ctx, co_iterator *iterator, co_value *result, co_value **leaves)
{
    scan_iterator *self = (scan_iterator *)iterator;

    if (ctx->error.code != CO_OK)
        return false;
    if (result == NULL || !coi_is_live(&ctx->heap, result) || result->kind != CO_KIND_TUPLE ||
        result->u.items.n != 2) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "the function did not return a tuple of two; return the new state and the output");
        return false;
    }
    if (!coi_user_callback_result(ctx, iterator->dataset, result->u.items.items[1], leaves))
        return false;
    coi_ref(result->u.items.items[0]);
    coi_unref(&ctx->heap, self->state);
    self->state = result->u.items.items[0];
    return true;
}

static int
scan_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    const scan_iterator  *self = (const scan_iterator *)iterator;
    coi_user_callback     callback;
    co_value             *pair[2];
    bool                  ok = false;
    int                   got = coi_stage_pull(ctx, iterator);

    if (got <= 0)
        return got;
    coi_user_callback_begin(ctx, &callback);
    pair[0] = self->state != NULL ? self->state : ((scan_dataset *)iterator->dataset)->initial;
    pair[1] = coi_user_callback_element(ctx, iterator);
    if (pair[1] != NULL) {
        co_value *both = co_tuple(ctx, pair, 2);

        ok = both != NULL &&
             scan_result(ctx, iterator, args->fn.fold(ctx, both, args->user), leaves);
    }
    coi_user_callback_end(ctx, &callback, iterator);
    return ok ? COI_ELEMENT : coi_user_callback_error(ctx, iterator);
}

/* The leaves of a state, which is built as the initial one is. */
static bool
checkpoint_state(co_context *ctx, coi_iterator_checkpoint *p, co_value *initial, co_value **leaves,
                 size_t n, co_value **state)
{
    size_t done = 0;

    if (p->saves)
        coi_collect_leaves(*state, leaves);
    while (done < n && coi_checkpoint_value(ctx, p, &leaves[done]))
        ++done;
    if (p->saves)
        return done == n;
    if (done == n) {
        *state = coi_pack(&ctx->heap, initial, leaves, coi_err(ctx));
        if (*state == NULL)
            coi_failed(ctx);
    }
    coi_leaves_release(&ctx->heap, leaves, done);
    return *state != NULL;
}

static bool
scan_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    scan_iterator *self = (scan_iterator *)iterator;
    co_value      *initial = ((scan_dataset *)iterator->dataset)->initial, **leaves;
    bool           has_state = self->state != NULL, ok;
    size_t         n = coi_count_leaves(initial), nbytes = (n > 0 ? n : 1) * sizeof(*leaves);

    if (!coi_checkpoint_stage(ctx, iterator, p) || !coi_checkpoint_flag(ctx, p, &has_state))
        return false;
    if (!has_state)
        return true;
    if (p->saves &&
        coi_same_structure(initial, self->state, CO_UNIMPLEMENTED, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    leaves = coi_small_alloc(&ctx->heap, nbytes);
    if (leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the state of a scan");
        return false;
    }
    ok = checkpoint_state(ctx, p, initial, leaves, n, &self->state);
    coi_small_free(&ctx->heap, leaves, nbytes);
    return ok;
}

static co_dataset *scan_with_inputs(co_context *ctx, co_dataset *dataset,
                                    co_dataset *const *inputs);

static const coi_dataset_ops scan_ops = {
    .name = "scan",
    .dataset_size = sizeof(scan_dataset),
    .costs = true,
    .hides_files = true,
    .iterator_size = sizeof(scan_iterator),
    .next = scan_next,
    .keeps = true,
    .checkpoint = scan_checkpoint,
    .open = coi_stage_open,
    .close = scan_close,
    .destroy = scan_destroy,
    .with_inputs = scan_with_inputs,
    .tracks = COI_KEPT,
};

static co_dataset *
keep_initial(co_dataset *dataset, co_value *initial)
{
    if (dataset != NULL) {
        coi_ref(initial);
        ((scan_dataset *)dataset)->initial = initial;
    }
    return dataset;
}

static co_dataset *
scan_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return keep_initial(coi_stage_with_inputs(ctx, dataset, inputs),
                        ((scan_dataset *)dataset)->initial);
}

co_dataset *
co_dataset_scan(co_context *ctx, co_dataset *input, co_value *initial, co_fold_fn fn, void *user,
                co_value *spec)
{
    coi_stage_args args = { .fn.fold = fn, .user = user };

    COI_ENTER(ctx, "dataset_scan", NULL);
    if (!coi_check_input(ctx, input, 2, "input") || !coi_check_value(ctx, initial, 3, "initial") ||
        !coi_check_fn(ctx, fn != NULL, 4, "returns the new state and the output") ||
        (spec != NULL && !coi_check_spec(ctx, spec, 6)))
        return NULL;
    return coi_dataset_give(ctx, keep_initial(coi_stage_mapped(ctx, &scan_ops, input, spec, &args),
                                              initial));
}
