/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets of the caller's arrays (NP-*): a copy of every array, then slices of the copies.
 */
#include <cohort/dataset.h>

#include "data/dataset.h"
#include "function/function.h"
#include "strategy/distributed_input.h"
#include "strategy/strategy.h"

#include <string.h>

/* Bare numbers have no shape to be sliced along (NP-3); everything else is left to
 * from_tensor_slices. */
static bool
check_arrays(co_context *ctx, const co_value *value)
{
    if (coi_is_host(value) || value->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (arrays) of make_numpy_dataset holds %s, which has no shape; leaves "
                 "must be tensors",
                 coi_a_kind(value->kind));
        return false;
    }
    for (size_t i = 0; coi_is_structure(value) && i < value->u.items.n; ++i)
        if (!check_arrays(ctx, value->u.items.items[i]))
            return false;
    return true;
}

/* The data of a tensor on the host in memory of its own. */
static co_value *
copy_data(co_context *ctx, void *arg)
{
    co_value  *from = arg, *copy;
    co_device *device = from->u.tensor.device;

    if (from->dtype == CO_STRING)
        return coi_tensor_strings(&ctx->heap, device, from->u.tensor.dims, from->ndim,
                                  from->u.tensor.num_elements, coi_data_on_host(from),
                                  coi_err(ctx));
    copy = coi_tensor_new(&ctx->heap, device, (co_dtype)from->dtype, from->u.tensor.dims,
                          from->ndim, from->u.tensor.num_elements, coi_err(ctx));
    if (copy != NULL && from->u.tensor.num_elements > 0)
        memcpy(coi_data_on_host(copy), coi_data_on_host(from), coi_tensor_nbytes(from));
    return copy;
}

/* A value of the block. */
static co_value *
copy_leaf(co_context *ctx, co_value *leaf, void *user)
{
    co_value *from = coi_give(ctx, coi_as_tensor(ctx, leaf, CO_DTYPE_NONE));

    if (from != NULL) /* what is on another device comes to the host first */
        from = coi_give(ctx, coi_copy_tensor(ctx, from, user));
    return from != NULL ? coi_give(ctx, coi_make_tensor(ctx, copy_data, from)) : NULL;
}

static bool
check_session(co_context *ctx, bool has_session)
{
    if (has_session || !coi_in_graph(ctx))
        return true;
    coi_fail(ctx, CO_ASSERTION_ERROR,
             "make_numpy_dataset needs a session in graph mode, which holds the data; call "
             "co_v1_make_numpy_dataset with one");
    return false;
}

co_dataset *
coi_make_numpy_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays, bool has_session)
{
    coi_capture_pause pause;
    co_device        *device;
    co_dataset       *dataset = NULL;

    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_value(ctx, arrays, 3, "arrays") ||
        !coi_check_enter(ctx, strategy) || !check_session(ctx, has_session) ||
        !check_arrays(ctx, arrays) || (device = coi_data_device(ctx)) == NULL)
        return NULL;
    pause = coi_capture_suspend(ctx); /* the copy is the dataset's, and not of a program (NP-5) */
    arrays = coi_map_leaves(ctx, arrays, copy_leaf, device);
    if (arrays != NULL)
        dataset = co_dataset_from_tensor_slices(ctx, arrays);
    coi_capture_resume(ctx, &pause);
    return dataset;
}

co_dataset *
co_make_numpy_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays)
{
    COI_ENTER(ctx, "make_numpy_dataset", NULL);
    return coi_make_numpy_dataset(ctx, strategy, arrays, false);
}
