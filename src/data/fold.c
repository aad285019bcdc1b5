/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folding a function over all elements of a dataset, plain or distributed (DS-ITER-9). Each step is
 * a block of its own, so that a fold over many elements holds one state and one element.
 */
#include "data/captured_input.h"
#include "function/control_flow.h"

/* The state after one element, as a reference of its own; NULL at the end and on errors. */
static co_value *
fold_once(co_context *ctx, co_iterator *iterator, co_value *state, co_fold_fn fn, void *user)
{
    co_value *element = co_next(ctx, iterator);
    co_value *next;
    size_t    floor;

    if (element == NULL)
        return NULL;
    floor = coi_function_begin(ctx);
    next = fn(ctx, co_tuple(ctx, (co_value *const[]){ state, element }, 2), user);
    coi_function_end(ctx, floor);
    if (next == NULL && ctx->error.code == CO_OK)
        next = co_none(ctx);
    if (next == NULL || ctx->error.code != CO_OK)
        return NULL;
    coi_ref(next);
    return next;
}

/* --- while a function is captured: a loop over the elements --- */

typedef struct fold_body {
    co_fold_fn fn;
    void      *user;
} fold_body;

static co_value *
call_fold(co_context *ctx, co_value *args, void *user)
{
    const fold_body *body = user;
    co_value *const *items = args->u.items.items;
    co_value        *both = co_tuple(ctx, (co_value *[]){ items[1], items[0] }, 2), *next;

    next = both != NULL ? body->fn(ctx, both, body->user) : NULL;
    return next != NULL ? co_tuple(ctx, &next, 1) : NULL;
}

static co_value *
capture_fold(co_context *ctx, co_dataset *dataset, co_value *initial, co_fold_fn fn, void *user)
{
    fold_body body = { fn, user };
    co_value *value = coi_dataset_value(ctx, dataset), *state = co_tuple(ctx, &initial, 1);

    state = value != NULL && state != NULL
                ? coi_for_each_element(ctx, value, state, call_fold, &body)
                : NULL;
    return state != NULL ? coi_own_ref(ctx, state->u.items.items[0]) : NULL;
}

co_value *
co_dataset_reduce(co_context *ctx, co_dataset *dataset, co_value *initial, co_fold_fn fn,
                  void *user)
{
    co_iterator *iterator;
    co_value    *state, *next;

    COI_ENTER(ctx, "dataset_reduce", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset") ||
        !coi_check_value(ctx, initial, 3, "initial"))
        return NULL;
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 4 (fn) is NULL; give a function of state and element");
        return NULL;
    }
    if (coi_is_capturing(ctx))
        return capture_fold(ctx, dataset, initial, fn, user);
    iterator = coi_iterator_new(ctx, dataset, NULL);
    if (iterator == NULL)
        return NULL;
    coi_ref(initial);
    state = initial;
    do {
        co_block_begin(ctx);
        next = fold_once(ctx, iterator, state, fn, user);
        co_block_end(ctx);
        if (next != NULL) {
            coi_unref(&ctx->heap, state);
            state = next;
        }
    } while (next != NULL);
    coi_unref(&ctx->heap, iterator);
    if (ctx->error.code != CO_OK) {
        coi_unref(&ctx->heap, state);
        return NULL;
    }
    return coi_give(ctx, state);
}
